"""The report as GitHub Markdown."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from suite.report.facts.entry import Setting
from suite.report.facts.machines import Machine
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group
from suite.report.formatting.escape import fenced, inline, prose, visible
from suite.report.formatting.grid import grid
from suite.report.formatting.numbers import counted, moment
from suite.report.text import tables, trainer_tables
from suite.report.text.ranking_table import ranking_table
from suite.report.text.summary import sentences
from suite.report.text.without_scoring import without_scoring

_MOST_LINES = 100


def render(model: ReportModel, plots: Mapping[str, str]) -> str:
    """The text of the report. ``plots``: name of a plot -> its path as the report links to it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("suite.report.text"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["grid"] = grid
    text = environment.get_template("report.md.j2").render(_view(model, plots))
    return _squeeze(text)


def _view(model: ReportModel, plots: Mapping[str, str]) -> dict[str, Any]:
    by_kind = {kind: [curve for curve in model.scaling.curves if curve.kind == kind] for kind in ("weak", "strong")}
    return {
        "title": inline(model.title),
        "summary": sentences(model, inline),
        "when": _when(model),
        "caveats": _few([prose(line) for line in model.caveats]),
        "rows": model.rows,
        "rankings": _rankings(model.ranking.groups),
        "headings": len({row.setting for row in model.rows}) > 1,
        "unranked": _unranked(model),
        "apart": tables.apart(_apart(model)),
        "beside": trainer_tables.beside(model.beside),
        "common": _common(model.rows),
        "throughput": tables.throughput(model),
        "phases": tables.phases(model),
        "parts": trainer_tables.parts(model),
        "without_scoring": without_scoring(model),
        "memory": tables.memory(model),
        "energy": tables.energy(model),
        "weak": tables.scaling(by_kind["weak"]),
        "strong": tables.scaling(by_kind["strong"]),
        "shared_cpu": _shared_cpu(model),
        "alone": ", ".join(row.name for row in model.scaling.alone) if model.scaling.curves else "",
        "failures": tables.failures(model.failures, model),
        "machines": [(machine.letter, tables.machine(machine), _notes(machine)) for machine in model.machines],
        "differences": _few(
            [f"{inline(one.backend)} ({', '.join(one.rows)}): {prose(one.text)}." for one in model.work_differences]
        ),
        "work": [f"{inline(fact.name)}: {fact.text}." for fact in model.work],
        "conventions": [*model.conventions, *map(prose, model.recorded_conventions)],
        "reproduce": _reproduce(model.rows),
        "plots": {name: quote(path) for name, path in plots.items()},
    }


def _apart(model: ReportModel) -> tuple[Row, ...]:
    """Rows that nothing stands beside, where there is something that they could have stood beside."""
    return model.alone if model.ranking.groups or len(_works(model)) > 1 else ()


def _works(model: ReportModel) -> set:
    """Distinct work on equally many ranks of one size: more of it than sizes and ranks means that work differs."""
    return {row.work_hash for row in model.rows if row.measured}


def _when(model: ReportModel) -> str:
    if model.started is None:
        return f"{counted(model.runs, 'run')}."
    return f"{counted(model.runs, 'run')}, made from {moment(model.started)} to {moment(model.ended)}."


def _rankings(groups: Sequence[Group]) -> list[dict[str, Any]]:
    by_setting: dict[Setting, list[Group]] = defaultdict(list)
    for group in groups:
        by_setting[group.setting].append(group)
    return [
        {"heading": _heading(setting), "table": ranking_table(by_setting[setting])} for setting in sorted(by_setting)
    ]


def _heading(setting: Setting) -> str:
    whose = (
        "Engine backends (the suite's own PPO iteration)"
        if setting.kind == "engine"
        else "Trainer backends (the stack's own trainer)"
    )
    threads = f", {counted(setting.threads_per_rank, 'thread')} per rank" if setting.device == "cpu" else ""
    return f"{whose}: {setting.track}, {setting.precision} on {setting.device}{threads}, machine {setting.machine}"


def _unranked(model: ReportModel) -> str:
    if not any(row.measured for row in model.rows):
        return "No run ended well with an iteration that counts, so there is nothing to rank."
    kind = " of one kind" if model.beside else ""
    return f"No two configurations{kind} did equal work under equal conditions, so nothing is ranked."


def _common(rows: Sequence[Row]) -> str:
    shared = tables.common(rows)
    return f"All rows: {', '.join(shared)}." if shared else "The rows share no setting."


def _notes(machine: Machine) -> list[str]:
    return _few([f"{inline(fact.name)}: {prose(note)}" for fact in machine.notes for note in fact.values])


def _few(lines: list[str]) -> list[str]:
    """As many as somebody reads, and how many more there are."""
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], f"and {left} more"]


def _shared_cpu(model: ReportModel) -> str:
    """GivenOptions wherever the ranks of a curve are processes of one host's processor."""
    rows = [point.row for curve in model.scaling.curves for point in curve.points]
    if not any(row.setting.device == "cpu" and row.nodes < row.ranks for row in rows):
        return ""
    return (
        "On a CPU the ranks of a node share its cores and memory bandwidth, so eta here speaks of that machine and "
        "of the code's overhead, not of a network of devices."
    )


def _reproduce(rows: Sequence[Row]) -> str:
    return fenced(_commands(rows), "sh")


def _commands(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        names = f"{row.size} {row.backend} {row.layout}"
        lines.append(f"# {row.name}: {visible(names)}, {counted(row.ranks, 'rank')}, manifest {row.manifest_hash}")
        launcher = " --launcher docker" if row.launcher == "docker" else ""
        lines.append(f"suite rerun {shlex.quote(visible(row.path, 4096).rstrip('/') + '/manifest.json')}{launcher}")
    return lines


def _squeeze(text: str) -> str:
    """At most one blank line in a row, one newline at the end."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines).rstrip("\n") + "\n"
