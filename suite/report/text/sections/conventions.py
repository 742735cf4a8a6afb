"""How the report makes its figures."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.text.section import Block, Section, bullets


def _blocks(model: ReportModel) -> Iterator[Block]:
    yield bullets(model.conventions)


SECTION = Section("Conventions", _blocks, is_folded=True)
