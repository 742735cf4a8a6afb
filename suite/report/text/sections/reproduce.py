"""One command per row that runs it again from its manifest, and the digests of the evidence with theirs."""

import shlex
from collections.abc import Iterator

from suite.launch.cluster.registry import CLUSTER_LAUNCHERS
from suite.report.facts.entry import ReportEvidence
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import visible
from suite.report.text.section import Block, Listing, Section

#: The file beside the Markdown that lists every bundle.
DIGESTS = "digests.txt"


def _blocks(model: ReportModel) -> Iterator[Block]:
    yield "One command per row; it takes everything from the manifest."
    if any(row.launcher in CLUSTER_LAUNCHERS for row in model.rows):
        yield (
            "A cluster's own options, such as a partition, follow a `--`; `suite submit LAUNCHER --manifest FILE` "
            "submits the same runs without waiting for them."
        )
    yield Listing(tuple(_command(row) for row in model.rows), "sh")
    yield from _evidence(model.evidence)


def _command(row: Row) -> str:
    more = "".join(f" {shlex.quote(visible(word, 4096))}" for word in row.rerun_options)
    manifest = shlex.quote(visible(row.path, 4096).rstrip("/") + "/manifest.json")
    return f"suite rerun {manifest}{more} # {row.name}"


def _evidence(evidence: ReportEvidence) -> Iterator[Block]:
    """The command that fails where any byte of any bundle is another one, and each bundle's own digest."""
    if evidence.digest is not None:
        yield "This fails unless every bundle is byte for byte the one that this report was made of."
        paths = " ".join(shlex.quote(visible(path, 4096)) for path in evidence.paths)
        yield Listing((f"suite verify {paths} --digest {evidence.digest}",), "sh")
    lines = [f"{bundle.digest}  {visible(bundle.path, 4096)}" for bundle in evidence.bundles if bundle.digest]
    if lines:
        yield "Digests of the bundles (SHA-256 over the list of a bundle's files):"
        yield Listing(tuple(lines), file=DIGESTS)


SECTION = Section("Reproduce", _blocks, is_folded=True)
