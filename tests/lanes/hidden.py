"""Tests as on a machine without container runtime, scheduler, etcd and go: what needs them is skipped with a reason.

Only the PATH and the variables in UNSET differ from a plain run. A run proves nothing where no test passed, or where
none was skipped for want of one of these programs.
"""

import os
import subprocess
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

from tests import container_runtime, slurm
from tests.kubernetes_server import conftest as kubernetes

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = (
    *("docker*", "containerd*", "ctr", "runc", "crun", "podman*", "nerdctl*", "mmdebstrap"),
    *("slurm*", "sbatch", "srun", "salloc", "squeue", "scancel", "scontrol", "sinfo", "sacct*", "munge*", "unmunge"),
    *("etcd*", "kube*", "go", "gofmt"),
)
#: CI makes a missing program a failure; the others name daemons that run already
UNSET = (
    *("CI", "DOCKER_HOST", "DOCKER_CONTEXT", "SLURM_CONF", "KUBECONFIG"),
    *("SUITE_TEST_DOCKER_HOST", "SUITE_TEST_KUBE_APISERVER", "SUITE_TEST_KUBELET"),
)
#: what tests without these programs say, each at least once
REASONS = (
    container_runtime.CANNOT_START,
    slurm.CANNOT_START,
    kubernetes.CANNOT_START,
    "compose.yaml cannot be read here",
)


def bare_path(folder: Path) -> str:
    """The PATH with each folder that holds a hidden program replaced by one, in ``folder``, of links to the others."""
    bare = []
    for entry in dict.fromkeys(os.environ["PATH"].split(os.pathsep)):
        programs = sorted(Path(entry).iterdir()) if os.path.isdir(entry) and os.access(entry, os.R_OK | os.X_OK) else []
        shown = [program for program in programs if not any(fnmatch(program.name, pattern) for pattern in HIDDEN)]
        if shown != programs:
            entry = str(folder / str(len(bare)))
            Path(entry).mkdir()
            for program in shown:
                (Path(entry) / program.name).symlink_to(program)
        bare.append(entry)
    return os.pathsep.join(bare)


def run_tests(argv: list[str], path: str) -> list[str]:
    """Run pytest with that PATH, print what was skipped and why, and return what is wrong."""
    environment = {key: value for key, value in os.environ.items() if key not in UNSET}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        told = ("-r", "fE", f"--junitxml={results}")
        code = subprocess.run((*argv, *told), cwd=ROOT, env={**environment, "PATH": path}).returncode
        passed, skipped = read_results(results)
    for reason, count in skipped.most_common():
        print(f"  {count:4d} skipped: {reason}")
    problems = [] if code == 0 else [f"exit code {code}"]
    if not passed:
        problems.append("no test passed")
    missed = [reason for reason in REASONS if not any(reason in one for one in skipped)]
    return problems + [f"no test was skipped because {reason}" for reason in missed]


def read_results(path: Path) -> tuple[int, Counter[str]]:
    """How many tests passed, and how many were skipped by reason."""
    passed, skipped = 0, Counter[str]()
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
        outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if outcome is None:
            passed += 1
        elif outcome.tag == "skipped":
            skipped[outcome.get("message", "").removeprefix("tests.needs.Lacking: ")] += 1
    return passed, skipped
