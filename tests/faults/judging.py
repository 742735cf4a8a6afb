"""What local faults share: the command of two real DeepSpeed ranks on the CPU, and how its run is judged."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from random import Random

import psutil

from suite.bundle.record import Record
from suite.bundle.store import find_bundles
from tests.faults.scene import Command, Scene, suite_command
from tests.faults.tries import Missed, Verdict, Wrong

#: judges a run once its driver has ended. Raises Missed and Wrong.
Check = Callable[[Scene], Verdict]
#: does a fault to the run that goes on. Raises Missed and Wrong.
Act = Callable[[Scene, Random, "subprocess.Popen[bytes]"], Check]

ITERATIONS = 8
#: rank 0 writes so many lines: start, environment, setup, end; five phases with their memory, and the iteration
EVENTS = 4 + 11 * ITERATIONS
#: until the first word of a rank, on a machine that others share
START_SECONDS = 15.0
#: ranks that start on a busy machine are silent for long
SILENCE = ("--silence", "45s")
SIZE = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--device", "cpu", "--ranks", "2")
MEASURE = ("--warmup", "1", "--iterations", str(ITERATIONS - 1), "--oversubscribe")


def command(scene: Scene, *options: str, repeats: int = 1) -> list[str]:
    again = ("--repeats", str(repeats), "--start", "fork", *SILENCE, "--runs", str(scene.runs))
    return suite_command("run", *SIZE, *MEASURE, *again, *options)


def lost_of(before: int, record: Record | None) -> int:
    """Iterations that had ended before the fault and that the record does not have."""
    return max(0, before - (len(record.iterations.seconds) if record is not None else 0))


def check_output(scene: Scene) -> None:
    if "Traceback" in scene.output():
        raise Wrong(f"a traceback is shown: {scene.output()[-800:]}")


def check_ok(scene: Scene, iterations: int = ITERATIONS) -> Record:
    """The run in its place ended well and is whole. Raises Wrong."""
    record = scene.record()
    if record is None or record.status != "ok" or len(record.iterations.seconds) != iterations:
        raise Wrong(f"the run is {told(record)}: {scene.output()[-400:]}")
    scene.check_bundles()
    return record


def told(record: Record | None) -> str:
    if record is None:
        return "not there"
    failure = record.failure
    why = "" if failure is None else f", {failure.kind}: {' | '.join(failure.evidence[:2])[:300]}"
    return f"{record.status} with {len(record.iterations.seconds)} iterations{why}"


def whole_again(scene: Scene, *commands: Command, iterations: int = ITERATIONS) -> Record:
    """These commands bring home whatever is left to do, whole. Raises Wrong."""
    for each in commands:
        if (code := scene.run(each)) != 0:
            raise Wrong(f"the command after it ends with exit code {code}: {scene.output()[-500:]}")
        check_output(scene)
    return check_ok(scene, iterations)


def goes_on(scene: Scene, *options: str) -> None:
    """The same command measures what is left. Raises Wrong."""
    whole_again(scene, command(scene, *options))


def brought_back(
    scene: Scene,
    moment: str,
    before: int,
    code: int,
    kinds: tuple[str, ...],
    again: Callable[..., object],
    iterations: int,
    words: str = "",
) -> Verdict:
    """Of a run that may have ended by a fault: its record says so, and ``again``, with options, makes it anew.

    ``code``: of the command that brought it home. ``kinds``: of failure; ``ok`` among them: the run may have gone on.
    """
    check_output(scene)
    record = scene.record()
    lost = lost_of(before, record)
    if record is not None and record.status == "ok" and code == 0 and len(record.iterations.seconds) == iterations:
        if "ok" in kinds:
            scene.check_bundles()
            return Verdict(f"{moment}: the run went on", lost)
        raise Missed("all work was done")
    failure = record.failure if record is not None else None
    if code not in (1, 2, 130) or record is None or failure is None or failure.kind not in kinds:
        raise Wrong(f"{moment}: exit code {code}, the run is {told(record)}: {scene.output()[-300:]}")
    if not re.search(words, "\n".join(failure.evidence)):
        raise Wrong(f"{moment}: nothing of {words!r} in {failure.evidence}")
    scene.check_bundles()
    options = () if record.status == "interrupted" else ("--retry-failed",)
    again(*options)
    return Verdict(f"{moment}: {failure.kind}", lost, "--retry-failed" if options else "the same command")


def fails(moment: str, before: int, kinds: tuple[str, ...], words: str) -> Check:
    """A run that a rank's end has ended: its record says which and why."""

    def check(scene: Scene) -> Verdict:
        record = scene.record()
        if record is not None and record.status == "ok" and len(record.iterations.seconds) == ITERATIONS:
            raise Missed("all work was done")
        failure = record.failure if record is not None else None
        if record is None or record.status != "failed" or failure is None or failure.kind not in kinds:
            raise Wrong(f"{moment}: the run is {told(record)}")
        if not re.search(words, "\n".join(failure.evidence)):
            raise Wrong(f"{moment}: nothing of {words!r} in {failure.evidence}")
        return Verdict(f"{moment}: {failure.kind}", lost_of(before, record), "--retry-failed")

    return check


def unmoved(said: str) -> Check:
    """A run that ends well and whole all the same."""

    def check(scene: Scene) -> Verdict:
        record = scene.record()
        if record is None or record.status != "ok" or len(record.iterations.seconds) != ITERATIONS:
            raise Wrong(f"{said}: the run is {told(record)}")
        return Verdict(said)

    return check


def series(act: Act, scene: Scene, randoms: Sequence[Random], prefix: Sequence[str] = ()) -> list[Verdict | Exception]:
    """Runs of one driver, each with a fault of its own; what failed is done again at the end by one command."""
    count = len(randoms)
    driver = scene.start([*prefix, *command(scene, repeats=count)])
    checks: list[tuple[str, Check | Exception]] = []
    try:
        for random in randoms:
            scene.had_faults = bool(checks)
            scene.which = "*"
            scene.wait_for(lambda: scene.begun({run for run, _ in checks}) is not None, driver)
            scene.which = scene.begun({run for run, _ in checks}) or "*"
            run = scene.which
            try:
                checks.append((run, act(scene, random, driver)))
            except (Missed, Wrong) as error:
                checks.append((run, error))
            ranks = scene.ranks()
            scene.wait_for(
                lambda: driver.poll() is not None or (scene.runs / scene.which / "record.json").exists(), driver
            )
            if left := [pid for pid in ranks if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]:
                checks[-1] = (run, Wrong(f"ranks {left} are there when their run is over"))
    except Missed as error:  # the driver is over
        checks += [(f"never begun {index}", error) for index in range(count - len(checks))]
    code = scene.ended(driver)
    results = [_checked(scene, run, check) for run, check in checks]
    failed = [index for index, one in enumerate(results) if isinstance(one, Verdict) and one.resumes != "not needed"]
    whole: Exception | None = None
    try:
        check_output(scene)
        if code != bool(failed) and not any(isinstance(one, Exception) for one in results):
            raise Wrong(f"exit code {code} with {len(failed)} failed runs: {scene.output()[-300:]}")
        scene.which = "*"
        scene.check_bundles()
        if code != 0:
            again = [*prefix, *command(scene, "--retry-failed", repeats=count)]
            if (code := scene.run(again)) != 0:
                raise Wrong(f"the command after it ends with exit code {code}: {scene.output()[-500:]}")
            check_output(scene)
            for bundle in find_bundles([scene.runs]):
                scene.which = bundle.id
                check_ok(scene)
    except Wrong as error:
        whole = error
    if whole is not None:
        results[-1] = whole
    return results


def _checked(scene: Scene, run: str, check: Check | Exception) -> Verdict | Exception:
    if isinstance(check, Exception):
        return check
    scene.which = run
    try:
        return check(scene)
    except (Missed, Wrong) as error:
        return error
