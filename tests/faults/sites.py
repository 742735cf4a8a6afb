"""Runs of a launcher to which something is done in the middle of their work, and what has to come of them."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from random import Random
from threading import Timer
from typing import Any, NamedTuple, Protocol

import psutil

from tests.faults.judging import brought_back, check_ok, check_output, interrupted, whole_again
from tests.faults.scene import Driver, Scene, signal_name
from tests.faults.tries import Fault, Missed, Verdict, Wrong

#: of all launchers but this host, whose ranks follow a script
ITERATIONS = 30


class Begun(NamedTuple):
    """Some moment of a run, and what waits for the command that brings it home and has its exit code."""

    moment: str
    home: Callable[[], int]


class Site(Protocol):
    """A launcher of the harness's own."""

    def begin(self, scene: Scene, random: Random, *options: str) -> Begun:
        """A run in the middle of its work. ``options``: of its command."""

    def finished(self, scene: Scene) -> int:
        """Iterations that all ranks have ended."""

    def again(self, scene: Scene, *options: str, iterations: int) -> None:
        """The same command brings home what is left to do, whole. Raises Wrong."""


class OwnDriver:
    """A site whose driver stays until its run is over."""

    iterations = ITERATIONS
    #: until the first word of a rank
    start_seconds = 3.0

    @property
    def events(self) -> int:
        """Lines of rank 0: start, environment, setup, end; of an iteration five phases, their memory, and itself."""
        return 4 + 11 * self.iterations

    def command(self, scene: Scene, *options: str) -> list[str]:
        raise NotImplementedError

    def begin(self, scene: Scene, random: Random, *options: str) -> Begun:
        driver = scene.start(self.command(scene, *options))
        return Begun(scene.wait_for_moment(random, driver, self.events), partial(self.home, scene, driver))

    def begin_anywhere(self, scene: Scene, random: Random) -> tuple[Driver, str]:
        """As ``begin``, also before its ranks speak and when they have ended."""
        driver = scene.start(self.command(scene))
        return driver, scene.wait_for_any_moment(random, driver, self.events, self.start_seconds)

    def finished(self, scene: Scene) -> int:
        return scene.finished()

    def home(self, scene: Scene, driver: Driver) -> int:
        """Its exit code, once all is over."""
        return scene.ended(driver)

    def again(self, scene: Scene, *options: str, iterations: int = 0) -> None:
        whole_again(scene, self.command(scene, *options), iterations=iterations or self.iterations)

    def left(self) -> list[str]:
        """What a driver that ends by itself takes away."""
        return []


class Act(NamedTuple):
    """What is done, and what is said of it."""

    do: Callable[[], object]
    said: str = ""


#: chooses what is done to a site's run. Raises Missed.
Aim = Callable[[Any, Scene, Random], Act]
#: name, what makes it at a site, and what has to come of it
Maker = tuple[str, Callable[[Any, Scene, Random], Verdict], str]


def faults_of(launcher: str, work: str, makers: Iterable[Maker], site: object) -> tuple[Fault, ...]:
    """Of a site; of none, to be listed. They take their time, so that a fifth of the tries are asked for."""
    return tuple(Fault(launcher, name, work, partial(do, site), right, True) for name, do, right in makers)


def by_signal(name: str, do: Callable[..., Verdict], right: str, *numbers: signal.Signals) -> list[Maker]:
    """One fault for each signal, SIGKILL, SIGTERM and SIGINT unless others are named; ``do`` is given it first."""
    chosen = numbers or (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    return [(f"{number.name} of {name}", partial(do, number), right) for number in chosen]


def of_driver(ended: str, stopped: str) -> list[Maker]:
    """Its signals, and what has to come of those that end it and of the one that stops it."""
    return [*by_signal("the driver", driver_signal, ended), ("SIGSTOP of the driver", driver_stopped, stopped)]


def sent_to(
    name: str,
    find: Callable[[Any, Scene, int], psutil.Process],
    right: str,
    stopped: tuple[str, ...],
    terminated: tuple[str, ...] = ("rank_lost",),
    **how: Any,
) -> list[Maker]:
    """The signals to a process of one of the ranks. ``stopped``, ``terminated``: kinds of failure by these two."""
    kinds = {
        signal.SIGKILL: ("rank_lost",),
        signal.SIGTERM: terminated,
        signal.SIGINT: ("rank_lost", "interrupted"),
        signal.SIGSTOP: stopped,
    }

    def do(number: signal.Signals, site: Site, scene: Scene, random: Random) -> Verdict:
        return struck(sent(number, find), kinds[number], site, scene, random, **how)

    return by_signal(name, do, right, *kinds)


def struck(
    aim: Aim,
    kinds: tuple[str, ...],
    site: Site,
    scene: Scene,
    random: Random,
    *,
    options: tuple[str, ...] = (),
    words: str = "",
    iterations: int = ITERATIONS,
) -> Verdict:
    """See ``brought_back``. ``options``: of the run's command."""
    begun = site.begin(scene, random, *options)
    act = aim(site, scene, random)
    before = site.finished(scene)
    act.do()
    again = partial(site.again, scene, *options, iterations=iterations)
    return brought_back(scene, begun.moment + act.said, before, begun.home(), kinds, again, iterations, words)


def sent(number: signal.Signals, find: Callable[[Any, Scene, int], psutil.Process]) -> Aim:
    """A signal to the process that ``find`` names of one of the two ranks."""

    def aim(site: Site, scene: Scene, random: Random) -> Act:
        rank = random.randrange(2)
        victim = find(site, scene, rank)

        def send() -> None:
            with suppress(psutil.NoSuchProcess):
                victim.send_signal(number)

        return Act(send, f", rank {rank}")

    return aim


class Service(NamedTuple):
    """A program of a cluster that is to run again after a fault."""

    process: subprocess.Popen[bytes] | None
    start: Callable[[], None]

    def start_again(self) -> None:
        """Where it is not there."""
        if self.process is None or self.process.poll() is not None:
            self.start()


def away(number: signal.Signals, most_seconds: float, find: Callable[[Any], Service]) -> Aim:
    """A service is ended and started again, or stopped, in which time whoever needs it may ask already."""

    def aim(site: Site, scene: Scene, random: Random) -> Act:
        process, start = find(site)
        seconds = random.uniform(0, most_seconds)
        assert process is not None

        def go() -> None:
            process.send_signal(number)
            if number == signal.SIGSTOP:
                Timer(seconds, process.send_signal, (signal.SIGCONT,)).start()
                return
            process.wait()
            time.sleep(seconds)
            start()

        return Act(go, f", away for {seconds:.1f} s")

    return aim


def told_to_end(scene: Scene, driver: Driver, number: signal.Signals, moment: str) -> None:
    """A driver ends by a signal that it is sent, unless it was over. Raises Wrong."""
    was_over = driver.poll() is not None
    driver.send_signal(number)
    code = scene.ended(driver)
    if not was_over and code not in (-number, 0) and (number == signal.SIGKILL or code != 130):
        raise Wrong(f"{moment}: the driver ended with {signal_name(code)}: {scene.output()[-300:]}")
    check_output(scene)


def driver_signal(number: signal.Signals, site: OwnDriver, scene: Scene, random: Random) -> Verdict:
    """A driver that can leaves nothing."""
    driver, moment = site.begin_anywhere(scene, random)
    before = scene.finished()
    if driver.poll() is not None:
        raise Missed("the run was over")
    told_to_end(scene, driver, number, moment)
    if number != signal.SIGKILL and (found := site.left()):
        raise Wrong(f"{moment}: the driver left {found}")
    return interrupted(scene, moment, before, partial(site.again, scene))


def driver_stopped(site: OwnDriver, scene: Scene, random: Random) -> Verdict:
    """Stopped for a while, as Ctrl-Z or a debugger would."""
    driver, moment = site.begin_anywhere(scene, random)
    driver.send_signal(signal.SIGSTOP)
    seconds = random.uniform(0.2, 6)
    time.sleep(seconds)
    driver.send_signal(signal.SIGCONT)
    code = scene.ended(driver)
    if code != 0:
        raise Wrong(f"{moment}: exit code {code} after {seconds:.1f} s: {scene.output()[-400:]}")
    check_ok(scene, site.iterations)
    return Verdict(f"{moment}: went on after {seconds:.1f} s")
