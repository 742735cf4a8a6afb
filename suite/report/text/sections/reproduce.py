"""One command per row that runs it again from its manifest, and the digests of the evidence with theirs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from suite.launch.cluster.registry import CLUSTER_LAUNCHERS
from suite.report.facts.evidence import ReportEvidence
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import fenced, visible
from suite.report.formatting.numbers import counted
from suite.report.text.section import Section, few


def _blocks(model: ReportModel) -> Iterator[str]:
    yield "One command per row; it takes everything from the manifest, whose hash is shown."
    if any(row.launcher in CLUSTER_LAUNCHERS for row in model.rows):
        yield (
            "A cluster's own options, such as a partition, follow a `--`; `suite submit LAUNCHER --manifest FILE` "
            "submits the same runs without waiting for them."
        )
    yield fenced([line for row in model.rows for line in _command(row)], "sh")
    yield from _evidence(model.evidence)


def _command(row: Row) -> tuple[str, str]:
    names = visible(f"{row.size} {row.backend} {row.layout}")
    more = "".join(f" {shlex.quote(visible(word, 4096))}" for word in row.rerun_options)
    return (
        f"# {row.name}: {names}, {counted(row.ranks, 'rank')}, manifest {row.manifest_hash}",
        f"suite rerun {shlex.quote(visible(row.path, 4096).rstrip('/') + '/manifest.json')}{more}",
    )


def _evidence(evidence: ReportEvidence) -> Iterator[str]:
    """The command that fails where any byte of any bundle is another one, and each bundle's own digest."""
    if evidence.digest is not None:
        yield "This fails unless every bundle below is byte for byte the one that this report was made of."
        paths = " ".join(shlex.quote(visible(path, 4096)) for path in evidence.paths)
        yield fenced([f"suite verify {paths} --digest {evidence.digest}"], "sh")
    lines = [f"{bundle.digest}  {visible(bundle.path, 4096)}" for bundle in evidence.bundles if bundle.digest]
    if lines:
        yield "Digests of the bundles (SHA-256 over the list of a bundle's files):"
        yield fenced(few(lines))


SECTION = Section("Reproduce", _blocks)
