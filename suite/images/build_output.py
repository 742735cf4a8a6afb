"""What a container runtime reports while it builds: steps, their output, the id of the image, or why it stopped."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

LAST_LINES = 15
_STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)", flags=re.DOTALL)
_STAGE = re.compile(r"FROM \S+ AS (\S+)", flags=re.IGNORECASE)
_MADE = re.compile(r"^ ---> ([0-9a-f]{12,})\n?$")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Step:
    """One instruction of the Dockerfile as it begins."""

    number: int
    of: int
    instruction: str

    def __str__(self) -> str:
        return f"[{self.number}/{self.of}] {self.instruction}"


class Ended(NamedTuple):
    """What a build made: its image, and the last image of each stage on the way, by the stage's name."""

    image: str
    stages: dict[str, str]


class BuildFailed(Exception):
    """A build stopped: in which step, and the last lines of its output."""

    def __init__(self, step: Step | None, lines: Iterable[str], log: Path) -> None:
        self.step, self.lines, self.log = step, list(lines), log
        last = self.lines[-1] if self.lines else "no reason given"
        where = f"step {step.number} of {step.of} ({step.instruction[:60]})" if step else "the build"
        super().__init__(f"{where} failed: {last}; all of its output is in {log}")


def read_output(stream: Iterable[dict[str, Any]], log: TextIO, on_step: Callable[[Step], None], path: Path) -> Ended:
    """Follow a build to its end. Raises BuildFailed when it stops before."""
    step: Step | None = None
    recent: deque[str] = deque(maxlen=LAST_LINES)
    identity = stage = None
    stages: dict[str, str] = {}
    for message in stream:
        text = _COLOURS.sub("", str(message.get("stream", "")))
        log.write(text)
        begun = _STEP.match(text)
        if begun:
            step = Step(int(begun[1]), int(begun[2]), " ".join(begun[3].replace("\\\n", " ").split()))
            recent.clear()
            named = _STAGE.fullmatch(step.instruction)
            stage = named[1] if named else stage
            on_step(step)
        elif not text.startswith((" --->", "Removed intermediate")):
            recent.extend(line for line in text.splitlines() if line.strip())
        made = _MADE.match(text)
        if made and stage:
            stages[stage] = made[1]
        if "error" in message:
            log.write(message["error"] + "\n")
            raise BuildFailed(step, _error_lines(message["error"], recent), path)
        identity = (message.get("aux") or {}).get("ID") or identity
    if identity is None:
        raise BuildFailed(step, [*recent, "the container runtime ended the build without an image"], path)
    return Ended(identity, stages)


def _error_lines(error: str, recent: Iterable[str]) -> list[str]:
    """The step's own last lines; the runtime repeats the whole command, of which only the exit code is news."""
    code = re.search(r"returned a non-zero code: (\d+)", error)
    if code is None:
        return [*recent, " ".join(error.split())]
    return list(recent) or [f"exit code {code[1]}"]
