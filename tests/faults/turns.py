"""The faults of rows that take turns: a real rank of DeepSpeed and one of Megatron, started together on this host."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import psutil

from suite.bundle.store import Bundle
from tests.faults.judging import check_output, is_whole, lost_of, told_of, whole_again
from tests.faults.scene import LOOK_SECONDS, Driver, Scene, iterations_of, suite_command, whole_lines
from tests.faults.sites import by_signal, told_to_end
from tests.faults.surroundings import ITERATIONS, MEASURE, SILENCE
from tests.faults.tries import Fault, Missed, Verdict, Wrong

ROWS = ("--backend", "deepspeed", "--backend", "megatron", "--size", "1M", "--workload", "cpu", "--device", "cpu")
#: of rank 0 of both: start, environment, setup, end; of an iteration its turn, five phases, their memory, and itself
_EVENTS = 2 * (4 + 12 * ITERATIONS)
_START_SECONDS = 15.0


def command(scene: Scene, *options: str) -> list[str]:
    how = ("--ranks", "1", "--turns", "iterations", "--repeats", "1", "--start", "fork", *SILENCE)
    return suite_command("run", *ROWS, *MEASURE, *how, "--runs", str(scene.runs), *options)


def strike(number: signal.Signals, waits: bool, kinds: tuple[str, ...], scene: Scene, random: Random) -> Verdict:
    """A signal to a rank that waits, or has its turn: its run fails, and the other goes on."""
    driver = scene.start(command(scene))
    moment = scene.wait_for_moment(random, driver, _EVENTS)
    victim, process = _rank(scene, driver, waits)
    before = _finished(victim)
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        raise Missed("the rank was over") from None
    code = scene.ended(driver)
    check_output(scene)
    found = scene.records()
    failed = [run for run, record in found.items() if record.status != "ok"]
    if not failed and code == 0:
        raise Missed("all its work was done, or it was only stopped while it waited")
    failure = found[victim.id].failure
    is_other_whole = all(is_whole(record, ITERATIONS) for run, record in found.items() if run != victim.id)
    if failed != [victim.id] or failure is None or failure.kind not in kinds or not is_other_whole or code != 1:
        raise Wrong(f"{moment}: exit code {code}, {victim.id} was struck: {told_of(found)}")
    scene.check_bundles()
    whole_again(scene, command(scene, "--retry-failed"), iterations=ITERATIONS, runs=2)
    return Verdict(f"{moment}: {failure.kind}", lost_of(before, found[victim.id]), "--retry-failed")


def end_driver(number: signal.Signals, scene: Scene, random: Random) -> Verdict:
    """What both rows have measured is kept, and they are started together again."""
    driver = scene.start(command(scene))
    moment = scene.wait_for_any_moment(random, driver, _EVENTS, _START_SECONDS)
    before = {bundle.id: _finished(bundle) for bundle in scene.bundles()}
    if driver.poll() is not None:
        raise Missed("the runs were over")
    told_to_end(scene, driver, number, moment)
    found = scene.records()
    if not {record.status for record in found.values()} <= {"interrupted", "ok"}:
        raise Wrong(f"{moment}: {told_of(found)}")
    whole_again(scene, command(scene), iterations=ITERATIONS, runs=2)
    lost = sum(lost_of(count, found.get(run)) for run, count in before.items())
    return Verdict(f"{moment}: {told_of(found)}", lost, "the same command")


def _rank(scene: Scene, driver: Driver, waits: bool) -> tuple[Bundle, psutil.Process]:
    """One that waits for its turn now, or that has it. Raises Missed where none does any more."""
    while driver.poll() is None:
        for bundle in scene.bundles():
            with suppress(psutil.NoSuchProcess, OSError, ValueError, IndexError):
                process = psutil.Process(json.loads(whole_lines(bundle.path / "events" / "rank-0.jsonl")[0])["pid"])
                if (process.status() == psutil.STATUS_STOPPED) == waits:
                    return bundle, process
        time.sleep(LOOK_SECONDS)
    raise Missed("the runs were over")


def _finished(bundle: Bundle) -> int:
    path = bundle.path / "events" / "rank-0.jsonl"
    return iterations_of(path) if path.exists() else 0


def _fault(name: str, do: Callable[..., Verdict], right: str) -> Fault:
    return Fault("local", f"rows in turns: {name}", "DeepSpeed and Megatron, 1M, 1 rank each", do, right, True)


_ALONE = "its run fails and names the rank, the other ends well, --retry-failed does it again"
_BOTH = "what was measured is kept, both are started together again by the same command"
FAULTS = (
    _fault("SIGKILL of a rank that waits", partial(strike, signal.SIGKILL, True, ("rank_lost",)), _ALONE),
    _fault("SIGKILL of a rank in its turn", partial(strike, signal.SIGKILL, False, ("rank_lost",)), _ALONE),
    _fault("SIGSTOP of a rank in its turn", partial(strike, signal.SIGSTOP, False, ("hang",)), _ALONE),
    *(_fault(*each) for each in by_signal("the driver", end_driver, _BOTH, signal.SIGKILL, signal.SIGINT)),
)
