"""How long runs will take, from the runs of this session."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from suite.spec.manifest import Manifest


class Durations:
    """Seconds per row of the plan as seen so far; a row not seen yet is expected to take the mean of the others."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def note(self, manifest: Manifest, seconds: float) -> None:
        self._seen.setdefault(manifest.hash, []).append(seconds)

    def expect(self, manifest: Manifest) -> float | None:
        """Seconds that this run should take, or ``None`` while its row was never run."""
        seen = self._seen.get(manifest.hash)
        return fmean(seen) if seen else None

    def expect_all(self, manifests: Sequence[Manifest]) -> float | None:
        """Seconds for all of them, or ``None`` while nothing was run yet."""
        if not self._seen:
            return None
        usual = fmean(fmean(seen) for seen in self._seen.values())
        return sum(self.expect(manifest) or usual for manifest in manifests)
