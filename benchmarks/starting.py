"""What it saves to fork ranks from a process that has their stack imported, and that it changes no rate and no peak.

Forked and spawned processes of one manifest are alive at the same time and take turns, iteration by iteration, so
that whatever else the machine does meets all of them. Each group has a zygote of its own: what its ranks share (the
layout of their addresses, the seed of Python's hashes) differs from group to group.
"""

import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.ranks import one_manifest
from benchmarks.verdict import Interval, Row, median, trimmed_mean, within
from suite.conduct.running.execute import execute, make_job
from suite.launch.job import Job
from suite.launch.local import LocalLauncher, Start, spawn, start_ranks
from suite.launch.processes import child_subreaper, signal_group
from suite.launch.requests import stop_requests
from suite.launch.supervise import Rank
from suite.launch.zygotes import Zygote, surroundings
from suite.spec.manifest import Manifest

SIZE, CASES = "1M", (("deepspeed", 1), ("megatron", 1), ("deepspeed", 2), ("megatron", 2))
GROUPS, TURNS, STARTS = 6, 20, 3
WAYS: tuple[Literal["forked", "spawned"], ...] = ("forked", "spawned", "spawned", "forked")
LIMIT = 0.02
_IMPORT_SECONDS = 120.0
MIB = 1 << 20


class Process(NamedTuple):
    """The ranks of one process group that takes turns."""

    way: str
    folder: Path
    ranks: list[Rank]

    def open_pipes(self, until: ExitStack) -> list[int]:
        """Descriptors by which the ranks are told to go on; open for reading too, so that nobody is waited for."""
        descriptors = [os.open(self.folder / f"turns-{rank.index}", os.O_RDWR) for rank in self.ranks]
        for descriptor in descriptors:
            until.callback(os.close, descriptor)
        return descriptors

    def expect(self, word: str) -> str:
        """What rank 0 says behind this word. Raises RuntimeError when it ends before."""
        output = self.ranks[0].process.stdout
        assert output is not None
        for line in output:
            if line.startswith(word.encode()):
                return line.split()[1].decode()
        raise RuntimeError(f"a {self.way} rank ended:\n" + (self.folder / "logs" / "rank-0.log").read_text()[-2000:])


class Group(NamedTuple):
    """Seconds of each turn of the processes of one group, in the order of ``WAYS``, and the peaks of their memory."""

    seconds: list[list[float]]
    peak_bytes: list[int]

    def ratio(self) -> float:
        """Seconds of the forked ones over those of the spawned ones."""
        forked, spawned = (self._logs(way) for way in ("forked", "spawned"))
        return math.exp(trimmed_mean([above - below for above, below in zip(forked, spawned, strict=True)]).value)

    def spread(self, way: str) -> float:
        """Absolute difference between the logarithms of the two processes that were started so."""
        one, other = (
            [math.log(value) for value in seconds] for seconds, of in zip(self.seconds, WAYS, strict=True) if of == way
        )
        return abs(trimmed_mean([above - below for above, below in zip(one, other, strict=True)]).value)

    def peak(self, way: str) -> float:
        return statistics.fmean(peak for peak, of in zip(self.peak_bytes, WAYS, strict=True) if of == way)

    def _logs(self, way: str) -> list[float]:
        """Of each turn, the mean over the processes that were started so."""
        chosen = [seconds for seconds, of in zip(self.seconds, WAYS, strict=True) if of == way]
        return [statistics.fmean(math.log(value) for value in turn) for turn in zip(*chosen, strict=True)]


def measure(manifest: Manifest, turns: int) -> Group:
    """One group: a zygote, two processes forked from it and two that were started by themselves."""
    seconds: list[list[float]] = [[] for _ in WAYS]
    with tempfile.TemporaryDirectory() as name, started(manifest, Path(name)) as processes, ExitStack() as pipes:
        orders = [process.open_pipes(pipes) for process in processes]
        for process in processes:
            assert process.expect("READY") == process.way
        for turn in range(turns):
            for index in range(len(WAYS))[:: 1 if turn % 2 == 0 else -1]:
                for order in orders[index]:
                    os.write(order, b"go\n")
                seconds[index].append(float(processes[index].expect("TURN")))
        peaks = [_peak(process.folder) for process in processes]
    return Group(seconds, peaks)


@contextmanager
def started(manifest: Manifest, folder: Path) -> Iterator[list[Process]]:
    """The processes of a group, one way after the other, and none of them left afterwards."""
    with child_subreaper():
        jobs = [_job(manifest, folder / str(index)) for index in range(len(WAYS))]
        zygote = Zygote(surroundings(jobs[0], {}))
        processes: list[Process] = []
        try:
            with stop_requests() as requests:
                if not zygote.is_fit(_IMPORT_SECONDS, requests):
                    raise RuntimeError(f"no process can be forked with the stack of {manifest.backend.name}")
            for index, (way, job) in enumerate(zip(WAYS, jobs, strict=True)):
                ranks: list[Rank] = []
                processes.append(Process(way, folder / str(index), ranks))
                start = partial(zygote.fork, job.argv, None) if way == "forked" else partial(spawn, job)
                start_ranks(job, folder / str(index), ranks, start)
            yield processes
        finally:
            zygote.close()
            for rank in [rank for process in processes for rank in process.ranks]:
                signal_group(rank.process, signal.SIGKILL)
                rank.process.wait()
                if rank.process.stdout is not None:
                    rank.process.stdout.close()


def _job(manifest: Manifest, folder: Path) -> Job:
    """With a folder that has the pipes of its ranks."""
    for path in (folder, folder / "events", folder / "logs"):
        path.mkdir()
    (folder / "manifest.json").write_text(manifest.model_dump_json(by_alias=True), encoding="utf-8")
    job = make_job(manifest, LocalLauncher(start="fork").site(manifest, folder, sys.executable))
    for rank in range(job.ranks):
        os.mkfifo(folder / f"turns-{rank}")
    argv = (sys.executable, "-m", "benchmarks.turn_worker", str(folder / "manifest.json"), str(folder))
    return job.model_copy(update={"argv": argv})


def _peak(folder: Path) -> int:
    """Of all recorded phases of rank 0, as a record has it."""
    lines = (folder / "events" / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return max(event["peak_allocated_bytes"] for event in events if event["kind"] == "memory")


def seconds_to_first_iteration(manifest: Manifest, start: Start, runs: int) -> list[float]:
    """From the start of each run to its first iteration; the zygote is started by the first."""
    launcher, found = LocalLauncher(start=start), []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            began, times = time.time(), []
            record = execute(manifest, Path(folder), launcher, sys.executable, times.append)
        if record.status != "ok":
            raise RuntimeError(f"the run of {manifest.backend.name} failed: {record.failure}")
        facts = next(event["facts"] for event in times if event["kind"] == "environment")
        assert facts["started"] == ("spawned" if start == "spawn" else "forked")
        ready = next(event for event in times if event["kind"] == "memory" and event["phase"] == "setup")
        found.append(ready["time"] - began)
    launcher.close()
    return found


def rows() -> list[Row]:
    table = []
    for backend, ranks in CASES:
        manifest = one_manifest(backend, SIZE, ranks, TURNS)
        where = f"{backend} {SIZE}, {ranks} rank{'s' if ranks > 1 else ''}"
        groups = [measure(manifest, TURNS) for _ in range(GROUPS)]
        table += [
            _rate_row(groups, where),
            _peak_row(groups, where),
            _start_row(one_manifest(backend, SIZE, ranks, 1), where),
        ]
    return table


def _rate_row(groups: list[Group], where: str) -> Row:
    ratio = trimmed_mean([1 / group.ratio() for group in groups])
    spreads = [statistics.median(group.spread(way) for group in groups) for way in ("forked", "spawned")]
    figure = f"{ratio.text('.4f')}; two forked ones differ by {spreads[0]:.2%}, two spawned ones by {spreads[1]:.2%}"
    what = f"rate of forked ranks over that of spawned ones, {where}"
    return Row(what, figure, f"within {LIMIT:.0%}", within(ratio, 1 - LIMIT, 1 + LIMIT))


def _peak_row(groups: list[Group], where: str) -> Row:
    more: Interval = trimmed_mean([(group.peak("forked") - group.peak("spawned")) / MIB for group in groups])
    usual = statistics.fmean(group.peak("spawned") for group in groups) / MIB
    what = f"peak memory of forked ranks beyond that of spawned ones, {where}"
    return Row(what, f"{more.text('+.1f')} of {usual:.0f} MiB")


def _start_row(short: Manifest, where: str) -> Row:
    spawned = median(seconds_to_first_iteration(short, "spawn", STARTS))
    first, *later = seconds_to_first_iteration(short, "fork", STARTS + 1)
    figure = f"spawned {spawned.text('.2f')} s, forked {median(later).text('.2f')} s, the first {first:.2f} s"
    return Row(f"from a run's start to its first iteration, {where}", f"{figure} (medians of {STARTS})")
