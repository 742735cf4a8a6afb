"""What a reader must know of how the runs were read."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import prose
from suite.report.text.section import Block, Section, bullets, few


def _blocks(model: ReportModel) -> Iterator[Block]:
    yield bullets(few([prose(line) for line in model.caveats]))


SECTION = Section("Caveats", _blocks, needs_rows=False, is_folded=True)
