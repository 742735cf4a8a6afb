"""The faults of runs that the local launcher starts: two real DeepSpeed ranks on the CPU, or a worker by script."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.faults.judging import Act, series
from tests.faults.signals import driver_signal, driver_stopped, rank_signal, slow_rank
from tests.faults.surroundings import (
    address_space,
    clock_step,
    eight_drivers,
    full_disk,
    memory_group,
    network_cut,
    network_slow,
    on_output,
    read_only_disk,
    torn_events,
)
from tests.faults.tries import Fault

REAL = "DeepSpeed, 1M, 2 ranks, forked"
SCRIPTED = "stand-in worker, 2 ranks"
INTERRUPTED = "what was measured is kept, the run is done again by the same command"
LOST = "the run fails and names the rank, the others end, --retry-failed does it again"
UNMOVED = "the run ends well and whole"
ROOM = "it is told, and the same command goes on once there is room"
WRITABLE = "it is told, and the run is done again once it can be written"
CLOCK = "the run ends well, its seconds are those that passed"
HALF_A_LINE = b'::suite:: {"kind": "phase", "ra'
FOREIGN = b'\xff\x00\x1b[2J\n::suite:: {"kind": "iteration", "iteration": 1e999}\n::suite:: [[[[\n'

SERIES = 5


def _real(name: str, do: Callable[..., Any], right: str, series: int = 0) -> Fault:
    """Of ranks that import their stack; they take long."""
    return Fault("local", name, REAL, do, right, True, series)


def _series(name: str, act: Act, right: str) -> Fault:
    return _real(name, partial(series, act), right, SERIES)


def _driver(number: signal.Signals) -> Fault:
    return _real(f"{number.name} of the driver", partial(driver_signal, number), INTERRUPTED)


def _rank(number: signal.Signals, kinds: tuple[str, ...], words: str) -> Fault:
    return _series(f"{number.name} of a rank", rank_signal(number, kinds, words), LOST)


FAULTS = (
    *map(_driver, (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    _real("SIGSTOP of the driver", driver_stopped, UNMOVED),
    _rank(signal.SIGKILL, ("rank_lost",), "rank [01] .*SIGKILL"),
    _rank(signal.SIGTERM, ("rank_lost",), "rank [01] .*SIGTERM"),
    _rank(signal.SIGINT, ("interrupted", "rank_lost"), "rank [01].*(KeyboardInterrupt|SIGINT)"),
    _rank(signal.SIGSTOP, ("hang",), "no event from rank 0|Timed out waiting"),
    _series("slow rank", slow_rank, UNMOVED),
    _series("host memory: no address space", address_space, LOST),
    _series("host memory: killed by the kernel", memory_group, LOST),
    _real("disk full", full_disk, ROOM),
    _real("disk read-only", read_only_disk, WRITABLE),
    _real("clock steps", clock_step, CLOCK),
    Fault("local", "eight drivers, three killed", SCRIPTED, eight_drivers, "each run is made once"),
    _series("flood on a rank's output", on_output(b"", 800), UNMOVED),
    _series("half a line on a rank's output", on_output(HALF_A_LINE, 1), UNMOVED),
    _series("foreign bytes on a rank's output", on_output(FOREIGN, 20), UNMOVED),
    Fault("local", "foreign bytes among a rank's events", SCRIPTED, partial(torn_events, "garbage"), LOST),
    Fault("local", "half an event, and SIGKILL", SCRIPTED, partial(torn_events, "torn"), LOST),
    _real("network cut", network_cut, LOST, SERIES),
    _real("network slow", network_slow, UNMOVED, SERIES),
)
