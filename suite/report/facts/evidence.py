"""What a report rests on: the digests of its bundles, and one over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.report.facts.entry import Entry


@dataclass(frozen=True)
class ReadFrom:
    """Where runs were read. ``digest``: over all bundles there, those left out too; null where one has none."""

    paths: tuple[str, ...]
    digest: str | None


@dataclass(frozen=True)
class BundleDigest:
    """A run's bundle with the digest of its evidence (docs/evidence.md); null where it has none."""

    path: str
    digest: str | None


@dataclass(frozen=True)
class ReportEvidence:
    """``digest``: over all bundles below ``paths``. ``bundles``: those that the report is made of."""

    digest: str | None
    paths: tuple[str, ...]
    bundles: tuple[BundleDigest, ...]


def report_evidence(entries: Sequence[Entry], read_from: ReadFrom | None) -> ReportEvidence:
    """Of entries in the order of the report."""
    bundles = tuple(BundleDigest(path=entry.path, digest=entry.digest) for entry in entries)
    if read_from is None:
        return ReportEvidence(None, (), bundles)
    return ReportEvidence(read_from.digest, read_from.paths, bundles)
