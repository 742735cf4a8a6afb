"""Which jobs a new one waits for, so that no more runs than asked for are under way and measure each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class Lanes:
    """As many lanes as runs may be under way at once; in each a job waits for those before it.

    An array keeps to that number by itself, and so takes all lanes.
    """

    def __init__(self, at_once: int, ahead: Sequence[str] = (), after_good: Sequence[str] = ()) -> None:
        """``ahead``: jobs that wait or run already. ``after_good``: jobs that must end well before any of these."""
        self._after_good = tuple(after_good)
        self._lanes: list[tuple[str, ...]] = [tuple(ahead[lane::at_once]) for lane in range(at_once)]
        self._next = len(ahead) % at_once

    def dependency(self, takes_all: bool = False) -> str | None:
        """What the next job waits for, in sbatch's words; ``None``: for nothing."""
        lanes = self._lanes if takes_all else [self._lanes[self._next]]
        jobs = dict.fromkeys(job for lane in lanes for job in lane)
        words = [f"afterok:{':'.join(self._after_good)}"] if self._after_good else []
        words += [f"afterany:{':'.join(jobs)}"] if jobs else []
        return ",".join(words) or None

    def options(self, takes_all: bool = False) -> tuple[str, ...]:
        """The same as options of sbatch. What a failed first run keeps from starting for ever is cancelled."""
        dependency = self.dependency(takes_all)
        return () if dependency is None else (f"--dependency={dependency}", "--kill-on-invalid-dep=yes")

    def take(self, job: str, takes_all: bool = False) -> None:
        """The next job has been submitted."""
        if takes_all:
            self._lanes = [(job,)] * len(self._lanes)
        else:
            self._lanes[self._next] = (job,)
            self._next = (self._next + 1) % len(self._lanes)
