"""Ranks made of a few lines of Python, run by the real local launcher."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.launch.job import Job, JobLimits
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Outcome, RunFolder
from suite.launch.supervise import Patience

QUICK = Patience(grace_seconds=0.3, dump_seconds=0.6, end_seconds=0.5, kill_seconds=5.0, helper_seconds=0.1)

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
"""


@dataclass
class Ran:
    """What a job left behind."""

    folder: RunFolder
    events: list[dict[str, Any]] = field(default_factory=list)
    outcome: Outcome | None = None

    def log(self, rank: int = 0) -> bytes:
        return (self.folder.logs_dir / f"rank-{rank}.log").read_bytes()


def make_folder(root: Path) -> RunFolder:
    folder = RunFolder(events_dir=root / "events", logs_dir=root / "logs")
    folder.events_dir.mkdir()
    folder.logs_dir.mkdir()
    return folder


def make_job(folder: RunFolder, script: str, ranks: int = 1, **limits: Any) -> Job:
    return Job(
        name="test",
        argv=(sys.executable, "-I", "-S", "-c", PREAMBLE + script),
        env={"EVENTS": str(folder.events_dir)},
        ranks_per_node=ranks,
        limits=JobLimits(**{"run_seconds": 30.0, "silence_seconds": 30.0, **limits}),
    )


def run(root: Path, script: str, ranks: int = 1, patience: Patience = QUICK, **limits: Any) -> Ran:
    ran = Ran(make_folder(root))
    job = make_job(ran.folder, script, ranks, **limits)
    ran.outcome = LocalLauncher(patience).run(job, ran.folder, ran.events.append)
    return ran
