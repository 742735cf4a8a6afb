"""What a report shows, as data: built from records and manifests alone, in one order, without a clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from suite.bundle.imported.record import ImportedRow
from suite.report.facts.conventions import clock_lines, conventions, experimental_lines, recorded_conventions
from suite.report.facts.entry import BundleDigest, Entry, ReportEvidence
from suite.report.facts.machines import Machine, assign_machines
from suite.report.facts.network import NetworkLine, network_lines, network_runs, slow_networks
from suite.report.facts.noise import share_noise, two_mode_lines
from suite.report.facts.pool import Row, group_entries, pool_rows
from suite.report.facts.ranking import Ranking, SideBySide, rank, side_by_side
from suite.report.facts.scaling import Scalings, scale
from suite.report.facts.suspect import FailureRow, doubt_lines, failure_rows
from suite.report.facts.work import (
    ModelFacts,
    WorkDifference,
    WorkFacts,
    algorithms,
    model_facts,
    work_differences,
    work_facts,
)
from suite.report.formatting.numbers import listed


@dataclass(frozen=True)
class ReportModel:
    """Everything a view shows. ``started`` and ``ended`` are Unix seconds of the first and the last run. ``imported``:
    what other tools told of their runs, which is in nothing else."""

    title: str
    started: float | None
    ended: float | None
    runs: int
    runs_ok: int
    runs_interrupted: int
    algorithms: tuple[str, ...]
    models: tuple[ModelFacts, ...]
    work: tuple[WorkFacts, ...]
    rows: tuple[Row, ...]
    ranking: Ranking
    beside: tuple[SideBySide, ...]
    work_differences: tuple[WorkDifference, ...]
    scaling: Scalings
    failures: tuple[FailureRow, ...]
    machines: tuple[Machine, ...]
    networks: tuple[NetworkLine, ...]
    conventions: tuple[str, ...]
    recorded_conventions: tuple[str, ...]
    caveats: tuple[str, ...]
    evidence: ReportEvidence
    imported: tuple[ImportedRow, ...] = ()

    @property
    def several_kinds(self) -> bool:
        return len({row.work for row in self.rows}) > 1

    @property
    def alone(self) -> tuple[Row, ...]:
        """Rows with a rate and no other row of equal work, of their own kind or another."""
        paired = {side.row.number for group in self.beside for side in group.sides}
        return tuple(row for row in self.ranking.apart if row.number not in paired)


def build(
    entries: Sequence[Entry],
    title: str | None = None,
    caveats: Sequence[str] = (),
    read_from: ReportEvidence | None = None,
    with_suspect: bool = False,
    imported: Sequence[ImportedRow] = (),
) -> ReportModel:
    """In whatever order runs are given. ``caveats``: of how they were read; what the runs tell is added. Without
    ``read_from`` there is no digest over all bundles. ``with_suspect``: suspect runs count like the others."""
    entries = sorted(entries, key=lambda entry: (entry.record.run.id, entry.path))
    letters, machines = assign_machines(entries)
    groups = group_entries(entries, letters)
    rows = share_noise(pool_rows(groups, with_suspect))
    comparable = [row for row in rows if row.is_ranked]
    networks = network_runs(rows, groups)
    runs = [entry.record.run for entry in entries]
    states = [entry.record.status for entry in entries]
    bundles = tuple(BundleDigest(entry.path, entry.digest) for entry in entries)
    names = algorithms(entries)
    ranking, scaling = rank(comparable), scale(comparable)
    paired = [one.row for group in ranking.groups for one in group.places if one.paired_rounds]
    paired += [one.row for curve in scaling.curves for one in curve.points if one.paired_rounds]
    return ReportModel(
        title=title
        or ("Imported logs" if imported and not entries else f"{listed(names)} throughput, scaling and memory"),
        started=min((run.started for run in runs if run.started is not None), default=None),
        ended=max((run.ended for run in runs if run.ended is not None), default=None),
        runs=len(entries),
        runs_ok=states.count("ok"),
        runs_interrupted=states.count("interrupted"),
        algorithms=names,
        models=model_facts(entries),
        work=work_facts(entries),
        rows=rows,
        ranking=ranking,
        beside=side_by_side(comparable),
        work_differences=work_differences(rows),
        scaling=scaling,
        failures=failure_rows([group.entries for group in groups]),
        machines=machines,
        networks=network_lines(networks),
        conventions=conventions(entries, any(row.setting.turns == "rounds" for row in paired)),
        recorded_conventions=recorded_conventions(entries),
        caveats=(
            *caveats,
            *clock_lines(rows),
            *doubt_lines(rows),
            *slow_networks(networks),
            *two_mode_lines(rows),
            *experimental_lines(entries),
        ),
        evidence=replace(read_from or ReportEvidence(), bundles=bundles),
        imported=tuple(sorted(imported, key=lambda row: (row.record.id, row.path))),
    )
