"""Generation by an engine or ranks of its own, trainers that do it as far ahead as a queue lets them, and what uneven
samples cost."""

from collections.abc import Callable, Iterator, Sequence

from suite.bundle.record import LengthSummary
from suite.report.facts.entry import grouped
from suite.report.facts.model import ReportModel
from suite.report.facts.network import row_names
from suite.report.facts.pool import Row
from suite.report.facts.rollout import RoleUse
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import UNKNOWN, counted, gib, interval, number, percent
from suite.report.text.section import LABEL, Block, Shown, bullets, label, shown, table_of
from suite.spec.layout import Layout

_WHAT = (
    "Rows whose samples are not generated on the training stack of the same ranks. Log-probs of the generated tokens, "
    "the engine's own against those of the policy that trains: absolute difference per token, and effective sample "
    "size of the importance weights between them (100 %: full agreement)."
)
_SPLIT = (
    "Where ranks of their own generate the next batch while the others train, an iteration lasts from one training's "
    "end to the next, and the two do not add up to it. Exposed: what training waited for samples, its phase generate. "
    "Staleness: how many updates the weights that generated lag behind those that train. GiB: the greatest peak of "
    "each side's ranks."
)
_PERIODS = (
    "Staleness: the share of the consumed samples that were so many publications of weights old; the layout's async is "
    "the most that is allowed. Busy: how long a device of each role worked in a period, in the mean over its devices; "
    "roles work at the same time, so their seconds do not add up."
)
_TOKENS = "Tokens of the samples of one iteration, the same in every iteration and on every backend and layout."
_COST = (
    "Padded: share of the trained positions. Idle slots: share of the token steps that samples which have ended wait "
    "for the longest one of their replica, by the lengths alone. Lost: what a complete mean sample waits for it. Idle "
    "ranks: what ranks wait for the slowest one."
)


def generation(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.measured and _generates_apart(row.manifest.layout)]
    if not rows:
        return
    yield _WHAT
    columns: list[Shown] = [
        (Column("engine", False), _engine),
        (Column("mean difference"), shown("rollout.logprob_difference_mean")),
        (Column("greatest"), shown("rollout.logprob_difference_max")),
        (Column("effective samples %"), shown("rollout.effective_sample_size", lambda share: f"{100 * share:.1f}")),
    ]
    yield table_of([LABEL, *columns], rows)
    split = [row for row in rows if row.manifest.layout.generation_ranks and not _order(row)]
    if split:
        yield _SPLIT
        stale: list[Shown] = [
            (Column("staleness"), shown("rollout.staleness", str)),
            (Column("generating s"), shown("rollout.generating")),
            (Column("exposed s"), shown("rollout.exposed")),
            (Column("training s"), shown("rollout.training")),
            (Column("generating ranks idle s"), shown("rollout.waiting")),
            (Column("generating GiB"), shown("rollout.generation_bytes", gib)),
            (Column("training GiB"), shown("rollout.training_bytes", gib)),
        ]
        yield table_of([LABEL, *stale], split)


def _generates_apart(layout: Layout) -> bool:
    return layout.generation != "hf" or layout.placement != "colocated"


def _engine(row: Row) -> str:
    layout = row.manifest.layout
    own = "the stack's own" if layout.generation == "hf" else inline(layout.generation)
    if layout.generation_ranks:
        return f"{own}, on {counted(layout.generation_ranks, 'rank')} of its own{_order(row)}"
    return f"{own}, {'asleep' if layout.engine_sleep else 'awake'} while training"


def _order(row: Row) -> str:
    """Ranks that only generate do the next batch while the others train; those of trainers as far ahead as a queue lets
    them, or in turn with the others."""
    if row.setting.asynchronous:
        return ", asynchronous"
    return "" if row.setting.kind == "engine" else ", in turn"


def asynchronous(model: ReportModel) -> Iterator[Block]:
    roles = [(row, role) for row in model.rows for role in row.rollout.roles]
    columns: list[tuple[Column, Callable[[tuple[Row, RoleUse]], str]]] = [
        (LABEL[0], lambda of: label(of[0])),
        (Column("staleness", False), lambda of: _histogram(of[0].rollout.ages)),
        (Column("role", False), lambda of: of[1].name),
        (Column("devices"), lambda of: str(of[1].ranks)),
        (Column("busy s"), lambda of: number(of[1].busy_seconds)),
        (Column("busy % [95 %]"), lambda of: interval(of[1].busy_share.scaled(100), bound_digits=1)),
    ]
    if roles:
        yield _PERIODS
        yield table_of(columns, roles)


def _histogram(staleness: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{age}: {percent(share)} %" for age, share in staleness)


def lengths(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.rollout.lengths]
    if not rows:
        return
    yield _TOKENS
    yield bullets(_drawn(rows))
    yield _COST
    columns: list[Shown] = [
        (Column("batches", False), _batches),
        (Column("padded %"), shown("rollout.padded_share", percent)),
        (Column("idle slots %"), shown("rollout.idle_slot_share", percent)),
        (Column("lost s"), shown("rollout.idle_slot_seconds")),
        (Column("lost %"), _lost_share),
        (Column("idle ranks %"), shown("idle.share", percent)),
    ]
    yield table_of([LABEL, *columns], rows)


def _drawn(rows: Sequence[Row]) -> Iterator[str]:
    """A line for the rows that share their samples."""
    alike = grouped(((row.manifest.workload.name, row.lengths_hash), row) for row in rows)
    for (workload, _), members in alike.items():
        one, names = members[0].rollout.lengths, row_names([row.number for row in members])
        assert one is not None, "only uneven rows are shown"
        prompts, responses = _lengths(one.prompt), _lengths(one.response)
        samples = f"{inline(workload)}, {counted(members[0].manifest.work.global_rollouts, 'sample')}"
        yield f"{names} ({samples}): prompts {prompts}; responses {responses}."


def _lengths(one: LengthSummary) -> str:
    cap = "" if one.at_cap is None else f", {percent(one.at_cap)} % at the cap"
    return f"mean {number(one.mean)}, p50 {one.p50:,}, p90 {one.p90:,}, p99 {one.p99:,}, longest {one.max:,}{cap}"


def _batches(row: Row) -> str:
    layout = row.manifest.layout
    return ("packed" if layout.packing else "padded") + ", balanced" * layout.balance


def _lost_share(row: Row) -> str:
    lost = row.rollout.idle_slot_seconds
    return percent(lost / row.iteration_seconds) if lost is not None and row.iteration_seconds else UNKNOWN
