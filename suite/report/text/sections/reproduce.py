"""One command per row that runs it again from its manifest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import fenced, visible
from suite.report.formatting.numbers import counted
from suite.report.text.section import Section


def _blocks(model: ReportModel) -> Iterator[str]:
    yield "One command per row; it takes everything from the manifest, whose hash is shown."
    yield fenced([line for row in model.rows for line in _command(row)], "sh")


def _command(row: Row) -> tuple[str, str]:
    names = visible(f"{row.size} {row.backend} {row.layout}")
    launcher = " --launcher docker" if row.launcher == "docker" else ""
    return (
        f"# {row.name}: {names}, {counted(row.ranks, 'rank')}, manifest {row.manifest_hash}",
        f"suite rerun {shlex.quote(visible(row.path, 4096).rstrip('/') + '/manifest.json')}{launcher}",
    )


SECTION = Section("Reproduce", _blocks)
