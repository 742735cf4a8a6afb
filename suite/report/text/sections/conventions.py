"""How the figures were made, by the report's own conventions and by those that the records carry."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import prose
from suite.report.text.section import Section, bullets


def _blocks(model: ReportModel) -> Iterator[str]:
    yield bullets([*model.conventions, *map(prose, model.recorded_conventions)])


SECTION = Section("Conventions", _blocks)
