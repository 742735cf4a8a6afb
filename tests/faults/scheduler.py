"""Faults of runs on a real Slurm of two nodes on this machine, with the worker by script."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psutil

from tests.faults.judging import whole_again
from tests.faults.scene import MARK, Scene, after_seconds, iterations_told, moment_of, scripted_command
from tests.faults.sites import ITERATIONS, Act, Begun, Service, away, by_signal, faults_of, sent_to, struck, told_to_end
from tests.faults.tries import Missed, Verdict, Wrong
from tests.slurm import CONTROLLER, NODES, Slurm, node_daemon, require_slurm, started_slurm, wait_until_idle

SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--nodes", "2", "--gpus-per-node", "1")
ONCE = ("--repeats", "1", "--warmup", "1", "--iterations", str(ITERATIONS - 1), "--no-exclusive")
LIMITS = ("--timeout", "30s", "--allowance", "90s")
BY_SLURM, BY_TORCHRUN = ("--starter", "srun"), ("--starter", "torchrun")
SCRIPT = {"seconds": 0.06, "sleep": True, "measured": True}
WORK = "stand-in worker, 2 nodes"
SHELLS = ("bash", "sh", "srun", "slurmstepd")
#: the job's limit and what Slurm takes to see it, its grace, and the run home
COLLECT_SECONDS = 300.0
STATES = re.compile(r"JobId=(\d+).*?JobState=(\S+)", re.DOTALL)


@dataclass
class Site:
    """A cluster of the harness's own. ``FAULTS`` may end and start its daemons."""

    slurm: Slurm
    #: process id of the controller of the last try
    controller: int = 0

    @property
    def environment(self) -> Mapping[str, str]:
        return self.slurm.environment

    @property
    def looks(self) -> Mapping[str, Callable[[], list[str]]]:
        return {"jobs": self.left}

    def left(self) -> list[str]:
        """Jobs that wait or run."""
        self.start_again()
        return self.slurm.jobs()

    def start_again(self) -> None:
        for command in list(self.slurm.daemons):
            self.daemon(command).start_again()

    def daemon(self, command: tuple[str, ...]) -> Service:
        return Service(self.slurm.daemons[command], partial(self.slurm.start, command))

    def restore(self) -> None:
        self.start_again()
        for job in self.slurm.jobs():
            self.slurm.call("scancel", job)
        if self.controller != (now := self.slurm.daemons[CONTROLLER].pid):
            self.controller = now
            self._use_up_an_id()
        self.resume()

    def _use_up_an_id(self) -> None:
        """A killed controller gives an id that it had not saved once more; a node that knows it drains."""
        self.slurm.call("sbatch", "--nodes=2", "--output=/dev/null", "--wrap=true")
        end = time.monotonic() + 20
        while self.slurm.jobs() and time.monotonic() < end:
            time.sleep(0.2)

    def resume(self) -> None:
        """As an operator: a controller that was killed before it saved a job starts it twice and drains the node."""
        for node in NODES:
            self.slurm.call("scontrol", "update", f"nodename={node}", "state=resume")
        with suppress(RuntimeError):
            wait_until_idle(self.slurm)

    def all_jobs(self) -> dict[str, str]:
        """State by id of all jobs that Slurm still knows, those that are over too."""
        told = self.slurm.call("scontrol", "show", "job").stdout
        return dict(STATES.findall(told))

    def begin(self, scene: Scene, random: Random, *options: str) -> Begun:
        handed_over(scene, *options)

        def state() -> str:
            printed = [path.read_text(errors="replace")[-300:] for path in _outputs(scene)]
            return f"{self.slurm.call('squeue').stdout} {self.all_jobs()} {printed}"

        moment = moment_of(random, ITERATIONS, lambda: self.finished(scene), state)
        return Begun(moment, lambda: scene.ended(scene.start(collect(scene)), COLLECT_SECONDS))

    def finished(self, scene: Scene) -> int:
        return iterations_told(_outputs(scene))

    def again(self, scene: Scene, *options: str, iterations: int = ITERATIONS) -> None:
        self.resume()
        whole_again(scene, submit(scene, *options), collect(scene), iterations=iterations)

    def rank(self, scene: Scene, number: int) -> psutil.Process:
        return _process(scene, number, "scripted_worker.py", lambda name: name.startswith("python"))

    def torchrun(self, scene: Scene, number: int) -> psutil.Process:
        """torch gives its process a name of its own. One that is stopped stays so: what its rank does until its end is
        measured, and the run's time ends the job."""
        return _process(scene, number, "torch.distributed.run", lambda name: name not in SHELLS)


def _outputs(scene: Scene) -> list[Path]:
    return list((scene.runs / ".submitted").glob("*.out"))


def _process(scene: Scene, number: int, words: str, fits: Callable[[str], bool]) -> psutil.Process:
    """One of the job's whose command line has these words and whose name fits. Raises Missed."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_of_try = process.environ().get(MARK) == str(scene.folder)
            if is_of_try and words in " ".join(process.cmdline()) and fits(process.name()):
                found.append(process)
    if not found:
        raise Missed(f"no process {words!r} is there")
    return sorted(found, key=lambda process: process.pid)[number % len(found)]


def submit(scene: Scene, *options: str) -> list[str]:
    """By srun, unless ``options`` say otherwise."""
    script = ("--env", f"SUITE_SCRIPT={json.dumps(SCRIPT)}", *BY_SLURM)
    return scripted_command("submit", "slurm", *SMALL, *ONCE, *LIMITS, *script, *options, "--runs", str(scene.runs))


def collect(scene: Scene) -> list[str]:
    return scripted_command("collect", "--wait", "--runs", str(scene.runs))


def handed_over(scene: Scene, *options: str) -> None:
    if scene.run(submit(scene, *options)) != 0:
        raise Wrong(f"not submitted: {scene.output()[-400:]}")


def cancelled(site: Site, scene: Scene, random: Random) -> Act:
    return Act(lambda: site.slurm.call("scancel", *site.slurm.jobs()))


def submitter_killed(number: signal.Signals, site: Site, scene: Scene, random: Random) -> Verdict:
    """At any moment of `suite submit`: afterwards the same command sends what Slurm has not got, and only that."""
    known = site.all_jobs()
    driver = scene.start(submit(scene))
    moment = after_seconds(random, 0.2, 4)
    told_to_end(scene, driver, number, moment)
    whole_again(scene, submit(scene), collect(scene), iterations=ITERATIONS)
    jobs = {job: state for job, state in site.all_jobs().items() if job not in known}
    if len(jobs) != 1:
        raise Wrong(f"{moment}: {len(jobs)} jobs for one run: {jobs}")
    return Verdict(moment, 0, "the same command")


def collector_killed(site: Site, scene: Scene, random: Random) -> Verdict:
    """At any moment of `suite collect`: the same command brings the run home."""
    handed_over(scene)
    driver = scene.start(collect(scene))
    moment = after_seconds(random, 0.2, 6)
    told_to_end(scene, driver, signal.SIGKILL, moment)
    whole_again(scene, collect(scene), iterations=ITERATIONS)
    return Verdict(moment, 0, "the same command")


@contextmanager
def started() -> Iterator[Site]:
    """Raises what keeps a cluster from being started here."""
    require_slurm()
    with started_slurm(kill_wait=30) as slurm:
        yield Site(slurm)


LOST = "collected as failed, with its cause and what was measured; --retry-failed does it again"
SILENT = ("hang", "timeout", "rank_lost")
ANY_END = ("ok", "rank_lost", "interrupted")
KEPT = "the job goes on, or is collected as lost and done again"
MAKERS = (
    *sent_to("a rank", Site.rank, LOST, SILENT),
    *sent_to("torchrun", Site.torchrun, LOST, SILENT, ("rank_lost", "interrupted"), options=BY_TORCHRUN),
    *(
        (
            f"{number.name} of {command[0]}",
            partial(struck, away(number, seconds, partial(Site.daemon, command=command)), ANY_END),
            KEPT,
        )
        for number, seconds in ((signal.SIGKILL, 3), (signal.SIGTERM, 3), (signal.SIGSTOP, 15))
        for command in (node_daemon(NODES[0]), CONTROLLER)
    ),
    (
        "scancel",
        partial(struck, cancelled, ("interrupted",)),
        "collected as interrupted, the same command does it again",
    ),
    *by_signal("suite submit", submitter_killed, "one job, known and collected"),
    ("SIGKILL of suite collect", collector_killed, "the same command brings the run home"),
)
faults = partial(faults_of, "slurm", WORK, MAKERS)
FAULTS = faults(None)
