"""Where a try takes place: its results folder, its folder for temporary files, its processes, and what is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import psutil

from suite.bundle.derive import record_of
from suite.bundle.record import Record
from suite.bundle.store import ATTIC, Bundle, find_bundles
from suite.bundle.verify import verify
from tests.faults.tries import Missed, Wrong

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY = Path("/dev/shm")
#: set where the harness has processes, mounts and shared memory of its own (``run``)
APART = "SUITE_FAULTS_APART"
#: names the try in the environment of all that it starts
MARK = "SUITE_FAULTS_TRY"
END_SECONDS, SETTLE_SECONDS, LOOK_SECONDS = 400.0, 12.0, 0.005
#: hidden entries of a results folder that belong there
OF_RESULTS = (".submitted", ".smoke")
#: of the runtimes and schedulers that the harness itself has started
DAEMONS = (
    *("dockerd", "containerd", "docker-proxy", "munged", "slurmctld", "slurmscriptd", "slurmd"),
    *("kubelet", "kube-apiserver", "etcd"),
)
Command = Sequence[str]
Driver = subprocess.Popen
_EVENT = re.compile(rb"::suite:: (\{.*\})")
#: what verify finds of times that do not fit
OF_TIMES = {"run-times", "event-times", "phase-times", "rank-times"}


class Scene:
    """One try's surroundings. Processes that it starts end with it, also where the try breaks off."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self.runs, self.tmp = folder, folder / "runs", folder / "tmp"
        self.tmp.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.tmp),
            "SUITE_CACHE": str(folder / "cache"),
            # a cache of the stack's, the same for all runs of a user; made as soon as it is imported
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "OMP_NUM_THREADS": "1",
            MARK: str(folder),
            **(environment or {}),
        }
        self.before = (_processes(), _shared_memory())
        self.ending = ExitStack()
        self.outputs: list[Path] = []
        #: the ranks tell times that they were given, which no busy machine keeps to
        self.has_made_up_times = False
        #: kind of what may be left behind -> what is there of it
        self.looks: dict[str, Callable[[], list[str]]] = {"processes": self._left_processes, "files": self._left_files}
        if os.environ.get(APART):  # a name in the whole machine's says nothing of who has put it there
            self.looks["shared memory"] = lambda: sorted(_shared_memory() - self.before[1])

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """A command of the suite; what it prints is kept."""
        output = self.folder / f"output-{len(self.outputs)}"
        self.outputs.append(output)
        with output.open("wb") as file:
            started = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        self.ending.callback(_end, started)
        return started

    def output(self, which: int = -1) -> str:
        return self.outputs[which].read_text(errors="replace") if self.outputs else ""

    def ended(self, started: subprocess.Popen[bytes], seconds: float = END_SECONDS) -> int:
        """Its exit code. Raises Wrong where it does not end."""
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Wrong(f"no end after {seconds:g} s: {self.output()[-500:]}") from None

    def run(self, command: Command) -> int:
        return self.ended(self.start(command))

    def bundles(self) -> list[Bundle]:
        """The runs that are in their place."""
        return find_bundles([self.runs]) if self.runs.exists() else []

    def event_files(self) -> list[Path]:
        return sorted(self.runs.glob("*/events/rank-*.jsonl"))

    def events(self) -> int:
        """Whole lines of rank 0."""
        with suppress(OSError):
            return sum(path.read_bytes().count(b"\n") for path in self.runs.glob("*/events/rank-0.jsonl"))
        return 0

    def finished(self) -> int:
        """Iterations that every rank has told the end of."""
        counts = []
        for path in self.event_files():
            with suppress(OSError):
                counts.append(iterations_of(path))
        return min(counts, default=0)

    def ranks(self) -> list[int]:
        """Process ids by rank, of those that have told theirs. Raises Missed where none has."""
        found = []
        for path in self.event_files():
            with suppress(OSError, ValueError, IndexError):
                found.append(int(json.loads(whole_lines(path)[0])["pid"]))
        if not found:
            raise Missed("no rank has told its process")
        return found

    def wait_for(self, look: Callable[[], bool], driver: subprocess.Popen[bytes], seconds: float = END_SECONDS) -> None:
        """Raises Missed where the driver ends before, Wrong where it does not come or the driver fails by itself."""
        end = time.monotonic() + seconds
        while not look():
            if driver.poll() is not None:
                if driver.returncode != 0:
                    raise Wrong(f"exit code {driver.returncode} before the fault came: {self.output()[-500:]}")
                raise Missed(f"the run was over before the fault came (exit code {driver.returncode})")
            if time.monotonic() > end:
                raise Wrong(f"the run does not get there: {self.output()[-500:]}")
            time.sleep(LOOK_SECONDS)

    def wait_for_moment(self, random: Random, driver: Driver, events: int) -> str:
        """Some moment between the first word of both ranks and the last; ``events``: how many rank 0 writes in all."""
        number = random.randrange(2, events)
        self.wait_for(lambda: len(self.event_files()) >= 2 and self.events() >= number, driver)
        time.sleep(random.uniform(0, 0.03))
        return f"after {number} of {events} events"

    def wait_for_any_moment(self, random: Random, driver: Driver, events: int, start_seconds: float) -> str:
        """Some moment of a driver: before its ranks speak, while they work, or when they have ended."""
        part = random.random()
        if part < 0.2:
            return after_seconds(random, 0, start_seconds)
        if part < 0.85:
            return self.wait_for_moment(random, driver, events)
        self.wait_for(lambda: all(b'"end"' in _tail(path) for path in self.event_files() or [Path()]), driver)
        seconds = random.uniform(0, 0.5)
        time.sleep(seconds)
        return f"{seconds:.2f} s after the end of rank 0"

    def records(self) -> dict[str, Record]:
        """Of the runs in their place by id, derived now."""
        return {bundle.id: record_of(bundle) for bundle in self.bundles()}

    def record(self) -> Record | None:
        """Of the run in its place; null where there is none."""
        return next(iter(self.records().values()), None)

    def check_bundles(self) -> None:
        """Every bundle, those that were set aside too, is what its files say. Raises Wrong."""
        attic = self.runs / ATTIC
        kept = [Bundle(path) for path in sorted(attic.iterdir())] if attic.exists() else []
        for bundle in [*self.bundles(), *kept]:
            found = verify(bundle)
            is_time = self.has_made_up_times and {finding.name for finding in found.findings} <= OF_TIMES
            if found.status != "equal" and (found.differences or not is_time):
                raise Wrong(f"{bundle.id}: verify says {found.status}: {found.differences} {found.findings}")

    def left(self) -> dict[str, list[str]]:
        """What is left behind once all had time to end, by kind."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            found = {kind: look() for kind, look in self.looks.items()}
            if not any(found.values()) or time.monotonic() > end:
                return found
            time.sleep(0.2)

    def close(self) -> None:
        self.ending.close()
        for process in _marked(str(self.folder)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _left_processes(self) -> list[str]:
        found = {process.pid: process for process in _marked(str(self.folder))}
        if os.environ.get(APART):  # all others are ours too, whatever their environment is
            found |= {pid: process for pid, process in _processes().items() if pid not in self.before[0]}
        names = []
        for pid, process in found.items():
            with suppress(psutil.NoSuchProcess):
                name = process.name()
                if name not in DAEMONS and process.status() != psutil.STATUS_ZOMBIE:
                    names.append(f"{pid} {name}")
        return sorted(names)

    def _left_files(self) -> list[str]:
        left = [f"tmp/{path.name}" for path in self.tmp.iterdir()]
        if self.runs.exists():
            left += [
                str(path.relative_to(self.folder))
                for path in self.runs.rglob(".*")
                if path.name not in OF_RESULTS and not set(path.relative_to(self.runs).parts) & set(OF_RESULTS)
            ]
        return sorted(left)


def suite_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "suite", *arguments]


def scripted_command(*arguments: str) -> list[str]:
    """With the scripted worker in the place of both engines."""
    return [sys.executable, str(ROOT / "tests/scripted_suite.py"), *arguments]


def whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def iterations_of(path: Path) -> int:
    """Iterations whose end a rank has written to its file of events."""
    return sum(b'"kind":"iteration"' in line.replace(b" ", b"") for line in whole_lines(path))


def iterations_told(paths: Iterable[Path]) -> int:
    """Iterations that both ranks have printed the end of, in any of these files."""
    counts = [0, 0]
    for path in paths:
        with suppress(OSError):
            for line in whole_lines(path):
                found = _EVENT.search(line)
                with suppress(ValueError, KeyError, IndexError, TypeError):
                    event = json.loads(found[1]) if found else {}
                    counts[event["rank"]] += event["kind"] == "iteration"
    return min(counts)


def moment_of(random: Random, iterations: int, finished: Callable[[], int], state: Callable[[], object]) -> str:
    """Some moment of a job while its ranks work: from the first iteration on, to the last but one. Raises Wrong."""
    number, end = random.randrange(1, iterations - 1), time.monotonic() + END_SECONDS
    while finished() < number:
        if time.monotonic() > end:
            raise Wrong(f"the job does not get there: {state()}")
        time.sleep(0.05)
    time.sleep(random.uniform(0, 0.1))
    return f"after {number} of {iterations} iterations"


def after_seconds(random: Random, least: float, most: float) -> str:
    """Some moment after the last command's start."""
    seconds = random.uniform(least, most)
    time.sleep(seconds)
    return f"{seconds:.2f} s after its start"


def signal_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _tail(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()[-400:]
    return b""


def _end(started: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(started.pid, number)
    started.wait()


def _processes() -> dict[int, psutil.Process]:
    return {process.pid: process for process in psutil.process_iter()}


def _marked(folder: str) -> list[psutil.Process]:
    """Processes of a try, zombies aside."""
    mark, found = f"{MARK}={folder}".encode(), []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.NoSuchProcess):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()}
