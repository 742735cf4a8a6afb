"""A trainer that times itself: its program, the steps that it logs, and the clock by which all ranks tell them.

``StepSink`` writes in the trainer's process; everything else is of the run's ranks.
"""

import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import IO, Any, Callable, Dict, Iterator, Mapping, Optional, Sequence

from suite.worker.asked import expected_counts
from suite.worker.phases import check_phase
from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import PhaseClock
from suite.worker.trainers.guardian import STARTED
from suite.worker.trainers.led import LeadingClock, led
from suite.worker.trainers.scratch import Guarded

#: The file of the step log, for the process that the leading rank starts.
LOG_VARIABLE = "SUITE_STEP_LOG"
#: Of events whose seconds and counts are from the trainer's own log.
SOURCE = "trainer"
#: The counts of an iteration's event. Without the first three there is no rate.
COUNTS = (
    "samples",
    "prompt_tokens",
    "response_tokens",
    "padded_tokens",
    "trained_tokens",
    "optimizer_steps",
    "trainable_parameters",
    "total_parameters",
)
_NEEDED = COUNTS[:3]
#: Means of many samples are logged as floats, in some trainers of 32 bits.
_ROUNDING = 1e-5
_CHUNK = 1 << 16
_LAST_BYTES = 400
Told = Dict[str, Optional[int]]


@dataclass(frozen=True)
class LoggedStep:
    """One step as the trainer told it: its number from 1, and values by name, null where one was not finite."""

    number: int
    values: Mapping[str, Optional[float]]


class StepSink:
    """Appends a line to the step log for each step that is complete."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._step: Optional[int] = None
        self._values: Dict[str, Optional[float]] = {}

    def log(self, values: Mapping[str, Any], step: int, prefix: str, finished: bool) -> None:
        """What the trainer logs of ``step``, of which numbers are kept as ``prefix/name``.

        ``finished``: nothing more of that step follows.
        """
        if step != self._step:
            self._step, self._values = step, {}
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                self._values["{}/{}".format(prefix, name)] = number if math.isfinite(number) else None
        if finished:
            line = json.dumps({"step": step, "values": self._values}, allow_nan=False)
            os.write(self._descriptor, line.encode() + b"\n")


def _number(value: Any) -> Any:
    """An int or a float, also out of a scalar of numpy or torch; None for anything else."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        if getattr(value, "shape", None) != () or not hasattr(value, "item"):
            return None
        value = value.item()
    return value if isinstance(value, (int, float)) else None


def read_steps(path: str) -> Iterator[Optional[LoggedStep]]:
    """The steps of a log that grows, each once: None where no further one is complete yet.

    Raises ConfigError for a step out of order.
    """
    while not os.path.exists(path):
        yield None
    with open(path, "rb") as file:
        number, text = 1, b""
        while True:
            text += file.readline()
            if not text.endswith(b"\n"):
                yield None
                continue
            line, text = json.loads(text.decode("utf-8")), b""
            if line["step"] != number:
                raise ConfigError("the step log is of step {} where {} follows".format(line["step"], number))
            yield LoggedStep(number, line["values"])
            number += 1


def whole_number(*factors: Optional[float]) -> Optional[int]:
    """The product of numbers and means, which is a count; None where one is not told.

    Raises ConfigError for what is no whole number.
    """
    told = [factor for factor in factors if factor is not None]
    if len(told) < len(factors):
        return None
    number = math.prod(told)
    nearest = round(number)
    if abs(number - nearest) > _ROUNDING * max(1.0, abs(number)):
        raise ConfigError("{!r} is not a whole number of tokens or samples".format(number))
    return nearest


def check_told(told: Told, manifest: Dict[str, Any], step: LoggedStep) -> Told:
    """Every count by name, null what is not told; each that is told is the manifest's.

    Raises ConfigError, with every number, where it is not, and where samples or tokens are not told at all.
    """
    counts: Told = {name: told.get(name) for name in COUNTS}
    missing = [name for name in _NEEDED if counts[name] is None]
    if missing:
        raise ConfigError("step {} of the log tells no {}".format(step.number, ", ".join(missing)))
    asked: Mapping[str, int] = expected_counts(manifest["workload"], manifest["work"])
    wrong = [
        "{} {} wanted, {} logged".format(name, asked[name], counts[name])
        for name in COUNTS
        if name != "padded_tokens" and name in asked and counts[name] not in (None, asked[name])
    ]
    if wrong:
        raise ConfigError("step {} of the log was not the manifest's work: {}".format(step.number, "; ".join(wrong)))
    return counts


class ToldClock(PhaseClock):
    """The ranks of one run do each of these together. No phase is opened or closed: the log tells of whole iterations,
    and so does the memory that was sampled meanwhile. ``refresh`` looks again which processes the trainer has."""

    refresh: Callable[[], None] = staticmethod(lambda: None)

    def attend(self, iteration: int) -> None:
        """From here on the trainer is at work on this iteration, until ``tell``."""
        self.meet()
        self._noise.open_window()
        self._memory.reset()
        if self._sampler is not None:
            self._sampler.open_window()
        self._progress.iteration, self._progress.phase = iteration, "other"

    def beat(self) -> None:
        """The trainer has shown that it is at work."""
        self.meet()
        PhaseClock.beat(self)

    def tell(
        self,
        seconds: float,
        phases: Dict[str, float],
        counts: Told,
        stats: Dict[str, Optional[float]],
        **optional: Any,
    ) -> None:
        """The iteration is over. Null counts are what the log does not tell."""
        self.meet()
        here: Dict[str, Any] = {"iteration": self._progress.iteration}
        for name, taken in phases.items():
            check_phase(name)
            self._log.emit("phase", phase=name, seconds=taken, wait_seconds=0.0, source=SOURCE, **here)
        self.refresh()
        self._log.emit("memory", phase="other", **here, **self._memory.peaks())
        if self._sampler is not None:
            optional["device"] = self._sampler.close_window()
        optional["noise"] = self._noise.close_window()
        self._log.emit("iteration", seconds=seconds, counts=counts, stats=stats, source=SOURCE, **here, **optional)
        self._log.sync()
        self._progress.completed_iterations += 1


class LeadingToldClock(LeadingClock, ToldClock):
    """Rank 0's: what it does, all ranks do."""

    attend, beat, tell = map(led, ("attend", "beat", "tell"))


class Child:
    """The trainer's program with all the processes that it starts, below a guardian, which ends them with the rank.

    What they print goes to this rank's standard error, and shows that they work. ``pid`` is the guardian's. ``folder``
    is removed at the end.
    """

    def __init__(self, argv: Sequence[str], environment: Dict[str, str], folder: str) -> None:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._guardian = Guarded(folder, argv, env=environment, **pipes)
        self.pid, process = self._guardian.pid, self._guardian.process
        self._signs = self._seen = 0
        self._last = b""
        self._ended_well = False
        assert process.stdout is not None and process.stderr is not None, "both are pipes"
        for work, pipe in ((self._listen, process.stdout), (self._copy, process.stderr)):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()

    def has_shown_life(self) -> bool:
        """Whether anything was printed since this was last asked."""
        before, self._seen = self._seen, self._signs
        return self._seen != before

    def exit_code(self) -> Optional[int]:
        """Of the program; None while it runs."""
        return 0 if self._ended_well else self._guardian.process.poll()

    def last_line(self) -> str:
        """What it printed last; empty where it printed nothing."""
        lines = [line.strip() for line in self._last.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End whatever is left of it."""
        self._guardian.close()

    def _listen(self, pipe: IO[bytes]) -> None:
        """The guardian says so when its command has ended well, and ends itself where it has not."""
        self._ended_well = pipe.readline() == STARTED

    def _copy(self, pipe: IO[bytes]) -> None:
        while True:
            data = os.read(pipe.fileno(), _CHUNK)
            if not data:
                return
            self._signs += 1
            self._last = (self._last + data)[-_LAST_BYTES:]
            sys.stderr.write(data.decode("utf-8", "replace"))
            sys.stderr.flush()
