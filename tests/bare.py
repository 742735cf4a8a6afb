"""The tests on a machine without Docker, Slurm, etcd and go: what needs them is skipped with a reason, all else passes.

    python -m tests.bare [OPTION OF PYTEST ...]

Runs every test marked ``daemon`` and, in the rooms that talk to such programs, all others that start no ranks; then the
tests of Compose once more, beside a Docker client without Compose, which is what Debian's docker.io gives. Only the
PATH and the variables in UNSET differ from a plain run. Fails when a test fails, when none passes, or when no test was
skipped for want of one of these programs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

from tests import container_runtime, slurm
from tests.kubernetes_server import conftest as kubernetes

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = (
    *("docker*", "containerd*", "ctr", "runc", "crun", "podman*", "nerdctl*", "mmdebstrap"),
    *("slurm*", "sbatch", "srun", "salloc", "squeue", "scancel", "scontrol", "sinfo", "sacct*", "munge*", "unmunge"),
    *("etcd*", "kube*", "go", "gofmt"),
)
#: CI makes a missing program a failure; the others name daemons that run already
UNSET = (
    *("CI", "DOCKER_HOST", "DOCKER_CONTEXT", "SLURM_CONF", "KUBECONFIG"),
    *("SUITE_TEST_DOCKER_HOST", "SUITE_TEST_KUBE_APISERVER", "SUITE_TEST_KUBE_REQUIRED", "SUITE_TEST_KUBELET"),
)
#: these compute, or start ranks on this machine: no such program is near
LEFT_OUT = (
    *(
        f"tests/{room}"
        for room in (
            "backends",
            "bundle",
            "claims",
            "export",
            "fitting",
            "fuzz",
            "gpu",
            "planner",
            "report",
            "spec",
            "stats",
        )
    ),
    *("tests/theory", "tests/worker", "tests/test_*.py", "tests/conduct/planning", "tests/conduct/running/test_se*.py"),
    *("tests/conduct/running/test_pursuit.py", "tests/conduct/running/test_rerun.py", "tests/cli/test_verify.py"),
    *(
        f"tests/cli/test_{name}.py"
        for name in (
            *("archives", "com[mp]*", "examples", "field_options", "help", "import", "options", "plan", "runs"),
            *("sizes", "streams", "surface", "terminal_escapes"),
        )
    ),
    *(f"tests/launch/test_{name}.py" for name in ("local", "driver", "zygotes", "logs", "traces", "node")),
    *(f"tests/conduct/running/test_{name}.py" for name in ("many_drivers", "hostile_ranks", "consent")),
    "tests/images/test_inventory.py",
)
COMPOSE = "compose.yaml cannot be read here"
#: what tests without these programs say, each at least once
REASONS = (container_runtime.CANNOT_START, slurm.CANNOT_START, kubernetes.CANNOT_START, COMPOSE)
CLIENT = """#!/bin/sh
[ "$1" != compose ] || { echo "docker: unknown command: docker compose" >&2; exit 1; }
echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1
"""


def main(options: list[str]) -> int:
    """0 when both runs did what they should."""
    with tempfile.TemporaryDirectory(prefix="bare-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # some tests become another user
        path = bare_path(folder)
        chosen = ["-m", "daemon or not ranks", *(f"--ignore-glob={ROOT / one}" for one in LEFT_OUT), "tests"]
        chosen += ["-n", "2", "--dist", "loadfile"]
        problems = run_tests("no daemons", path, REASONS, [*chosen, *options])
        client = folder / "docker"
        client.write_text(CLIENT)
        client.chmod(0o755)
        path = f"{folder}{os.pathsep}{path}"
        problems += run_tests("a Docker client without Compose", path, (COMPOSE,), ["tests/compose", *options])
    for problem in problems:
        print(f"test-bare: {problem}")
    return 1 if problems else 0


def bare_path(folder: Path) -> str:
    """The PATH with each folder that holds a hidden program replaced by one, in ``folder``, of links to the others."""
    bare = []
    for entry in dict.fromkeys(os.environ["PATH"].split(os.pathsep)):
        programs = sorted(Path(entry).iterdir()) if entry and Path(entry).is_dir() else []
        shown = [program for program in programs if not any(fnmatch(program.name, pattern) for pattern in HIDDEN)]
        if shown != programs:
            entry = str(folder / str(len(bare)))
            Path(entry).mkdir()
            for program in shown:
                (Path(entry) / program.name).symlink_to(program)
        bare.append(entry)
    return os.pathsep.join(bare)


def run_tests(name: str, path: str, reasons: tuple[str, ...], arguments: list[str]) -> list[str]:
    """Run pytest with that PATH, print what came of it, and return what is wrong."""
    begin = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if key not in UNSET}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", "-r", "fE", f"--junitxml={results}", *arguments),
            cwd=ROOT,
            env={**environment, "PATH": path},
        )
        outcomes, skipped = read_results(results)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"test-bare: {name}: {counts or 'nothing ran'} in {time.monotonic() - begin:.0f} s")
    for reason in reasons:
        print(f"  {sum(reason in one for one in skipped):4d} skipped: {reason}")
    problems = [] if done.returncode == 0 else [f"{name}: pytest ended with exit code {done.returncode}"]
    if not outcomes["passed"]:
        problems.append(f"{name}: no test passed")
    missed = [reason for reason in reasons if not any(reason in one for one in skipped)]
    return problems + [f"{name}: no test was skipped because {reason}" for reason in missed]


def read_results(path: Path) -> tuple[Counter[str], list[str]]:
    """How many tests passed, failed and were skipped, and the reasons of the skipped ones."""
    outcomes: Counter[str] = Counter()
    skipped = []
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
        found = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcomes[{"skipped": "skipped"}.get(found[0].tag, "failed") if found else "passed"] += 1
        skipped += [child.get("message", "") for child in found if child.tag == "skipped"]
    return outcomes, skipped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
