"""The suite's side of a step log: lines as they come, and the steps that they make. Distrusts every line."""

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple

from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.sink import STEP_LOG_SCHEMA

#: A line of a step holds some hundred numbers.
_LONGEST_LINE = 1 << 20


@dataclass
class LoggedStep:
    """One step as the trainer told it. ``began`` and ``ended``: its clock at the end of the step before, or of the
    set-up, and at its last line; ``values``: by name, null where the trainer logged no finite number."""

    number: int
    began: float
    ended: float = 0.0
    values: Dict[str, Optional[float]] = field(default_factory=dict)


class StepReader:
    """Reads the file as it grows. Half a line is left for later; ``close`` says whether one was left for good."""

    def __init__(self, path: str, trainer: str, versions: Tuple[str, ...]) -> None:
        """``versions``: of the trainer, whose names of timers and counts are known."""
        self._path, self._trainer, self._versions = path, trainer, versions
        self._offset, self._line = 0, 0
        self._rest = b""
        self._step: Optional[LoggedStep] = None
        self._done = 0
        self._clock: Optional[float] = None
        self.version: Optional[str] = None

    def read(self) -> Iterator[LoggedStep]:
        """The steps that were completed since the last call.

        Raises ConfigError for a line that is none, another trainer's or version's log, and steps out of order.
        """
        for line in self._lines():
            kind = line.get("kind")
            if kind == "start":
                self._start(line)
            elif self.version is None:
                raise self._error("comes before its start")
            elif kind == "begin":
                self._clock = self._moment(line)
            elif kind == "step":
                step = self._add(line)
                if step is not None:
                    yield step
            else:
                raise self._error("is of an unknown kind {!r}".format(str(kind)[:40]))

    def close(self) -> None:
        """Nothing more is written. Raises ConfigError where a line or a step was left unfinished."""
        if self._rest:
            raise ConfigError("the step log of {} ends within line {}".format(self._trainer, self._line + 1))
        if self._step is not None:
            raise ConfigError("the step log of {} ends within step {}".format(self._trainer, self._step.number))

    def _lines(self) -> Iterator[Dict[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise self._error("does not end")
        for text in whole:
            self._line += 1
            try:
                line = json.loads(text.decode("utf-8"), parse_constant=_refuse)
            except (ValueError, RecursionError):
                raise self._error("is torn or no JSON") from None
            if type(line) is not dict:
                raise self._error("is no object")
            yield line

    def _start(self, line: Dict[str, Any]) -> None:
        if self.version is not None:
            raise self._error("starts the log again: the trainer was started twice")
        if line.get("schema") != STEP_LOG_SCHEMA or line.get("trainer") != self._trainer:
            raise self._error(
                "is of {!r} in {!r}, not of {}".format(line.get("trainer"), line.get("schema"), self._trainer)
            )
        version = line.get("version")
        if type(version) is not str or version.partition("+")[0] not in self._versions:  # less what a build adds
            raise ConfigError(
                "{} {} logs by other names than those that are known, which are of {}".format(
                    self._trainer, version, ", ".join(self._versions)
                )
            )
        self.version = version

    def _add(self, line: Dict[str, Any]) -> Optional[LoggedStep]:
        number, values, finished = line.get("step"), line.get("values"), line.get("finished")
        if type(number) is not int or type(values) is not dict or type(finished) is not bool:
            raise self._error("is no step")
        clock = self._moment(line)
        if self._clock is None:
            raise self._error("is a step before the loop began")
        if self._step is None:
            if number != self._done + 1:
                raise self._error("is of step {} where {} follows".format(number, self._done + 1))
            self._step = LoggedStep(number, began=self._clock)
        elif number != self._step.number:
            raise self._error("is of step {} within step {}".format(number, self._step.number))
        for name, value in values.items():
            if value is not None and type(value) not in (int, float):
                raise self._error("has {} for {!r}".format(type(value).__name__, name[:40]))
        self._step.values.update(values)
        if not finished:
            return None
        step, self._step = self._step, None
        step.ended = self._clock = clock
        self._done += 1
        return step

    def _moment(self, line: Dict[str, Any]) -> float:
        clock = line.get("clock")
        if type(clock) not in (int, float) or (self._clock is not None and clock < self._clock):
            raise self._error("has no clock, or one that goes back")
        return float(clock)  # type: ignore[arg-type]

    def _error(self, what: str) -> ConfigError:
        return ConfigError(
            "line {} of {}'s step log ({}) {}".format(
                max(1, self._line), self._trainer, os.path.basename(self._path), what
            )
        )


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def read_all(path: str, trainer: str, versions: Tuple[str, ...]) -> List[LoggedStep]:
    """Every step of a log that is complete."""
    reader = StepReader(path, trainer, versions)
    steps = list(reader.read())
    reader.close()
    return steps
