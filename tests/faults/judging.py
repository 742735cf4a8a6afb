"""How a run is judged to which something was done."""

import re
from collections.abc import Callable, Mapping

from suite.bundle.record import Record
from tests.faults.scene import Command, Scene
from tests.faults.tries import Missed, Verdict, Wrong


def lost_of(before: int, record: Record | None) -> int:
    """Iterations that had ended before the fault and that the record does not have."""
    return max(0, before - (len(record.iterations.seconds) if record is not None else 0))


def check_output(scene: Scene) -> None:
    if "Traceback" in scene.output():
        raise Wrong(f"a traceback is shown: {scene.output()[-800:]}")


def is_whole(record: Record | None, iterations: int) -> bool:
    return record is not None and record.status == "ok" and len(record.iterations.seconds) == iterations


def check_ok(scene: Scene, iterations: int, runs: int = 1) -> None:
    """So many runs are in their place, ended well and are whole. Raises Wrong."""
    found = scene.records()
    if len(found) != runs or not all(is_whole(record, iterations) for record in found.values()):
        raise Wrong(f"{told_of(found)}: {scene.output()[-400:]}")
    scene.check_bundles()


def told(record: Record | None) -> str:
    if record is None:
        return "not there"
    failure = record.failure
    why = "" if failure is None else f", {failure.kind}: {' | '.join(failure.evidence[:2])[:300]}"
    return f"{record.status} with {len(record.iterations.seconds)} iterations{why}"


def told_of(found: Mapping[str, Record]) -> str:
    return "; ".join(f"{run} is {told(record)}" for run, record in found.items()) or "no run is there"


def whole_again(scene: Scene, *commands: Command, iterations: int, runs: int = 1) -> None:
    """These commands bring home whatever is left to do, whole. Raises Wrong."""
    for each in commands:
        if (code := scene.run(each)) != 0:
            raise Wrong(f"the command after it ends with exit code {code}: {scene.output()[-500:]}")
        check_output(scene)
    check_ok(scene, iterations, runs)


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
    if code == 0 and is_whole(record, iterations):
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


def interrupted(scene: Scene, moment: str, before: int, again: Callable[[], object]) -> Verdict:
    """A run whose driver was ended is told as interrupted, or was whole already; ``again`` makes what is left."""
    record = scene.record()
    if record is not None and record.status not in ("interrupted", "ok"):
        raise Wrong(f"{moment}: the run is {told(record)}")
    again()
    return Verdict(f"{moment}: {told(record).split(',')[0]}", lost_of(before, record), "the same command")
