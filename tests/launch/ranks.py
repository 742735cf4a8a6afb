"""Ranks made of a few lines of Python, run by the real local launcher: started by themselves, or forked from a process
that has imported a stack which is none."""

import gc
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from suite.launch import supervise, watching
from suite.launch.job import Job, JobLimits
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Outcome
from suite.launch.processes import descendants
from suite.launch.supervise import Patience

#: ranks that are to end by themselves, or of SIGTERM, have long enough for it on a busy machine
QUICK = Patience(grace_seconds=0.3, dump_seconds=3.0, end_seconds=60.0, kill_seconds=60.0, helper_seconds=0.1)
#: for ranks that do not listen
STERN = Patience(grace_seconds=0.3, dump_seconds=0.3, end_seconds=0.3, kill_seconds=60.0, helper_seconds=0.1)

REPOSITORY = Path(__file__).parents[2]
#: whether ranks of a test that does not say are forked
FORKED = False
#: what of the worker a process needs that ranks are forked from
ZYGOTE_MODULES = ("zygote", "process", "rank")
#: importing the stack runs what this variable says
IMPORT_VARIABLE = "TOY_IMPORT"
TOY = {
    "torch.py": """
class cuda:
    is_initialized = staticmethod(lambda: False)
class distributed:
    is_available = staticmethod(lambda: False)
""",
    "suite/worker/session.py": f"""
import os
def load_engine(*stack):
    exec(os.environ.get("{IMPORT_VARIABLE}", ""), {{}})
""",
    "suite/worker/__main__.py": "import sys\nexec(sys.argv[1], {'__name__': '__main__'})\n",
}

PREAMBLE = """
import json, os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
def event(kind, **fields):
    text = json.dumps({"kind": kind, "rank": rank, "time": time.time(), **fields})
    with open(os.path.join(os.environ["EVENTS"], "rank-%d.jsonl" % rank), "a") as file:
        file.write(text + "\\n")
    if rank == 0:
        print("::suite:: " + text, flush=True)
def fail(kind, *evidence):
    event("failure", failure=kind, phase="train", iteration=3, evidence=list(evidence))
def meet(kind):
    # tells an event and waits until all ranks have told it
    event(kind, phase="train", iteration=3)
    for other in range(int(os.environ["WORLD_SIZE"])):
        file = os.path.join(os.environ["EVENTS"], "rank-%d.jsonl" % other)
        while not os.path.exists(file) or '"' + kind + '"' not in open(file).read():
            time.sleep(0.02)
"""


class Clock:
    """The driver's clock, which goes on by so many seconds when an event of a kind comes."""

    time = staticmethod(time.time)

    def __init__(self, passing: Mapping[str, float]) -> None:
        self.passing, self.ahead = passing, 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def take(self, event: dict[str, Any]) -> None:
        self.ahead += self.passing.get(event["kind"], 0.0)


@dataclass
class Ran:
    """What a job left behind."""

    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    outcome: Outcome | None = None

    def log(self, rank: int = 0) -> bytes:
        return (self.folder / "logs" / f"rank-{rank}.log").read_bytes()

    @property
    def failure(self) -> Any:
        """Of a run that is to have failed."""
        assert self.outcome.status == "failed", self.outcome
        return self.outcome.failure


def is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie has)."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """For every test of a module that imports it."""
    before = descendants()
    yield
    gc.collect()  # a launcher that is kept by a traceback keeps the process that it forks ranks from
    assert descendants() - before == set()


def make_folder(root: Path) -> Path:
    for name in ("events", "logs"):
        (root / name).mkdir()
    return root


def toy_worker(root: Path) -> Path:
    """A folder that has a worker whose ranks run the script that they are given, forked as those of the suite are."""
    worker = root / "toy" / "suite" / "worker"
    if not worker.exists():
        worker.mkdir(parents=True)
        for package in (worker.parent, worker):
            (package / "__init__.py").touch()
        for name in ZYGOTE_MODULES:
            shutil.copy(REPOSITORY / "suite" / "worker" / f"{name}.py", worker)
        for name, text in TOY.items():
            (root / "toy" / name).write_text(text)
    return root / "toy"


def make_job(folder: Path, script: str, ranks: int = 1, forked: bool | None = None, **limits: Any) -> Job:
    """``forked``: its ranks may be forked."""
    env = {"EVENTS": str(folder / "events")}
    how: dict[str, Any] = {"argv": (sys.executable, "-I", "-S", "-c", PREAMBLE + script), "env": env}
    if FORKED if forked is None else forked:
        toy = str(toy_worker(folder))
        how = {"argv": (sys.executable, "-m", "suite.worker", PREAMBLE + script), "env": env}
        how |= {"stack": ("toy", "cpu", "torch", "gpt2"), "working_directory": toy}
    return Job(
        name="test",
        ranks_per_node=ranks,
        limits=JobLimits(**{"run_seconds": 1000.0, "silence_seconds": 100.0, **limits}),
        **how,
    )


def run(
    root: Path,
    script: str,
    ranks: int = 1,
    patience: Patience = QUICK,
    forked: bool | None = None,
    passing: Mapping[str, float] | None = None,
    heard: Callable[[dict[str, Any]], object] = lambda event: None,
    **limits: Any,
) -> Ran:
    """``passing``: how many seconds pass for the driver with an event of a kind, so that no test waits for a limit.

    ``heard``: called with each event.
    """
    ran, clock = Ran(make_folder(root)), Clock(passing or {})
    job = make_job(ran.folder, script, ranks, forked, **limits)

    def on_event(event: dict[str, Any]) -> None:
        ran.events.append(event)
        clock.take(event)
        heard(event)

    with pytest.MonkeyPatch.context() as patch:
        for module in (supervise, watching):
            patch.setattr(module, "time", clock)
        ran.outcome = LocalLauncher(patience).run(job, ran.folder, on_event)
    return ran
