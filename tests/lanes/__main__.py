"""python -m tests.lanes check|test|all|daemons|properties|thorough|trainers|trlx [OPTION OF PYTEST ...]

The lanes of `make check`, `make test`, `make test-all`, `make test-nightly` and `make test-trlx` (tests/README.md). All
steps of a lane run even when one fails; exit code 1 says that one did, 130 that Ctrl-C came.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.lanes import changed, hidden
from tests.lanes.background import in_background

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
DATA_PYTHON = BIN.parent.with_name(f"{BIN.parent.name}-data") / "bin" / "python"

#: what no lane but a nightly one runs
NIGHTLY = "thorough or trainers or trlx"
#: what `make test` leaves to CI: it needs programs or packages that are not of this checkout, or a minute of ranks
NEEDY = "packages or browser or ci"
FAST = f"not ({NIGHTLY} or {NEEDY})"
UNMARKED = f"not ({NIGHTLY} or {NEEDY} or daemon or ranks or slow)"
CLUSTER = "tests/kubernetes_server"
#: what two pytest processes and the ranks that they start take at most, seen
GIB_PER_PROCESS = 2
NOT_RUN = (
    "NOT RUN: tests of real trlx ranks, whose source is in no package index. On a checkout that you have:\n"
    "NOT RUN: make test-trlx SOURCE=checkout (docs/trainers/trlx.md says when they ran last)"
)


class Lane:
    """The steps of one lane, and which of them failed."""

    def __init__(self, name: str, options: list[str]) -> None:
        self.name, self.options, self._began = name, options, time.monotonic()
        self.failed: list[str] = []

    def step(self, name: str, work: Callable[[], list[str]]) -> None:
        """``work`` returns its problems."""
        print(f"== {name}", flush=True)
        began = time.monotonic()
        problems = work()
        self.failed += [f"{name}: {problem}" for problem in problems]
        print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)

    def command(self, name: str, *argv: str) -> None:
        """A step that is a program of this environment."""
        self.step(name, lambda: _problems(run((str(BIN / argv[0]), *argv[1:]))))

    def pytest(self, name: str, *arguments: str, **changes: str | None) -> None:
        """A step of tests, in this environment with ``changes``."""
        self.step(name, lambda: _problems(run(self.argv(*arguments), environment(**changes)), nothing_is_fine=True))

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pytest", *arguments, *self.options]

    def end(self) -> int:
        """Tell what came of it; the exit code."""
        seconds = time.monotonic() - self._began
        if not self.failed:
            print(f"{self.name}: all passed in {seconds:.0f} s")
            return 0
        print(f"{self.name}: failed after {seconds:.0f} s:", *self.failed, sep="\n  ")
        return 1


def run(argv: list[str] | tuple[str, ...], env: Mapping[str, str] | None = None) -> int:
    return subprocess.run(argv, cwd=ROOT, env=env).returncode


def environment(**changes: str | None) -> dict[str, str]:
    """This one with these changes; None takes a variable away."""
    changed = {**os.environ, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def _problems(code: int, nothing_is_fine: bool = False) -> list[str]:
    """pytest's exit code 5 says that no test was chosen."""
    return [] if code == 0 or (nothing_is_fine and code == 5) else [f"exit code {code}"]


def spread(each: int = 1) -> list[str]:
    """Options that deal the files to so many of pytest's processes for each core, as far as memory goes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processes = max(1, min(each * len(os.sched_getaffinity(0)), int(memory / GIB_PER_PROCESS)))
    return ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]


def lint(lane: Lane) -> None:
    lane.command("lint: ruff check", "ruff", "check", "--quiet")
    lane.command("lint: ruff format", "ruff", "format", "--check", "--quiet")
    worker = ("--eval-annotations", "--no-tips", "--violations", "suite/worker")
    lane.command("lint: vermin, the worker runs on Python 3.8", "vermin", "-q", "-t=3.8-", *worker)
    lane.command("types: mypy", "mypy")


def check(lane: Lane) -> None:
    """What a changed line may have broken, as far as three minutes tell."""
    lint(lane)
    chosen = changed.chosen_tests(changed.changed_files())
    lane.pytest(f"tests: {' '.join(chosen)}", "-m", UNMARKED, *spread(), *chosen)


def test(lane: Lane, each: int = 3) -> None:
    """All that needs nothing but this checkout, as on a machine without any engine.

    On a core that two others use too, three processes get three fifths of it, one a third.
    """
    lint(lane)
    lane.step("tests", lambda: without_engines(lane.argv("-m", FAST, *spread(each))))


def without_engines(argv: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="bare-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # some tests become another user
        return hidden.run_tests(argv, hidden.bare_path(folder))


def everything(lane: Lane) -> None:
    """What CI runs: with engines of the tests' own, which wait more than they compute, beside all that need none."""
    os.environ.setdefault("CI", "true")
    os.environ["SUITE_TEST_EXAMPLES"] = "kept"
    lane.options.append("--hypothesis-seed=0")  # what the nightly lane has found, and else the same on every run
    beside = [sys.executable, "-m", "tests.lanes", "daemons", *lane.options]
    with in_background(beside, ROOT / "build" / "daemon-tests.log") as end_of_daemons:
        test(lane, each=1)  # the daemons are the others
        lane.pytest("tests: packages, browser, long ones", "-m", f"({NEEDY}) and not ({NIGHTLY} or daemon)", *spread())
        data = [str(DATA_PYTHON), "-m", "pytest", "-m", "packages", "tests/export", "tests/test_api.py"]
        lane.step(
            "tests: results handed to other tools", lambda: _problems(run(data, environment(SUITE_TEST_SKIPS="no")))
        )
        lane.step("tests: real daemons, beside all the others", lambda: _problems(end_of_daemons()))
    print(NOT_RUN)


def daemons(lane: Lane) -> None:
    """Those of the cluster come last: who builds its server already is waited for."""
    marked = f"daemon and not ({NIGHTLY})"
    lane.step("tests: daemons", lambda: _problems(run(lane.argv("-m", marked, "--ignore", CLUSTER))))
    build = [f"{CLUSTER}/build", "build/kubernetes", "kube-apiserver", "kubelet", "pause"]
    lane.step("the server of the cluster", lambda: _problems(run(build)))
    lane.step("tests: the cluster", lambda: _problems(run(lane.argv("-m", marked, CLUSTER))))


def properties(lane: Lane) -> None:
    """New examples for Hypothesis, which keeps what it finds for the next run."""
    lane.pytest("properties on new examples", "-m", UNMARKED, *spread(), SUITE_TEST_EXAMPLES="kept")


def thorough(lane: Lane) -> None:
    lane.pytest("the cases that other lanes leave out", "-m", "thorough and not trainers", CI="true")


def trainers(lane: Lane) -> None:
    """One after the other: each starts a dozen processes."""
    lane.pytest("whole trainers", "-m", "trainers", CI="true")


def trlx(lane: Lane) -> None:
    lane.pytest("real trlx ranks", "-m", "trlx", SUITE_TEST_SKIPS="no")


LANES: dict[str, tuple[str, Callable[[Lane], None]]] = {
    "check": ("make check", check),
    "test": ("make test", test),
    "all": ("make test-all", everything),
    "daemons": ("daemons", daemons),
    "properties": ("properties", properties),
    "thorough": ("thorough", thorough),
    "trainers": ("trainers", trainers),
    "trlx": ("make test-trlx", trlx),
}


def main(name: str, *options: str) -> int:
    shown, steps = LANES[name]
    lane = Lane(shown, list(options))
    try:
        steps(lane)
    except KeyboardInterrupt:
        print(f"{shown}: interrupted")
        return 130
    return lane.end()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
