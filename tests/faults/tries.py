"""What a try is, the file in which tries add up, and the numbers that they follow from."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

Resumes = Literal["the same command", "--retry-failed", "no", "not needed"]


class Missed(Exception):
    """The run was over before the fault came: no try at all."""


class Wrong(Exception):
    """What came of a fault is not what has to come of it; the message says what it is."""


class Verdict(NamedTuple):
    """What came of a fault that was borne as it should be."""

    #: in a few words
    said: str
    #: iterations that had ended before it and that the record does not have
    lost: int = 0
    resumes: Resumes = "not needed"


class Fault(NamedTuple):
    """Something that goes wrong, and how it is made and judged."""

    launcher: str
    name: str
    #: what the ranks were
    work: str
    #: Raises Missed and Wrong.
    do: Callable[..., Verdict]
    #: what has to come of it
    right: str
    #: a try takes much longer than seconds, so that a fifth as many are asked for
    is_long: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.launcher, self.name

    @property
    def has_stand_ins(self) -> bool:
        """Whether its ranks tell times that they were given, and not those that went by."""
        return self.work.startswith("stand-in")


@dataclass(frozen=True)
class Try:
    """One fault at one moment. ``left``: what was left behind, by kind, each by its name."""

    launcher: str
    fault: str
    seed: int
    number: int
    verdict: Literal["right", "wrong", "missed"]
    said: str
    lost: int = 0
    left: dict[str, list[str]] = field(default_factory=dict)
    resumes: Resumes = "not needed"
    seconds: float = 0.0
    #: Unix seconds at its end
    when: float = 0.0
    commit: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.launcher, self.fault


def random_of(fault: Fault, seed: int, number: int) -> Random:
    """The generator of one try: the same numbers on every machine, though no machine keeps the same time."""
    return Random(f"{fault.launcher}/{fault.name}/{seed}/{number}")


def read(path: Path) -> list[Try]:
    """The tries of a file; a last line that was cut off is none."""
    tries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            tries.append(Try(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return tries


def append(path: Path, made: Try) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(made)) + "\n")


def following(fault: Fault, count: int, seed: int, tries: Iterable[Try]) -> int | None:
    """Number of the next try that a fault lacks; None where it has as many as are wanted, or misses too often."""
    before = [one for one in tries if one.key == fault.key and one.seed == seed]
    made = sum(one.verdict != "missed" for one in before)
    number = max((one.number for one in before), default=-1) + 1
    most = max(1, count // 5) if fault.is_long else count
    return number if made < most and number < 3 * most + 3 else None
