"""Faults of runs in containers of a real Docker, whose image has the worker by script."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psutil

from suite.launch.docker.session import RUN_LABEL
from tests.container_runtime import DATA, Runtime, made_base_image, require_runtime, started_runtime
from tests.containers import WORKER, made_scripted_image, scripted_suite
from tests.faults.judging import brought_back, check_output, whole_again
from tests.faults.scene import Scene
from tests.faults.signals import signalled, stopped
from tests.faults.tries import Fault, Missed, Verdict, Wrong

ITERATIONS = 30
EVENTS = 4 + 11 * ITERATIONS
START_SECONDS = 3.0
SILENCE = ("--silence", "20s")
SCRIPT = {"seconds": 0.04, "sleep": True, "measured": True}
RUN = ("--backend", "deepspeed", "--device", "cpu", "--size", "1M", "--workload", "cpu", "--ranks", "2")
MEASURE = ("--repeats", "1", "--warmup", "1", "--iterations", str(ITERATIONS - 1), "--oversubscribe", *SILENCE)
#: of each rank; and as many iterations as it takes to fill a container's memory
MEMORY_ITERATIONS = 5 * ITERATIONS
MEMORY = ("--memory", "256m", "--iterations", str(MEMORY_ITERATIONS - 1))
WORK = "stand-in worker, 2 ranks"


@dataclass
class Site:
    """A runtime of the harness's own. ``faults`` may end and start it."""

    runtime: Runtime
    worker: str = WORKER
    #: what all containers of runs carry
    label: str = RUN_LABEL

    def left(self) -> list[str]:
        """Containers and volumes of runs."""
        by_run = ("--filter", f"label={self.label}", "--format")
        containers = self.runtime.docker("ps", "--all", *by_run, "{{.Names}}").stdout.split()
        return containers + self.runtime.docker("volume", "ls", *by_run, "{{.Name}}").stdout.split()

    def left_at_end(self) -> list[str]:
        """As ``left``, also where a fault has ended the runtime."""
        self.start_again()
        return self.left()

    def start_again(self) -> None:
        if self.runtime.process is None or self.runtime.process.poll() is not None:
            self.runtime.process = None
            self.runtime.start()

    def restore(self) -> None:
        self.start_again()
        for name in self.left():
            self.runtime.docker("rm", "--force", "--volumes", name)

    def command(self, scene: Scene, *options: str) -> list[str]:
        return scripted_suite("run", *RUN, *MEASURE, "--runs", str(scene.runs), *options, script=SCRIPT)

    def container(self) -> str:
        """Raises Missed where there is none."""
        names = [name for name in self.left() if name]
        if not names:
            raise Missed("there is no container")
        return names[0]

    def rank(self, number: int) -> psutil.Process:
        """A rank's process as the host sees it. Raises Missed."""
        top = self.runtime.docker("inspect", "--format", "{{.State.Pid}}", self.container()).stdout.strip()
        with suppress(psutil.NoSuchProcess, ValueError):
            for process in psutil.Process(int(top)).children(recursive=True):
                if process.environ().get("RANK") == str(number):
                    return process
        raise Missed("the rank is not there any more")


@contextmanager
def started(data: Path = DATA / "data") -> Iterator[Site]:
    """``data``: of this runtime alone. Raises what keeps a runtime from being started here."""
    require_runtime()
    with ExitStack() as ending:
        runtime = ending.enter_context(started_runtime(data=data, daemon={"live-restore": True}))
        made_scripted_image(runtime, made_base_image(runtime))
        yield Site(runtime)


def goes_on(site: Site, scene: Scene, *options: str, iterations: int = ITERATIONS) -> None:
    if site.runtime.process is None or not site.runtime.answers():
        site.restore()
    whole_again(scene, site.command(scene, *options), iterations=iterations)


def driver_signal(number: signal.Signals, site: Site, scene: Scene, random: Random) -> Verdict:
    command, again = site.command(scene), partial(goes_on, site, scene)
    return signalled(number, scene, random, command, again, EVENTS, START_SECONDS, site.left)


def after(
    site: Site,
    scene: Scene,
    moment: str,
    before: int,
    code: int,
    kinds: tuple[str, ...],
    words: str = "",
    options: tuple[str, ...] = (),
    iterations: int = ITERATIONS,
) -> Verdict:
    again = partial(goes_on, site, scene, *options, iterations=iterations)
    return brought_back(scene, moment, before, code, kinds, again, iterations, words)


def rank_signal(number: signal.Signals, kinds: tuple[str, ...], site: Site, scene: Scene, random: Random) -> Verdict:
    driver = scene.start(site.command(scene))
    moment = scene.wait_for_moment(random, driver, EVENTS)
    rank = random.randrange(2)
    victim, before = site.rank(rank), scene.finished()
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(number)
    return after(site, scene, f"{moment}, rank {rank}", before, scene.ended(driver), kinds)


def container_signal(number: str, kinds: tuple[str, ...], site: Site, scene: Scene, random: Random) -> Verdict:
    driver = scene.start(site.command(scene))
    moment = scene.wait_for_moment(random, driver, EVENTS)
    before = scene.finished()
    site.runtime.docker("kill", "--signal", number, site.container())
    return after(site, scene, moment, before, scene.ended(driver), kinds)


def container_memory(site: Site, scene: Scene, random: Random) -> Verdict:
    """The container's limit on memory is met, by another of its processes, and the kernel takes a rank for it."""
    driver = scene.start(site.command(scene, *MEMORY))
    moment = scene.wait_for_moment(random, driver, EVENTS)
    rank = random.randrange(2)
    name, victim, before = site.container(), site.rank(rank), scene.finished()
    with suppress(OSError):
        Path(f"/proc/{victim.pid}/oom_score_adj").write_text("1000")
    site.runtime.docker("exec", name, "python3", "-c", "held = [b'x' * (1 << 24) for _ in range(1 << 10)]")
    where = f"{moment}, rank {rank}"
    code = scene.ended(driver)
    return after(site, scene, where, before, code, ("oom_host",), "emory", MEMORY, MEMORY_ITERATIONS)


def container_paused(site: Site, scene: Scene, random: Random) -> Verdict:
    driver = scene.start(site.command(scene))
    moment = scene.wait_for_moment(random, driver, EVENTS // 2)
    name, seconds = site.container(), random.uniform(0.2, 4)
    site.runtime.docker("pause", name)
    time.sleep(seconds)
    site.runtime.docker("unpause", name)
    code = scene.ended(driver)
    if code != 0:
        raise Wrong(f"{moment}: exit code {code} after {seconds:.1f} s: {scene.output()[-400:]}")
    return Verdict(f"{moment}: went on after {seconds:.1f} s")


def runtime_away(how: str, site: Site, scene: Scene, random: Random) -> Verdict:
    """dockerd and its containerd are `killed`, or `paused` as on a machine that swaps, or dockerd is `stopped` as by an
    administrator; back within seconds, it keeps its containers."""
    driver = scene.start(site.command(scene))
    moment = scene.wait_for_any_moment(random, driver, EVENTS, START_SECONDS)
    before, seconds = scene.finished(), random.uniform(0.2, 15 if how == "paused" else 3)
    dockerd = site.runtime.process
    assert dockerd is not None
    both = (dockerd.pid, *_containerd(site.runtime))
    if how == "stopped":
        site.runtime.stop()
    else:
        _signal(both, signal.SIGSTOP if how == "paused" else signal.SIGKILL)
    try:
        time.sleep(seconds)
    finally:
        if how == "paused":
            _signal(both, signal.SIGCONT)
        elif how == "killed":
            dockerd.wait()
    site.start_again()
    code = scene.ended(driver)
    moment = f"{moment}, away for {seconds:.1f} s"
    if scene.record() is None and code == 2:
        check_output(scene)
        goes_on(site, scene)
        return Verdict(f"{moment}: no run was started", 0, "the same command")
    return after(site, scene, moment, before, code, ("ok", "rank_lost", "interrupted"))


def driver_stopped(site: Site, scene: Scene, random: Random) -> Verdict:
    return stopped(scene, random, site.command(scene), EVENTS, START_SECONDS, ITERATIONS)


def flood(site: Site, scene: Scene, random: Random) -> Verdict:
    """A rank floods its output in the middle of its work."""
    at = {"iteration": random.randrange(ITERATIONS), "rank": random.randrange(2), "do": "flood"}
    command = scripted_suite(
        "run", *RUN, *MEASURE, "--runs", str(scene.runs), script={**SCRIPT, "seconds": 0.01, "at": at}
    )
    code = scene.run(command)
    if code != 0:
        raise Wrong(f"{json.dumps(at)}: exit code {code}: {scene.output()[-400:]}")
    scene.check_bundles()
    return Verdict(f"iteration {at['iteration']}, rank {at['rank']}")


def _containerd(runtime: Runtime) -> list[int]:
    """Process id of the containerd that dockerd has started, if it has told it."""
    with suppress(OSError, ValueError):
        return [int((runtime.folder / "exec" / "containerd" / "containerd.pid").read_text())]
    return []


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


INTERRUPTED = "what was measured is kept, the run is done again by the same command"
LOST = "the run fails and says why, its container is removed, --retry-failed does it again"
UNMOVED = "the run ends well and whole"
KEPT = "the run goes on, or is lost, told and done again"
_MAKERS = (
    *(
        (f"{number.name} of the driver", partial(driver_signal, number), INTERRUPTED)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    ),
    ("SIGSTOP of the driver", driver_stopped, UNMOVED),
    ("SIGKILL of a rank", partial(rank_signal, signal.SIGKILL, ("rank_lost",)), LOST),
    ("SIGTERM of a rank", partial(rank_signal, signal.SIGTERM, ("rank_lost",)), LOST),
    ("SIGINT of a rank", partial(rank_signal, signal.SIGINT, ("rank_lost", "interrupted")), LOST),
    ("SIGSTOP of a rank", partial(rank_signal, signal.SIGSTOP, ("hang",)), LOST),
    ("SIGKILL of the container", partial(container_signal, "KILL", ("rank_lost",)), LOST),
    ("SIGTERM of the container", partial(container_signal, "TERM", ("rank_lost", "interrupted")), LOST),
    ("SIGINT of the container", partial(container_signal, "INT", ("rank_lost", "interrupted")), LOST),
    ("memory of the container", container_memory, LOST),
    ("container paused", container_paused, UNMOVED),
    ("SIGKILL of dockerd and containerd", partial(runtime_away, "killed"), KEPT),
    ("SIGSTOP of dockerd and containerd", partial(runtime_away, "paused"), KEPT),
    ("dockerd restarted", partial(runtime_away, "stopped"), KEPT),
    ("flood on a rank's output", flood, UNMOVED),
)


def faults(site: Site | None) -> tuple[Fault, ...]:
    """Of a runtime; of none, to be listed. Containers take their time, so that a fifth of the tries are asked for."""
    return tuple(Fault("docker", name, WORK, partial(do, site), right, True) for name, do, right in _MAKERS)  # type: ignore[arg-type]


FAULTS = faults(None)
