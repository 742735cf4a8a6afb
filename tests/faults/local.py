"""The faults of runs that the local launcher starts: two real DeepSpeed ranks on the CPU, or a worker by script."""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.faults import surroundings, turns
from tests.faults.sites import Aim, driver_signal, driver_stopped, sent, struck
from tests.faults.surroundings import ITERATIONS, Host
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


def _fault(name: str, do: Callable[..., Any], right: str, work: str = REAL) -> Fault:
    """Ranks that import their stack take long."""
    return Fault("local", name, work, partial(do, Host()), right, work == REAL)


def _struck(name: str, aim: Aim, right: str, kinds: tuple[str, ...] = ("ok",), words: str = "") -> Fault:
    return _fault(name, partial(struck, aim, kinds, words=words, iterations=ITERATIONS), right)


def _driver(number: signal.Signals) -> Fault:
    return _fault(f"{number.name} of the driver", partial(driver_signal, number), INTERRUPTED)


def _rank(number: signal.Signals, kinds: tuple[str, ...], words: str) -> Fault:
    return _struck(f"{number.name} of a rank", sent(number, Host.rank), LOST, kinds, words)


FAULTS = (
    *map(_driver, (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    _fault("SIGSTOP of the driver", driver_stopped, UNMOVED),
    _rank(signal.SIGKILL, ("rank_lost",), "rank [01] .*SIGKILL"),
    _rank(signal.SIGTERM, ("rank_lost",), "rank [01] .*SIGTERM"),
    _rank(signal.SIGINT, ("interrupted", "rank_lost"), "rank [01].*(KeyboardInterrupt|SIGINT)"),
    _rank(signal.SIGSTOP, ("hang",), "no event from rank 0|Timed out waiting"),
    _struck("slow rank", surroundings.slow_rank, UNMOVED),
    _struck("host memory: no address space", surroundings.address_space, LOST, ("oom_host",), "emory|oom"),
    _struck("host memory: killed by the kernel", surroundings.memory_group, LOST, ("oom_host",), "out-of-memory|emory"),
    _fault("disk full", surroundings.full_disk, ROOM),
    _fault("disk read-only", surroundings.read_only_disk, WRITABLE),
    _fault("clock steps", surroundings.clock_step, CLOCK),
    _fault("eight drivers, three killed", surroundings.eight_drivers, "each run is made once", SCRIPTED),
    _fault("flood on a rank's output", partial(surroundings.on_output, b"", 800), UNMOVED),
    _fault("half a line on a rank's output", partial(surroundings.on_output, HALF_A_LINE, 1), UNMOVED),
    _fault("foreign bytes on a rank's output", partial(surroundings.on_output, FOREIGN, 20), UNMOVED),
    _fault("foreign bytes among a rank's events", partial(surroundings.torn_events, "garbage"), LOST, SCRIPTED),
    _fault("half an event, and SIGKILL", partial(surroundings.torn_events, "torn"), LOST, SCRIPTED),
    _fault("network cut", surroundings.network_cut, LOST),
    _fault("network slow", surroundings.network_slow, UNMOVED),
    *turns.FAULTS,
)
