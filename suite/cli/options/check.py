"""Before anything is started: what is expected of the runs, which take turns, and a refusal of what should not be."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from suite.cli.options.work import Work
from suite.cli.output import DONE, is_json, print_json, warn
from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.preflight import Preflight
from suite.conduct.planning.request import RunState
from suite.conduct.planning.turns import Turning, start_of, turns_refused
from suite.conduct.running.state import states
from suite.launch.outcome import Launcher
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest


def still_to_do(states: Sequence[tuple[Manifest, RunState]], retry_failed: bool) -> set[str]:
    """Ids of the runs that a command would start."""
    left = {"to run", "interrupted", "damaged", *(["failed before"] if retry_failed else [])}
    return {manifest.run.id for manifest, state in states if state in left}


def refuse(found: Preflight, runs: Collection[str], force: bool) -> None:
    """Raise UsageError where one of these runs is not expected to fit or to end in time; with ``force`` only warn."""

    refusals = found.of(runs).refusals
    if force:
        for line in refusals:
            warn("warning: ", line)
        return
    if len(refusals) == 1:
        raise UsageError(f"{refusals[0]}; --force runs it all the same")
    for line in refusals:
        warn("refused: ", line)
    if refusals:
        raise UsageError(f"{len(refusals)} rows are refused; leave them out or change them, or run them with --force")


def show_plan(
    plan: Plan,
    found: Preflight,
    root: Path,
    retry_failed: bool,
    work: Work,
    elsewhere: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> int:
    """The dry run of every launcher; ``elsewhere``: what of the plan this machine cannot run; ``more``: of the JSON.
    Raises as ``refuse``."""
    from suite.conduct.planning.show import plan_rows, print_plan

    now = states(plan.manifests, root)
    to_do = still_to_do(now, retry_failed)
    rows, left = plan_rows(now, found), found.of(to_do)
    if is_json():
        skipped = [entry.model_dump() for entry in plan.skipped]
        body = {"plan": plan.id, "runs": rows, "skipped": skipped, "notes": plan.notes, "expected": left.totals()}
        print_json({**body, "not_here": elsewhere, **(more or {})})
    else:
        print_plan(plan, rows, left)
    for line in elsewhere:
        warn("not on this machine: ", line)
    refuse(found, to_do, work.force)
    return DONE


def turning_here(
    turns: str | None, length: int | None, machine: Machine, launcher: Launcher, runs_at_once: int
) -> Turning:
    """What the options ask for, and what speaks against it here. Raises UsageError."""
    if turns not in (None, "iterations", "rounds"):
        raise UsageError(f"--turns is iterations or rounds, not {turns!r}")
    if length is not None and turns == "rounds":
        raise UsageError("--turn-length is of turns by iteration; leave it out with --turns rounds")
    asked = cast('Literal["iterations", "rounds"] | None', turns or (None if length is None else "iterations"))
    refused = turns_refused(launcher) if runs_at_once == 1 else "--parallel lets runs work at the same time"
    on_gpu = machine.device == "cuda"
    if on_gpu and asked is None:
        refused = refused or "none were taken on several GPUs yet; --turns iterations has rows take them"
    return Turning(
        asked=asked,
        length=length,
        refused=refused,
        device_name=machine.device_name,
        room_bytes=machine.device_memory_bytes if on_gpu else machine.host_memory_bytes,
    )


def tell_of_turns(plan: Plan, to_do: Collection[str]) -> None:
    """Lines on standard error: why rows are run in rounds, and which runs have lost their partners."""
    for reason in plan.in_rounds:
        warn("note: ", f"rounds, not turns by iteration: {reason}")
    starts = [(start_of(manifest, plan.seats), manifest) for manifest in plan.manifests if manifest.hash in plan.seats]
    made = {start for start, manifest in starts if manifest.run.id not in to_do}
    alone = [manifest.run.id for start, manifest in starts if start in made and manifest.run.id in to_do]
    if alone:
        more = len({manifest.run.repeat for _, manifest in starts})
        warn(
            "note: ",
            f"{', '.join(alone)}: measured without rows that were measured before, so there is no ratio to them; "
            f"--repeats {2 * more} has all take turns {more} times more",
        )
