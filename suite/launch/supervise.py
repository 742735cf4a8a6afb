"""Watching the ranks of one node to their end, and telling how they ended."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from suite.launch.classify import RankEnd, RunEnd, classify
from suite.launch.job import Job
from suite.launch.outcome import EndStatus, Failure, OnEvent, Outcome
from suite.launch.processes import RankProcess, catches, exit_descriptor, oom_kills, signal_group, sweep
from suite.launch.requests import StopRequests
from suite.launch.traces import LOOK_SECONDS, hold, log_size, log_tail, read_reports
from suite.launch.watching import Watch

READ_BYTES = 64 * 1024
STACK_LINES = 60


@dataclass(frozen=True)
class Patience:
    """How long the ranks of a run that is over are given, in seconds."""

    grace_seconds: float = 5.0  # after one rank failed, until the others are asked to end: they may know the cause
    dump_seconds: float = 1.0  # for silent ranks to write their stacks
    end_seconds: float = 3.0  # from SIGTERM to SIGKILL
    kill_seconds: float = 10.0  # from SIGKILL until a rank is given up as unkillable
    helper_seconds: float = 3.0  # for helpers of the ranks to end, and to clear up, once these are gone


USUAL_PATIENCE = Patience()


@dataclass
class Rank:
    """A started rank; ``ended_at`` (Unix seconds) is set when it was seen to end."""

    index: int
    process: RankProcess
    ended_at: float | None = None


class Supervision(Watch):
    """One run from its start to its outcome: ``watch``, ``clean_up``, ``outcome``, in this order."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        on_event: OnEvent,
        patience: Patience,
        requests: StopRequests,
        foreign: Collection[int] | None,
    ) -> None:
        """``foreign``: as ``sweep`` takes it."""
        super().__init__(job, folder / "logs" / "rank-0.log", on_event, requests)
        self.ranks: list[Rank] = []
        self._logs = [folder / "logs" / f"rank-{rank}.log" for rank in range(job.ranks)]
        self._folder, self._patience, self._foreign = folder, patience, foreign
        self._is_stopped = False  # while it waits for its turn
        self._oom_kills_before = oom_kills()
        self._exits: list[int] = []
        self._stopped_at: float | None = None
        self._unkillable = False

    def watch(self) -> None:
        """Block until every rank has ended or was given up."""
        limits = self._job.limits
        self._heard = self._clock()
        self._alarms = {
            self._time_out: self._began + limits.run_seconds,
            self._silent: self._heard + limits.silence_seconds,
            self._look_at_logs: self._began + LOOK_SECONDS,
        }
        self._selector.register(self._stdout(), selectors.EVENT_READ, self._read_output)
        for rank in self.ranks:
            descriptor = exit_descriptor(rank.process)
            self._exits.append(descriptor)
            self._selector.register(descriptor, selectors.EVENT_READ, partial(self._end, rank, descriptor))
        self._watch(lambda: bool(self._alive()) and not self._unkillable)
        self._ended = time.monotonic()

    def clean_up(self) -> None:
        """Leave no process of the run, then take in what they wrote. Also after a failed start or an exception."""
        self._end_ranks()
        try:
            if self.ranks:
                self._drain()
        finally:
            for descriptor in self._exits:
                os.close(descriptor)
            self._close_outputs()
            self._close()
        hold(self._logs, self._cut)

    def forget_ranks(self) -> None:
        """End those that were started, before they are watched, as if there had been none."""
        self._end_ranks()
        self._close_outputs()
        self.ranks.clear()

    def outcome(self) -> Outcome:
        """How the run ended, with the reason where it did not end well."""
        stopped_by = self._stopped_by()
        codes = {rank.index: rank.process.returncode for rank in self.ranks}
        status: EndStatus = "ok"
        failure = None
        if stopped_by is not None:
            status, failure = "interrupted", self._failure("interrupted", f"the driver was sent {stopped_by}")
        elif self._verdict is not None or any(code != 0 for code in codes.values()):
            status, failure = "failed", self._why()
        return Outcome(status=status, exit_codes=codes, elapsed_seconds=self._ended - self._began, failure=failure)

    def _end_ranks(self) -> None:
        for rank in self.ranks:
            signal_group(rank.process, signal.SIGKILL)
        if not self._unkillable:
            for rank in self.ranks:
                with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                    rank.process.wait(self._patience.kill_seconds)
        sweep(self._foreign, [rank.process.pid for rank in self.ranks], self._patience.helper_seconds)

    def _close_outputs(self) -> None:
        for pipe in filter(None, [rank.process.stdout for rank in self.ranks]):
            pipe.close()

    def _end(self, rank: Rank, descriptor: int) -> None:
        """A rank has ended. The first to end badly gives the others a grace, so that the first cause is written."""
        self._selector.unregister(descriptor)
        code = rank.process.wait()
        rank.ended_at = time.time()
        if code != 0 and self._verdict is None and self._stopped_at is None and self._terminate not in self._alarms:
            self._alarms = {self._terminate: time.monotonic() + self._patience.grace_seconds}

    def _take_event(self, event: dict[str, Any]) -> None:
        self._heard = self._clock()  # the alarm looks at it when it is due
        super()._take_event(event)

    def _hear_of_turns(self) -> bool:
        """Ranks that wait are stopped: so no thread of theirs takes anything, as gloo's do, one for each group."""
        self._is_stopped = super()._hear_of_turns()
        for rank in self._alive():
            signal_group(rank.process, signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
        return self._is_stopped

    def _time_out(self) -> None:
        limit = self._job.limits.run_seconds
        if not self._is_early(self._time_out, self._began, limit):
            self._verdict = self._failure("timeout", f"the run took longer than its limit of {limit:g} s")
            self._terminate()

    def _silent(self) -> None:
        """No event for too long: ask the ranks for their stacks, then end them."""
        limit = self._job.limits.silence_seconds
        if self._is_early(self._silent, self._heard, limit):
            return
        within = "" if self._iteration is None else f" of iteration {self._iteration}"
        last = (
            f"the last it reported was phase {self._phase}{within}" if self._phase else "it had reported no phase yet"
        )
        printing = []  # no sign of life, for a rank that is stuck may complain for ever: but it is told
        for rank in self._alive():
            with suppress(OSError):
                ago = time.time() - self._logs[rank.index].lstat().st_mtime
                if ago < limit / 2:
                    printing.append(f"rank {rank.index} wrote to its log {ago:.1f} s before that, which is no event")
        self._verdict = self._failure("hang", f"no event from rank 0 for {limit:g} s; {last}", *printing)
        sizes = [*map(log_size, self._logs)]
        for rank in self._alive():
            if catches(rank.process.pid, signal.SIGUSR1):
                os.kill(rank.process.pid, signal.SIGUSR1)
        self._alarms = {partial(self._take_stacks, sizes): time.monotonic() + self._patience.dump_seconds}

    def _take_stacks(self, sizes: list[int]) -> None:
        """What the logs gained beyond ``sizes`` (bytes, by rank) since the ranks were asked for their stacks."""
        seen = self._verdict.evidence if self._verdict else ()
        most = max(STACK_LINES // len(self.ranks), 4)
        stacks: list[str] = []
        for rank, size in zip(self.ranks, sizes, strict=True):
            dump = log_tail(self._logs[rank.index], size)
            # what matters of it: the thread that was running when it was asked, else all
            current = next((index for index, line in enumerate(dump) if line.startswith("Current thread")), 0)
            stacks += (f"rank {rank.index}: {line}" for line in dump[current : current + most])
        self._verdict = self._failure("hang", *seen, *stacks)
        self._terminate()

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._alarms = {self._kill: time.monotonic() + self._patience.end_seconds}

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._alarms = {self._give_up: time.monotonic() + self._patience.kill_seconds}

    def _give_up(self) -> None:
        self._unkillable = True

    def _signal(self, number: signal.Signals) -> None:
        self._stopped_at = self._stopped_at or time.time()
        for rank in self._alive():
            signal_group(rank.process, number)
            if self._is_stopped:  # they are to take it
                signal_group(rank.process, signal.SIGCONT)

    def _alive(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.ended_at is None]

    def _stdout(self) -> int:
        output = self.ranks[0].process.stdout
        assert output is not None, "rank 0 is started with a pipe"
        return output.fileno()

    def _read_output(self) -> None:
        chunk = os.read(self._stdout(), READ_BYTES)
        if chunk:
            self._stream.feed(chunk)
        else:
            self._selector.unregister(self._stdout())

    def _drain(self) -> None:
        """What the pipe still holds; every writer is gone, or given up, so there is an end to it."""
        output = self._stdout()
        os.set_blocking(output, False)
        with suppress(BlockingIOError):
            while chunk := os.read(output, READ_BYTES):
                self._stream.feed(chunk)
        self._stream.close()

    def _why(self) -> Failure:
        """The classifier's word, files that were not read, and ranks that could not even be killed."""
        before, after = self._oom_kills_before, oom_kills()
        kills = after._replace(kills=after.kills - before.kills) if before and after else None
        reported = [read_reports(self._folder / "events" / f"rank-{rank.index}.jsonl") for rank in self.ranks]
        ends = []
        for rank, told in zip(self.ranks, reported, strict=True):
            by_itself = rank.ended_at is not None and (self._stopped_at is None or rank.ended_at <= self._stopped_at)
            ended_at, log = rank.ended_at if by_itself else None, log_tail(self._logs[rank.index])
            ends.append(RankEnd(rank.index, rank.process.returncode, ended_at, told.started, told.reports, log))
        whole = RunEnd(tuple(ends), self._verdict, False, self._stopped_at, kills, self._phase, self._iteration)
        failure = classify(whole)
        unread = [f"{each.unread}: it was not read" for each in reported if each.unread is not None]
        left = [f"rank {rank.index} (process {rank.process.pid}) did not end after SIGKILL" for rank in self._alive()]
        return failure.model_copy(update={"evidence": (*failure.evidence, *unread, *left)})
