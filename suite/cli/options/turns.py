"""``--turns``: which rows of a plan are started together, as far as this host and launcher allow it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, cast

from suite.spec.base import UsageError

if TYPE_CHECKING:
    from suite.conduct.planning.machine import Machine
    from suite.conduct.planning.plan import Plan
    from suite.conduct.planning.turns import Turning
    from suite.launch.outcome import Launcher


def turning_here(
    turns: str | None, length: int | None, machine: Machine, launcher: Launcher, runs_at_once: int
) -> Turning:
    """What the options ask for, and what speaks against it here. Raises UsageError."""
    from suite.conduct.planning.turns import Turning
    from suite.conduct.running.in_turns import turns_refused

    if turns not in (None, "iterations", "rounds"):
        raise UsageError(f"--turns is iterations or rounds, not {turns!r}")
    if length is not None and turns == "rounds":
        raise UsageError("--turn-length is of turns by iteration; leave it out with --turns rounds")
    asked = cast('Literal["iterations", "rounds"] | None', turns or (None if length is None else "iterations"))
    refused = turns_refused(launcher) if runs_at_once == 1 else "--parallel lets runs work at the same time"
    on_gpu = machine.device == "cuda"
    if on_gpu and asked is None:
        refused = refused or "none were taken on a GPU yet; --turns iterations has rows take them"
    return Turning(
        asked=asked,
        length=length,
        refused=refused,
        device_name=machine.device_name,
        room_bytes=machine.device_memory_bytes if on_gpu else machine.host_memory_bytes,
    )


def tell_of_turns(plan: Plan, to_do: Collection[str]) -> None:
    """Lines on standard error: why rows are run in rounds, and which runs have lost their partners."""
    from suite.cli.options.check import warn
    from suite.conduct.planning.rows import start_of

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
