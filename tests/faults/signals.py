"""Signals to the driver and the ranks of a local run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from tests.faults.judging import (
    EVENTS,
    ITERATIONS,
    START_SECONDS,
    Act,
    Check,
    check_ok,
    check_output,
    command,
    fails,
    goes_on,
    lost_of,
    told,
    unmoved,
)
from tests.faults.scene import Command, Scene, signal_name
from tests.faults.tries import Missed, Verdict, Wrong

Driver = subprocess.Popen


def driver_signal(number: signal.Signals, scene: Scene, random: Random) -> Verdict:
    return signalled(number, scene, random, command(scene), lambda: goes_on(scene), EVENTS, START_SECONDS)


def signalled(
    number: signal.Signals,
    scene: Scene,
    random: Random,
    command: Command,
    again: Callable[[], object],
    events: int,
    start_seconds: float,
    left: Callable[[], list[str]] = list,
) -> Verdict:
    """A driver by its command, whose rank 0 writes so many events; one that can leaves nothing of ``left``."""
    driver = scene.start(command)
    moment = scene.wait_for_any_moment(random, driver, events, start_seconds)
    before = scene.finished()
    if driver.poll() is not None:
        raise Missed("the run was over")
    driver.send_signal(number)
    code = scene.ended(driver)
    if code not in (-number, 0) and (number == signal.SIGKILL or code != 130):
        raise Wrong(f"{moment}: the driver ended with {signal_name(code)}: {scene.output()[-300:]}")
    check_output(scene)
    if number != signal.SIGKILL and (found := left()):
        raise Wrong(f"{moment}: the driver left {found}")
    return interrupted(scene, moment, before, again)


def interrupted(scene: Scene, moment: str, before: int, again: Callable[[], object]) -> Verdict:
    """A run whose driver was ended is told as interrupted, or was whole already."""
    record = scene.record()
    lost = lost_of(before, record)
    if record is not None and record.status not in ("interrupted", "ok"):
        raise Wrong(f"{moment}: the run is {told(record)}")
    again()
    return Verdict(f"{moment}: {told(record).split(',')[0]}", lost, "the same command")


def driver_stopped(scene: Scene, random: Random) -> Verdict:
    """Stopped for a while, as Ctrl-Z or a debugger would."""
    return stopped(scene, random, command(scene), EVENTS, START_SECONDS, ITERATIONS)


def stopped(
    scene: Scene, random: Random, command: Command, events: int, start_seconds: float, iterations: int
) -> Verdict:
    """As ``driver_stopped``, of a driver by its command, whose rank 0 writes so many events."""
    driver = scene.start(command)
    moment = scene.wait_for_any_moment(random, driver, events, start_seconds)
    driver.send_signal(signal.SIGSTOP)
    seconds = random.uniform(0.2, 6)
    time.sleep(seconds)
    driver.send_signal(signal.SIGCONT)
    code = scene.ended(driver)
    if code != 0:
        raise Wrong(f"{moment}: exit code {code} after {seconds:.1f} s: {scene.output()[-400:]}")
    check_ok(scene, iterations)
    return Verdict(f"{moment}: went on after {seconds:.1f} s")


def rank_signal(number: signal.Signals, kinds: tuple[str, ...], words: str) -> Act:
    def act(scene: Scene, random: Random, driver: Driver) -> Check:
        moment = scene.wait_for_moment(random, driver, EVENTS)
        rank = random.randrange(2)
        before, victim = scene.finished(), scene.ranks()[rank]
        with suppress(ProcessLookupError):
            os.kill(victim, number)
        return fails(f"{moment}, rank {rank}", before, kinds, words)

    return act


def slow_rank(scene: Scene, random: Random, driver: Driver) -> Check:
    """One rank is held up again and again, for up to a fifth of a second."""
    scene.wait_for_moment(random, driver, EVENTS // 2)
    victim, times = scene.ranks()[random.randrange(2)], 0
    with suppress(ProcessLookupError):
        while times < 20:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(random.uniform(0.01, 0.2))
            os.kill(victim, signal.SIGCONT)
            time.sleep(random.uniform(0, 0.1))
            times += 1
    return unmoved(f"held up {times} times")
