"""Runs that were started together and take turns by iteration: what is compared meets the same machine."""

import selectors
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, closing
from secrets import token_hex
from typing import TYPE_CHECKING, cast

from suite.conduct.planning.turns import turns_refused
from suite.conduct.running.at_once import AtOnce
from suite.conduct.running.ledger import Ledger, Settings, View
from suite.conduct.running.session import one_by_one
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Launcher
from suite.launch.requests import Stops
from suite.launch.turns import MOST_LENGTH, Arbiter, Listener, Start
from suite.spec.base import UsageError, digest
from suite.spec.manifest import Manifest

if TYPE_CHECKING:
    from suite.launch.docker.launcher import DockerLauncher

#: What a run of short iterations has of turns at least, where their length is not given.
LEAST_TURNS = 6
#: Equal of runs that are started together; null of one that is alone.
Group = Callable[[Manifest], Hashable | None]


def in_turns(ledger: Ledger, settings: Settings, launcher: Launcher, view: View, group: Group) -> bool:
    """A way to run a plan: runs of one ``group`` are started together and take turns by iteration.

    Of such runs those take part that are still to be made: where others were made before, they are of another start.
    Raises UsageError for a group where ``turns_refused`` has a reason.
    """
    while ledger.waiting:
        if _start(ledger, settings, launcher, view, group):
            return True
    return False


def _start(ledger: Ledger, settings: Settings, launcher: Launcher, view: View, group: Group) -> bool:
    """Make the next run of the ledger, with those that take turns with it; whether somebody asked to stop."""
    first = ledger.waiting[0]
    key = group(first)
    if key is None:
        return one_by_one(ledger, settings, launcher, view, most=1)
    reason = turns_refused(launcher)
    if reason is not None:
        raise UsageError(f"rows cannot take turns by iteration: {reason}; --turns rounds runs one after the other")
    able = cast("LocalLauncher | DockerLauncher", launcher)
    taken: list[Manifest] = []
    while manifest := ledger.take(lambda waiting: group(waiting) == key, is_begun=bool(taken)):
        taken.append(manifest)
    if not taken:
        return False
    listener = Listener(shared=not isinstance(launcher, LocalLauncher))
    try:
        with able.together():
            return InTurns(ledger, settings, able, taken, view, listener).work()
    finally:
        listener.close()


class InTurns(AtOnce):
    """The runs of one start."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        launcher: "LocalLauncher | DockerLauncher",
        taken: Sequence[Manifest],
        view: View,
        listener: Listener,
    ) -> None:
        """``taken``: from the ledger."""
        super().__init__(ledger, settings, view, len(taken))
        rows = tuple(sorted(manifest.run.id for manifest in taken))
        self._launcher, self._listener, self._left = launcher, listener, [*taken]
        self._lengths = _turn_lengths(taken)
        self._ranks = {manifest.run.id: manifest.layout.ranks for manifest in taken}
        start = digest({"rows": rows, "token": token_hex(16)})
        self._together = Start(start, rows, listener.address, listener.folder)
        self._arbiter: Arbiter | None = None

    def attending(self, selector: selectors.BaseSelector) -> AbstractContextManager[object]:
        self._arbiter = Arbiter(selector, self._listener, self._ranks, self._together.id, self._lengths)
        return closing(self._arbiter)

    def start(self) -> Start | None:
        return self._together

    def following(self) -> Manifest | None:
        return self._left.pop(0) if self._left else None

    def launcher(self, manifest: Manifest, stops: Stops) -> Launcher:
        if isinstance(self._launcher, LocalLauncher):
            return self._launcher.beside(stops, self.in_main_thread)
        return self._launcher.beside(stops)

    def ended(self, manifest: Manifest) -> None:
        assert self._arbiter is not None, "the wait began before"
        self._arbiter.end(manifest.run.id)


def _turn_lengths(taken: Sequence[Manifest]) -> tuple[int, int]:
    """Fewest and most iterations of a turn. Of one of two, half of all iterations would not count."""
    given = taken[0].measure.turn_length
    if given is not None:
        return given, given
    most = min(MOST_LENGTH, min(manifest.iterations for manifest in taken) // LEAST_TURNS)
    return 1, most if most > 2 else 1
