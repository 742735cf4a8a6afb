"""Inputs without end for every parser: ``python -m tests.fuzz.run [--inputs N] [--seed N] [--first N] [TARGET ...]``.

Each input follows from the target's name, the seed and its number alone, so that any one is made again by itself. What
is wrong with a parser is a traceback (anything but its declared errors), an input that takes longer than the limit, or
memory beyond the limit; each is written to ``--findings``, and belongs into ``tests/fuzz/corpus`` once it is mended.
"""

import argparse
import hashlib
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from suite.spec.base import UsageError

CORPUS = Path(__file__).parent / "corpus"
#: One input's limits: seconds, and how much the process may grow over a whole target.
MOST_SECONDS, MOST_BYTES = 5.0, 1 << 30
#: of an error that is shown to somebody
MOST_MESSAGE = 20_000


@dataclass(frozen=True)
class Target:
    """A parser: what makes inputs for it, what reads one, and the errors that it declares."""

    name: str
    make: Callable[[Random], bytes]
    read: Callable[[bytes], object]
    errors: tuple[type[BaseException], ...] = (UsageError,)


class TooLong(BaseException):
    """No parser catches it."""


@dataclass
class Result:
    """What came of one target."""

    name: str
    inputs: int
    refused: int
    findings: list[str]
    seconds: float
    slowest_seconds: float
    grown_bytes: int

    def line(self) -> str:
        return (
            f"{self.name:<14} {self.inputs:>8,} inputs  {self.refused:>8,} refused  {len(self.findings):>3} findings  "
            f"{self.seconds:>7.1f} s  slowest {1000 * self.slowest_seconds:>7.1f} ms  +{self.grown_bytes >> 20} MiB"
        )


def random_of(target: str, seed: int, number: int) -> Random:
    """The generator of one input."""
    return Random(f"{target}/{seed}/{number}")


def try_one(target: Target, data: bytes) -> tuple[bool, str | None]:
    """Whether the parser refused it; and what is wrong, in a few lines, where it neither took nor refused it."""
    try:
        with time_limit():
            target.read(data)
    except target.errors as error:
        message = str(error)
        return True, None if len(message) < MOST_MESSAGE else f"a message of {len(message)} characters: {message[:200]}"
    except TooLong:
        return False, f"longer than {MOST_SECONDS:g} s"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
        return False, "".join(traceback.format_exception(error)[-3:])
    return False, None


@contextmanager
def time_limit() -> Iterator[None]:
    """Raises TooLong in the middle of what takes longer than the limit, in processor time of this process."""

    def end(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run(target: Target, inputs: int, seed: int, first: int, seconds: float, findings: Path | None) -> Result:
    """Try so many inputs, or as many as ``seconds`` allow."""
    began, result = time.monotonic(), Result(target.name, 0, 0, [], 0.0, 0.0, 0)
    before = 0
    for number in range(first, first + inputs):
        if time.monotonic() - began > seconds:
            break
        data = target.make(random_of(target.name, seed, number))
        start = time.process_time()
        refused, wrong = try_one(target, data)
        result.refused += refused
        result.slowest_seconds = max(result.slowest_seconds, time.process_time() - start)
        result.inputs += 1
        if number == first + min(200, inputs - 1):
            before = peak_bytes()  # what imports and caches take comes first
        if wrong is not None:
            result.findings.append(f"input {number}: {wrong}")
            if findings is not None:
                folder = findings / target.name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
    result.seconds = time.monotonic() - began
    result.grown_bytes = max(0, peak_bytes() - before)
    if result.grown_bytes > MOST_BYTES:
        result.findings.append(f"the process grew by {result.grown_bytes} bytes")
    return result


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 without a finding, 1 with one."""
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], default=[], metavar="TARGET")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each target, at most")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args(arguments)
    # beyond this an input that asks for the whole memory gets a MemoryError, which is a finding
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    failed = False
    for name in options.targets or TARGETS:
        result = run(TARGETS[name], options.inputs, options.seed, options.first, options.seconds, options.findings)
        print(result.line(), flush=True)
        for finding in result.findings[:20]:
            print(f"    {ascii(finding)[:1500]}", file=sys.stderr)
        failed = failed or bool(result.findings)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
