"""Faults of runs on a real Slurm of two nodes on this machine, with the worker by script."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Timer

import psutil

from tests.faults.judging import brought_back, check_output, whole_again
from tests.faults.scene import MARK, Scene, away, iterations_told, moment_of, scripted_command, signal_name
from tests.faults.tries import Fault, Missed, Verdict, Wrong
from tests.slurm import CONTROLLER, NODES, Slurm, node_daemon, require_slurm, started_slurm, wait_until_idle

ITERATIONS = 30
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--nodes", "2", "--gpus-per-node", "1")
ONCE = ("--repeats", "1", "--warmup", "1", "--iterations", str(ITERATIONS - 1), "--no-exclusive")
LIMITS = ("--timeout", "30s", "--allowance", "90s")
BY_SLURM = ("--starter", "srun")
SCRIPT = {"seconds": 0.06, "sleep": True, "measured": True}
WORK = "stand-in worker, 2 nodes"
SHELLS = ("bash", "sh", "srun", "slurmstepd")
#: the job's limit and what Slurm takes to see it, its grace, and the run home
COLLECT_SECONDS = 300.0
STATES = re.compile(r"JobId=(\d+).*?JobState=(\S+)", re.DOTALL)


@dataclass
class Site:
    """A cluster of the harness's own. ``faults`` may end and start its daemons."""

    slurm: Slurm
    #: process id of the controller of the last try
    controller: int = 0

    def left(self) -> list[str]:
        """Jobs that wait or run."""
        self.start_again()
        return self.slurm.jobs()

    def start_again(self) -> None:
        for command, process in list(self.slurm.daemons.items()):
            if process.poll() is not None:
                self.slurm.start(command)

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


def submit(scene: Scene, *options: str) -> list[str]:
    script = ("--env", f"SUITE_SCRIPT={json.dumps(SCRIPT)}")
    return scripted_command("submit", "slurm", *SMALL, *ONCE, *LIMITS, *script, *options, "--runs", str(scene.runs))


def collect(scene: Scene) -> list[str]:
    return scripted_command("collect", "--wait", "--runs", str(scene.runs))


def handed_over(scene: Scene, *options: str) -> None:
    if scene.run(submit(scene, *options)) != 0:
        raise Wrong(f"not submitted: {scene.output()[-400:]}")


def finished(scene: Scene) -> int:
    return iterations_told((scene.runs / ".submitted").glob("*.out"))


def wait_for_moment(scene: Scene, site: Site, random: Random) -> str:
    def state() -> str:
        printed = [path.read_text(errors="replace")[-300:] for path in (scene.runs / ".submitted").glob("*.out")]
        return f"{site.slurm.call('squeue').stdout} {site.all_jobs()} {printed}"

    return moment_of(random, ITERATIONS, lambda: finished(scene), state)


def processes(scene: Scene, words: str) -> list[psutil.Process]:
    """Of the job, whose command lines match. Raises Missed."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(scene.folder) and re.search(words, " ".join(process.cmdline())):
                found.append(process)
    if not found:
        raise Missed(f"no process {words!r} is there")
    return sorted(found, key=lambda process: process.pid)


def brought_home(site: Site, scene: Scene, before: int, moment: str, kinds: tuple[str, ...]) -> Verdict:
    """Collected with what it measured, by its cause, and done again by the same command once that is asked for."""

    def again(*options: str) -> None:
        site.resume()
        whole_again(scene, submit(scene, *BY_SLURM, *options), collect(scene), iterations=ITERATIONS)

    code = scene.ended(scene.start(collect(scene)), COLLECT_SECONDS)
    return brought_back(scene, moment, before, code, kinds, again, ITERATIONS)


def rank_signal(number: signal.Signals, kinds: tuple[str, ...], site: Site, scene: Scene, random: Random) -> Verdict:
    handed_over(scene, *BY_SLURM)
    moment = wait_for_moment(scene, site, random)
    victims = [process for process in processes(scene, "scripted_worker.py") if "srun" not in process.name()]
    ranks = [process for process in victims if process.name().startswith("python")]
    if not ranks:
        raise Missed("no rank is there")
    before = finished(scene)
    with suppress(psutil.NoSuchProcess):
        random.choice(ranks).send_signal(number)
    return brought_home(site, scene, before, moment, kinds)


def torchrun_signal(
    number: signal.Signals, kinds: tuple[str, ...], site: Site, scene: Scene, random: Random
) -> Verdict:
    """One that is stopped stays so: what its rank does until its end is measured, and the run's time ends the job."""
    handed_over(scene)
    moment = wait_for_moment(scene, site, random)
    before = finished(scene)
    # torch gives its process a name of its own
    victims = [each for each in processes(scene, "torch.distributed.run") if each.name() not in SHELLS]
    if not victims:
        raise Missed("no torchrun is there")
    with suppress(psutil.NoSuchProcess):
        random.choice(victims).send_signal(number)
    return brought_home(site, scene, before, moment, kinds)


def daemon_ended(number: signal.Signals, command: tuple[str, ...], site: Site, scene: Scene, random: Random) -> Verdict:
    """While the job works; started again within seconds."""
    handed_over(scene, *BY_SLURM)
    moment = wait_for_moment(scene, site, random)
    before, seconds = finished(scene), random.uniform(0, 3)
    away(site.slurm.daemons[command], number, seconds)
    site.slurm.start(command)
    return brought_home(site, scene, before, f"{moment}, away for {seconds:.1f} s", ("ok", "rank_lost", "interrupted"))


def daemon_stopped(command: tuple[str, ...], site: Site, scene: Scene, random: Random) -> Verdict:
    """While the job works, for some seconds, in which `suite collect` may ask already."""
    handed_over(scene, *BY_SLURM)
    moment = wait_for_moment(scene, site, random)
    before, seconds = finished(scene), random.uniform(0.2, 15)
    daemon = site.slurm.daemons[command]
    daemon.send_signal(signal.SIGSTOP)
    again = Timer(seconds, daemon.send_signal, (signal.SIGCONT,))
    again.start()
    try:
        return brought_home(site, scene, before, f"{moment}, for {seconds:.1f} s", ("ok", "rank_lost", "interrupted"))
    finally:
        again.cancel()
        daemon.send_signal(signal.SIGCONT)


def cancelled(site: Site, scene: Scene, random: Random) -> Verdict:
    handed_over(scene, *BY_SLURM)
    moment = wait_for_moment(scene, site, random)
    before = finished(scene)
    site.slurm.call("scancel", *site.slurm.jobs())
    return brought_home(site, scene, before, moment, ("interrupted",))


def submitter_killed(number: signal.Signals, site: Site, scene: Scene, random: Random) -> Verdict:
    """At any moment of `suite submit`: afterwards the same command sends what Slurm has not got, and only that."""
    known = site.all_jobs()
    driver = scene.start(submit(scene, *BY_SLURM))
    seconds = random.uniform(0.2, 4)
    time.sleep(seconds)
    was_over = driver.poll() is not None
    driver.send_signal(number)
    code = scene.ended(driver)
    if not was_over and code not in (0, 130, -number):
        raise Wrong(f"{seconds:.2f} s: the driver ended with {signal_name(code)}: {scene.output()[-300:]}")
    check_output(scene)
    whole_again(scene, submit(scene, *BY_SLURM), collect(scene), iterations=ITERATIONS)
    jobs = {job: state for job, state in site.all_jobs().items() if job not in known}
    if len(jobs) != 1:
        raise Wrong(f"{seconds:.2f} s: {len(jobs)} jobs for one run: {jobs}")
    return Verdict(f"{seconds:.2f} s after its start", 0, "the same command")


def collector_killed(site: Site, scene: Scene, random: Random) -> Verdict:
    """At any moment of `suite collect`: the same command brings the run home."""
    handed_over(scene, *BY_SLURM)
    driver = scene.start(collect(scene))
    seconds = random.uniform(0.2, 6)
    time.sleep(seconds)
    driver.kill()
    scene.ended(driver)
    check_output(scene)
    whole_again(scene, collect(scene), iterations=ITERATIONS)
    return Verdict(f"{seconds:.2f} s after its start", 0, "the same command")


@contextmanager
def started() -> Iterator[Site]:
    """Raises what keeps a cluster from being started here."""
    require_slurm()
    with started_slurm(kill_wait=30) as slurm:
        yield Site(slurm)


LOST = "collected as failed, with its cause and what was measured; --retry-failed does it again"
KEPT = "the job goes on, or is collected as lost and done again"
_MAKERS = (
    *(
        (f"{number.name} of {name}", partial(make, number, kinds), LOST)
        for name, make in (("a rank", rank_signal), ("torchrun", torchrun_signal))
        for number, kinds in (
            (signal.SIGKILL, ("rank_lost",)),
            (signal.SIGTERM, ("rank_lost", "interrupted") if make is torchrun_signal else ("rank_lost",)),
            (signal.SIGINT, ("rank_lost", "interrupted")),
            (signal.SIGSTOP, ("hang", "timeout", "rank_lost")),
        )
    ),
    *(
        (f"{number.name} of {command[0]}", partial(daemon_ended, number, command), KEPT)
        for number in (signal.SIGKILL, signal.SIGTERM)
        for command in (node_daemon(NODES[0]), CONTROLLER)
    ),
    *(
        (f"SIGSTOP of {command[0]}", partial(daemon_stopped, command), KEPT)
        for command in (node_daemon(NODES[0]), CONTROLLER)
    ),
    ("scancel", cancelled, "collected as interrupted, the same command does it again"),
    *(
        (f"{number.name} of suite submit", partial(submitter_killed, number), "one job, known and collected")
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    ),
    ("SIGKILL of suite collect", collector_killed, "the same command brings the run home"),
)


def faults(site: Site | None) -> tuple[Fault, ...]:
    """Of a cluster; of none, to be listed. Jobs take their time, so that a fifth of the tries are asked for."""
    return tuple(Fault("slurm", name, WORK, partial(do, site), right, True) for name, do, right in _MAKERS)  # type: ignore[arg-type]


FAULTS = faults(None)
