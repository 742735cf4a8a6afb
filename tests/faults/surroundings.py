"""Runs of two real ranks on this host, and what goes wrong around them: memory, disks, clock, network, drivers."""

import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random

import psutil

from suite.bundle.verify import verify
from tests.faults.judging import check_output, is_whole, lost_of, told, whole_again
from tests.faults.scene import OF_TIMES, Scene, scripted_command, suite_command
from tests.faults.sites import Act, OwnDriver, struck
from tests.faults.tries import Missed, Verdict, Wrong
from tests.waiting import wait_until

ITERATIONS = 8
#: ranks that start on a busy machine are silent for long
SILENCE = ("--hang-timeout", "45s")
SIZE = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--device", "cpu", "--ranks", "2")
MEASURE = ("--warmup", "1", "--iterations", str(ITERATIONS - 1), "--force")
DRIVERS = 8
MIB = 1 << 20


@dataclass
class Host(OwnDriver):
    """This machine. ``inside``: what comes before each command."""

    inside: tuple[str, ...] = ()
    iterations = ITERATIONS
    start_seconds = 15.0

    def command(self, scene: Scene, *options: str) -> list[str]:
        again = ("--repeats", "1", "--start", "fork", *SILENCE, "--runs", str(scene.runs))
        return [*self.inside, *suite_command("run", *SIZE, *MEASURE, *again, *options)]

    def rank(self, scene: Scene, number: int) -> psutil.Process:
        """Raises Missed."""
        try:
            return psutil.Process(scene.ranks()[number])
        except psutil.NoSuchProcess:
            raise Missed("the rank is not there any more") from None


def slow_rank(site: Host, scene: Scene, random: Random) -> Act:
    """One rank is held up again and again, for up to a fifth of a second."""
    victim = site.rank(scene, random.randrange(2))

    def hold_up() -> None:
        with suppress(psutil.NoSuchProcess):
            for _ in range(20):
                victim.send_signal(signal.SIGSTOP)
                time.sleep(random.uniform(0.01, 0.2))
                victim.send_signal(signal.SIGCONT)
                time.sleep(random.uniform(0, 0.1))

    return Act(hold_up)


def address_space(site: Host, scene: Scene, random: Random) -> Act:
    """A rank gets no more address space from some moment on (RLIMIT_AS)."""
    victim = site.rank(scene, random.randrange(2))

    def limit() -> None:
        with suppress(psutil.NoSuchProcess):
            used = victim.memory_info().vms
            victim.rlimit(resource.RLIMIT_AS, (used, used))

    return Act(limit)


def memory_group(site: Host, scene: Scene, random: Random) -> Act:
    """The kernel kills a rank for want of memory: the group of it and its driver gets next to none more."""
    group = Path(f"/sys/fs/cgroup/memory/suite-faults-{os.getpid()}-{random.randrange(1 << 30)}")
    group.mkdir()
    scene.ending.callback(_retry, group.rmdir)
    victim = site.rank(scene, random.randrange(2))
    limit = group / "memory.limit_in_bytes"

    def put() -> None:
        with suppress(psutil.NoSuchProcess, OSError):
            Path(f"/proc/{victim.pid}/oom_score_adj").write_text("1000")  # it is the one that is killed
            for process in (victim, *takewhile(lambda one: one.pid != os.getpid(), victim.parents())):
                (group / "cgroup.procs").write_text(str(process.pid))
            limit.write_text(str(1 << 20))
            psutil.wait_procs([victim], timeout=10)
        limit.write_text("-1")

    return Act(put)


def full_disk(site: Host, scene: Scene, random: Random) -> Verdict:
    """Something else takes all that is left of the results folder's file system."""
    _mount(scene, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
    driver, moment = site.begin_anywhere(scene, random)
    before, ballast = scene.finished(), scene.runs / "ballast"
    _fill(ballast)
    code = scene.ended(driver)
    check_output(scene)
    record = scene.record()
    if record is not None and record.status == "ok" and code == 0:
        raise Missed("all was written")
    if code not in (1, 2):
        raise Wrong(f"{moment}: exit code {code}, the run is {told(record)}")
    is_told = record is not None and record.failure is not None and record.failure.kind == "disk_full"
    if not is_told and not re.search("no space left|disk_full", scene.output().lower()):
        raise Wrong(f"{moment}: nobody says that the disk is full: {told(record)}; {scene.output()[-300:]}")
    lost = lost_of(before, record)
    ballast.unlink()
    site.again(scene)
    return Verdict(f"{moment}: {told(record)[:60]}", lost, "the same command")


def read_only_disk(site: Host, scene: Scene, random: Random) -> Verdict:
    """The kernel makes a file system read-only after an error of its own, in the middle of a run."""
    image = scene.folder / "disk"
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    subprocess.run(("mkfs.ext4", "-q", str(image)), check=True, capture_output=True)
    _mount(scene, "-o", "loop", str(image))
    driver, moment = site.begin_anywhere(scene, random)
    before = scene.finished()
    subprocess.run(("mount", "-o", "remount,abort", str(scene.runs)), check=False, capture_output=True)
    code = scene.ended(driver)
    check_output(scene)
    if code == 0:
        raise Missed("all was written")
    if code not in (1, 2):
        raise Wrong(f"{moment}: exit code {code}: {scene.output()[-300:]}")
    if not re.search("read-only", scene.output().lower()):
        raise Wrong(f"{moment}: nobody says that the disk is read-only: {scene.output()[-300:]}")
    record = scene.record()
    lost = lost_of(before, record)
    subprocess.run(("umount", str(scene.runs)), check=True, capture_output=True)
    subprocess.run(("fsck.ext4", "-fy", str(image)), check=False, capture_output=True)
    subprocess.run(("mount", "-o", "loop", str(image), str(scene.runs)), check=True, capture_output=True)
    # what it had cached and not written is gone with the abort: a run is done again, whatever is left of it
    site.again(scene, "--retry-failed")
    return Verdict(f"{moment}: exit code {code}", lost, "--retry-failed")


def clock_step(site: Host, scene: Scene, random: Random) -> Verdict:
    """The time of day jumps by up to a day, forwards or back; time that only goes forward goes on.

    libfaketime will not do: it moves waiting by that time too (clock_nanosleep), which a step of the clock does not.
    """
    clock = _preloaded(scene, "clock", 1)
    began = time.monotonic()
    driver, moment = site.begin_anywhere(scene, random)
    seconds = random.choice((-1, 1)) * round(10 ** random.uniform(0, 4.9))
    _tell(clock, seconds)
    code = scene.ended(driver)
    took = time.monotonic() - began
    if code != 0:
        raise Wrong(f"{moment}, {seconds:+d} s: exit code {code}: {scene.output()[-400:]}")
    record = scene.record()
    if record is None or not is_whole(record, ITERATIONS):
        raise Wrong(f"{moment}, {seconds:+d} s: the run is {told(record)}")
    if sum(record.iterations.seconds) > took:
        raise Wrong(f"{moment}, {seconds:+d} s: iterations of {sum(record.iterations.seconds):.1f} s in {took:.1f} s")
    found = verify(scene.bundles()[0])  # which takes a run whose times do not fit for what it is
    if found.differences or not {finding.name for finding in found.findings} <= OF_TIMES:
        raise Wrong(f"{moment}, {seconds:+d} s: verify says {found.status}: {found.differences} {found.findings}")
    return Verdict(f"{moment}: by {seconds:+d} s, verify says {found.status}")


def on_output(data: bytes, times: int, site: Host, scene: Scene, random: Random) -> Verdict:
    """Somebody writes to a rank's standard output, which is the driver's source of events."""

    def aim(site: Host, scene: Scene, random: Random) -> Act:
        rank = random.randrange(2)
        victim = site.rank(scene, rank)

        def write() -> None:
            with (
                suppress(FileNotFoundError, ProcessLookupError, BrokenPipeError),
                open(f"/proc/{victim.pid}/fd/1", "ab", buffering=0) as output,
            ):
                for _ in range(times):
                    output.write(data or random.randbytes(64 * 1024))

        return Act(write, f", rank {rank}")

    verdict = struck(aim, ("ok",), site, scene, random, iterations=ITERATIONS)
    largest = max(path.stat().st_size for path in scene.runs.glob("*/logs/*"))
    if largest > 80 * MIB:
        raise Wrong(f"a log of {largest / MIB:.0f} MiB")
    return verdict


def torn_events(what: str, site: Host, scene: Scene, random: Random) -> Verdict:
    """A rank leaves a line that is none among its events, or half a line and is killed."""
    iteration, rank = random.randrange(ITERATIONS), random.randrange(2)
    script = {"seconds": 0.01, "at": {"iteration": iteration, "rank": rank, "do": what}}
    scene.environment["SUITE_SCRIPT"] = str(script).replace("'", '"')
    again = ["run", *SIZE, *MEASURE, "--repeats", "1", "--runs", str(scene.runs)]
    code = scene.run(scripted_command(*again))
    check_output(scene)
    if code != 1:
        raise Wrong(f"iteration {iteration}: exit code {code}: {scene.output()[-300:]}")
    lost = 0
    if what == "torn":
        record = scene.record()
        if record is None or record.failure is None or record.failure.kind != "rank_lost":
            raise Wrong(f"iteration {iteration}: the run is {told(record)}")
        lost = lost_of(iteration, record)
    scene.environment["SUITE_SCRIPT"] = "{}"
    if (code := scene.run(scripted_command(*again, "--retry-failed"))) != 0:
        raise Wrong(f"the command after it ends with exit code {code}: {scene.output()[-300:]}")
    record = scene.record()
    if record is None or record.status != "ok":
        raise Wrong(f"the run is {told(record)}")
    return Verdict(f"iteration {iteration}, rank {rank}", lost, "--retry-failed")


def eight_drivers(site: Host, scene: Scene, random: Random) -> Verdict:
    """Eight at once on one folder of four runs, three of them killed at some moment: each run is made once."""
    scene.environment["SUITE_SCRIPT"] = '{"seconds": 0.02, "sleep": true}'
    same = scripted_command("run", *SIZE, *MEASURE, "--repeats", "4", "--runs", str(scene.runs))
    drivers = []
    for _ in range(DRIVERS):
        drivers.append(scene.start(same))
        time.sleep(random.uniform(0, 0.2))
    victims = random.sample(range(DRIVERS), 3)
    for victim in victims:
        time.sleep(random.uniform(0, 1.5))
        drivers[victim].kill()
    codes = [scene.ended(driver) for driver in drivers]
    for index, code in enumerate(codes):
        if code != 0 and index not in victims:
            raise Wrong(f"a driver ended with exit code {code}: {scene.output(index)[-400:]}")
        if "Traceback" in scene.output(index):
            raise Wrong(scene.output(index)[-500:])
    before = sum(record.status == "ok" for record in scene.records().values())
    whole_again(scene, same, iterations=ITERATIONS, runs=4)
    return Verdict(f"{before} of 4 runs were made before", 0, "the same command")


class _Cut(Host):
    """In a network of its own, which is there again for the next command."""

    def again(self, scene: Scene, *options: str, iterations: int = 0) -> None:
        _call(*self.inside, "ip", "link", "set", "lo", "up")
        super().again(scene, *options, iterations=iterations)


def network_cut(site: Host, scene: Scene, random: Random) -> Verdict:
    """The ranks' network, in a namespace of its own, goes down in mid-run."""
    own = _Cut(_own_network(scene))

    def aim(site: Host, scene: Scene, random: Random) -> Act:
        return Act(partial(_call, *own.inside, "ip", "link", "set", "lo", "down"))

    return struck(aim, ("hang", "rank_lost", "nccl_timeout"), own, scene, random, iterations=ITERATIONS)


def network_slow(site: Host, scene: Scene, random: Random) -> Verdict:
    """What goes out over the ranks' network takes some milliseconds more from some moment on."""
    file = _preloaded(scene, "slow", 2)

    def aim(site: Host, scene: Scene, random: Random) -> Act:
        delay, before = random.uniform(1, 10), _count(file)

        def slow_down() -> None:
            _tell(file, round(1000 * delay))
            wait_until(lambda: _count(file) > before or any(scene.runs.glob("*/record.json")))
            if _count(file) == before:
                raise Missed("nothing was sent any more")

        return Act(slow_down, f": {delay:.1f} ms later")

    return struck(aim, ("ok",), site, scene, random, iterations=ITERATIONS)


def _preloaded(scene: Scene, name: str, numbers: int) -> Path:
    """The file of a library that all processes of a try have before the C library; it reads the first number."""
    library, file = scene.folder / f"{name}.so", scene.folder / name
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(("cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)), check=True, capture_output=True)
    file.write_bytes(bytes(8 * numbers))
    scene.environment |= {"LD_PRELOAD": str(library), f"SUITE_FAULTS_{name.upper()}": str(file)}
    return file


def _tell(file: Path, number: int) -> None:
    with file.open("r+b") as opened:  # in place: processes have it mapped
        opened.write(number.to_bytes(8, "little", signed=True))


def _count(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[8:16], "little")


def _own_network(scene: Scene) -> tuple[str, ...]:
    """What runs a command in a namespace that has nothing but a loopback interface."""
    name = f"suite-faults-{os.urandom(4).hex()}"  # process ids are the harness's own
    _call("ip", "netns", "add", name)
    scene.ending.callback(subprocess.run, ("ip", "netns", "del", name), check=False, capture_output=True)
    inside = ("ip", "netns", "exec", name)
    _call(*inside, "ip", "link", "set", "lo", "up")
    return inside


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def _mount(scene: Scene, *arguments: str) -> None:
    scene.runs.mkdir()
    subprocess.run(("mount", *arguments, str(scene.runs)), check=True, capture_output=True)
    unmount = ("umount", "--lazy", str(scene.runs))
    scene.ending.callback(subprocess.run, unmount, check=False, capture_output=True)


def _fill(path: Path) -> None:
    """To the last byte, also what others give back meanwhile within a moment."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def _retry(remove: Callable[[], None]) -> None:
    for _ in range(100):
        try:
            remove()
            return
        except OSError:
            time.sleep(0.1)


def lacks() -> dict[str, str]:
    """Faults that cannot be made on this machine, and why."""
    found = {}
    if os.geteuid() != 0:
        found |= dict.fromkeys(("disk full", "disk read-only", "network cut"), "needs root")
    if not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK):
        found["host memory: killed by the kernel"] = "no memory group (cgroup v1) may be made"
    programs = {"network cut": "ip", "disk read-only": "mkfs.ext4", "clock steps": "cc", "network slow": "cc"}
    return found | {name: f"no {program}" for name, program in programs.items() if shutil.which(program) is None}
