"""A trainer that times itself: its program, the steps that it logs, and the clock by which all ranks tell them."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

from suite.worker.asked import expected_counts
from suite.worker.rank import ConfigError
from suite.worker.recorder import Recorder
from suite.worker.trainers.clock import PhaseClock
from suite.worker.trainers.led import LeadingClock, led
from suite.worker.trainers.scratch import Guarded

#: Of events whose seconds and counts are from the trainer's own log.
SOURCE = "trainer"
#: Counts of an iteration's event that no log has.
_UNKNOWN = ("padded_tokens", "optimizer_steps", "trainable_parameters", "total_parameters")
#: Means of many samples are logged as floats of 32 bits.
_ROUNDING = 1e-5
_LAST_BYTES = 400


@dataclass(frozen=True)
class LoggedStep:
    """One step as the trainer told it: its number from 1, and values by name, null where one was not finite."""

    number: int
    values: Mapping[str, Optional[float]]


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


def check_counts(step: LoggedStep, manifest: Dict[str, Any]) -> Dict[str, Optional[int]]:
    """The counts of an iteration's event, null what is not logged. Samples are turns of one each; tokens are means over
    them, and a sum of all that is trained on.

    Raises ConfigError, with every number, unless they are the manifest's.
    """
    values = {name: math.nan if value is None else value for name, value in step.values.items()}
    samples = values.get("train/total_turns", math.nan)
    logged = {
        "samples": samples,
        "prompt_tokens": samples * values.get("train/mean_prompt_length", math.nan),
        "response_tokens": samples * values.get("train/mean_gen_tokens_per_sample", math.nan),
        "trained_tokens": values.get("train/total_num_tokens", math.nan),
    }
    asked = expected_counts(manifest["workload"], manifest["work"])
    wrong = [
        "{} {} wanted, {:.12g} logged".format(name, asked[name], number)
        for name, number in logged.items()
        if not math.isclose(number, asked[name], rel_tol=_ROUNDING)
    ]
    if wrong:
        raise ConfigError("step {} of the log was not the manifest's work: {}".format(step.number, "; ".join(wrong)))
    return {**dict.fromkeys(_UNKNOWN), **{name: asked[name] for name in logged}}


class ToldClock(PhaseClock):
    """The ranks of one run do each of these together. No phase is opened or closed: the log tells of whole iterations,
    and so does the memory that was sampled meanwhile."""

    def begin(self, iteration: int) -> None:
        """From here on the trainer is at work on this iteration, until ``tell``."""
        PhaseClock.begin(self, iteration)
        self._memory.reset()

    def beat(self) -> None:
        self.meet()
        PhaseClock.beat(self)

    def tell(self, seconds: float, phases: Dict[str, float], counts: Any, stats: Any, **optional: Any) -> None:
        """The iteration is over. Null counts are what the log does not tell."""
        Recorder.stop(self)
        self._seconds = seconds
        here: Dict[str, Any] = {"iteration": self._progress.iteration}
        for name, taken in phases.items():
            self._log.emit("phase", phase=name, seconds=taken, wait_seconds=0.0, source=SOURCE, **here)
        self._memory.refresh()
        self._log.emit("memory", phase="other", **here, **self._memory.peaks())
        Recorder.finish(self, counts, stats, source=SOURCE, **optional)


class LeadingToldClock(LeadingClock, ToldClock):
    """Rank 0's: what it does, all ranks do."""

    beat, tell = map(led, ("beat", "tell"))


class Child:
    """The trainer's program with all the processes that it starts, below a guardian, which ends them with the rank and
    removes ``folder``. ``pid`` is the guardian's."""

    def __init__(self, argv: Sequence[str], environment: Dict[str, str], folder: str) -> None:
        path = os.path.join(folder, "output")
        with open(path, "wb") as output:
            guardian = Guarded(folder, argv, env=environment, stdout=subprocess.PIPE, stderr=output)
        self._output = open(path, "rb")  # noqa: SIM115 - open as long as the run
        self.pid, self.close, self._process = guardian.pid, guardian.close, guardian.process
        os.set_blocking(self._process.stdout.fileno(), False)
        self._last = b""
        self._ended_well = False

    def copy_output(self) -> bool:
        """Put what it has printed meanwhile on this rank's standard error; whether that was anything."""
        data = self._output.read()
        self._last = (self._last + data)[-_LAST_BYTES:]
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
        return bool(data)

    def exit_code(self) -> Optional[int]:
        """Of the program; None while it runs. The guardian says so when it has ended well, and ends itself where it has
        not."""
        self._ended_well = self._ended_well or bool(self._process.stdout.read())
        return 0 if self._ended_well else self._process.poll()

    def last_line(self) -> str:
        self.copy_output()
        return self._last.decode("utf-8", "replace").rstrip().rpartition("\n")[2].strip()
