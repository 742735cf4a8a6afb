"""The report as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline
from suite.report.formatting.numbers import counted, moment
from suite.report.text.section import Section, bullets
from suite.report.text.sections import SECTIONS
from suite.report.text.summary import sentences


def render(model: ReportModel, plots: Mapping[str, str], sections: Sequence[Section] = SECTIONS) -> str:
    """The text of the report. ``plots``: name of a plot -> its path as the report links to it."""
    blocks = [f"# {inline(model.title)}", bullets(sentences(model, inline)), _when(model)]
    for section in sections:
        blocks += section.markdown(model, plots)
    return "\n\n".join(blocks) + "\n"


def _when(model: ReportModel) -> str:
    if model.started is None:
        return f"{counted(model.runs, 'run')}."
    return f"{counted(model.runs, 'run')}, made from {moment(model.started)} to {moment(model.ended)}."
