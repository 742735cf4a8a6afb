"""Faults of runs in containers of a real Docker, whose image has the worker by script."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psutil

from suite.launch.docker.session import RUN_LABEL
from tests.container_runtime import DATA, Runtime, made_base_image, require_runtime, started_runtime
from tests.containers import WORKER, labelled, made_scripted_image, scripted_suite
from tests.faults.judging import brought_back, check_output
from tests.faults.scene import Scene
from tests.faults.sites import ITERATIONS, Act, Maker, OwnDriver, faults_of, of_driver, sent_to, struck
from tests.faults.tries import Missed, Verdict, Wrong

SILENCE = ("--hang-timeout", "20s")
SCRIPT = {"seconds": 0.04, "sleep": True, "measured": True}
RUN = ("--backend", "deepspeed", "--device", "cpu", "--size", "1M", "--workload", "cpu", "--ranks", "2")
MEASURE = ("--repeats", "1", "--warmup", "1", "--iterations", str(ITERATIONS - 1), "--force", *SILENCE)
#: of each rank; and as many iterations as it takes to fill a container's memory
MEMORY_ITERATIONS = 5 * ITERATIONS
MEMORY = ("--memory", "256m", "--iterations", str(MEMORY_ITERATIONS - 1))
WORK = "stand-in worker, 2 ranks"


@dataclass
class Site(OwnDriver):
    """A runtime of the harness's own. ``FAULTS`` may end and start it."""

    runtime: Runtime
    #: what all containers of runs carry
    label: str = RUN_LABEL

    @property
    def environment(self) -> Mapping[str, str]:
        return {"DOCKER_HOST": self.runtime.host, "SUITE_TEST_WORKER": WORKER}

    @property
    def looks(self) -> Mapping[str, Callable[[], list[str]]]:
        return {"containers": self.left_at_end}

    def left(self) -> list[str]:
        return labelled(self.runtime, self.label)

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

    def again(self, scene: Scene, *options: str, iterations: int = 0) -> None:
        if self.runtime.process is None or not self.runtime.answers():
            self.restore()
        super().again(scene, *options, iterations=iterations)

    def container(self) -> str:
        """Raises Missed where there is none."""
        names = self.left()
        if not names:
            raise Missed("there is no container")
        return names[0]

    def rank(self, scene: Scene, number: int) -> psutil.Process:
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
    with started_runtime(data=data, daemon={"live-restore": True}) as runtime:
        made_scripted_image(runtime, made_base_image(runtime))
        yield Site(runtime)


def killed(name: str, site: Site, scene: Scene, random: Random) -> Act:
    """A signal to the container."""
    return Act(partial(site.runtime.docker, "kill", "--signal", name, site.container()))


def memory_met(site: Site, scene: Scene, random: Random) -> Act:
    """The container's limit on memory is met, by another of its processes, and the kernel takes a rank for it."""
    rank = random.randrange(2)
    with suppress(OSError):
        Path(f"/proc/{site.rank(scene, rank).pid}/oom_score_adj").write_text("1000")
    eat = ("python3", "-c", "held = [b'x' * (1 << 24) for _ in range(1 << 10)]")
    return Act(partial(site.runtime.docker, "exec", site.container(), *eat), f", rank {rank}")


def paused(site: Site, scene: Scene, random: Random) -> Act:
    name, seconds = site.container(), random.uniform(0.2, 4)

    def pause() -> None:
        site.runtime.docker("pause", name)
        time.sleep(seconds)
        site.runtime.docker("unpause", name)

    return Act(pause, f", for {seconds:.1f} s")


def runtime_away(how: str, site: Site, scene: Scene, random: Random) -> Verdict:
    """dockerd and its containerd are `killed`, or `paused` as on a machine that swaps, or dockerd is `stopped` as by an
    administrator; back within seconds, it keeps its containers."""
    driver, moment = site.begin_anywhere(scene, random)
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
        site.again(scene)
        return Verdict(f"{moment}: no run was started", 0, "the same command")
    kinds = ("ok", "rank_lost", "interrupted")
    return brought_back(scene, moment, before, code, kinds, partial(site.again, scene), ITERATIONS)


def flood(site: Site, scene: Scene, random: Random) -> Verdict:
    """A rank floods its output in the middle of its work."""
    at = {"iteration": random.randrange(ITERATIONS), "rank": random.randrange(2), "do": "flood"}
    script = {**SCRIPT, "seconds": 0.01, "at": at}
    code = scene.run(scripted_suite("run", *RUN, *MEASURE, "--runs", str(scene.runs), script=script))
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
#: those of a run that Compose has started too
OF_RANKS = sent_to("a rank", Site.rank, LOST, stopped=("hang",))
PAUSED: Maker = ("container paused", partial(struck, paused, ("ok",)), UNMOVED)
_IN_MEMORY = partial(struck, options=MEMORY, words="emory", iterations=MEMORY_ITERATIONS)
MAKERS: tuple[Maker, ...] = (
    *of_driver(INTERRUPTED, UNMOVED),
    *OF_RANKS,
    ("SIGKILL of the container", partial(struck, partial(killed, "KILL"), ("rank_lost",)), LOST),
    *(
        (f"SIG{name} of the container", partial(struck, partial(killed, name), ("rank_lost", "interrupted")), LOST)
        for name in ("TERM", "INT")
    ),
    ("memory of the container", partial(_IN_MEMORY, memory_met, ("oom_host",)), LOST),
    PAUSED,
    ("SIGKILL of dockerd and containerd", partial(runtime_away, "killed"), KEPT),
    ("SIGSTOP of dockerd and containerd", partial(runtime_away, "paused"), KEPT),
    ("dockerd restarted", partial(runtime_away, "stopped"), KEPT),
    ("flood on a rank's output", flood, UNMOVED),
)
faults = partial(faults_of, "docker", WORK, MAKERS)
FAULTS = faults(None)
