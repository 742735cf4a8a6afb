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
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, counted, gib, interval, number, percent
from suite.report.text.section import LABEL, Block, Shown, label, rate, seconds, shown, table_of
from suite.spec.layout import Layout
from suite.stats.intervals import Interval

_PHASES = ("sync", "generate", "train")
_WHAT = (
    "Rows whose samples are not generated on the training stack of the same ranks. Sync: the policy's weights go to "
    "what generates. Seconds per iteration, and share of it in percent."
)
_MEMORY = (
    "Whether the engine keeps its weights and cache while the policy trains, and GiB in use at the peak of each phase: "
    "allocated on a GPU, resident on a CPU, the greatest of all runs."
)
_MISMATCH = (
    "Log-probs of the generated tokens, the engine's own against those of the policy that trains: absolute difference "
    "per token, and effective sample size of the importance weights between them (100 %: full agreement)."
)
_SPLIT = (
    "Where ranks of their own generate the next batch while the others train, an iteration lasts from one training's "
    "end to the next, and the two do not add up to it. Exposed: what training waited for samples, its phase generate. "
    "Staleness: how many updates the weights that generated lag behind those that train. GiB: the greatest peak of "
    "each side's ranks."
)
_PERIODS = (
    "An iteration of these rows is the period from one publication of weights to the next, while samples for later "
    "ones are generated. What filled the pipeline before the first is in none. Rates count the samples that were "
    "consumed. Staleness: the share of them that were so many publications old; the layout's async is the most that is "
    "allowed. Exposed: what training waited for samples."
)
_ROLES = (
    "How long a device of each role worked in a period, in the mean over its devices. Roles work at the same time, so "
    "their seconds do not add up:"
)
_TOKENS = "Tokens of the samples of one iteration, the same in every iteration and on every backend and layout."
_COST = (
    "Padded: share of the trained positions. Idle slots: share of the token steps that samples which have ended wait "
    "for the longest one of their replica, by the lengths alone. Lost: what a complete mean sample waits for it. Idle "
    "ranks: what ranks wait for the slowest one."
)
_LENGTHS = (
    *(Column("rows", False), Column("workload", False), Column("samples"), Column("tokens of", False)),
    *map(Column, ("mean", "p50", "p90", "p99", "longest", "at the cap %")),
)


def generation(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.measured and _generates_apart(row.manifest.layout)]
    if not rows:
        return
    yield _WHAT
    columns: list[Shown] = [(Column("engine", False), _engine)]
    columns += [(Column(f"{name} s"), seconds(name)) for name in _PHASES]
    columns += [(Column("iteration s"), shown("iteration_seconds"))]
    yield table_of([LABEL, *columns], rows)
    together = [row for row in rows if not row.manifest.layout.generation_ranks]
    memory: list[Shown] = [
        (Column("while training", False), lambda row: "asleep" if row.manifest.layout.engine_sleep else "awake")
    ]
    memory += [(Column(f"{name} GiB"), _peak(name)) for name in _PHASES]
    if together:
        yield _MEMORY
        yield table_of([LABEL, *memory], together)
    known = [row for row in rows if row.rollout.logprob_difference_mean is not None]
    if known:
        yield _MISMATCH
        mismatch: list[Shown] = [
            (Column("mean difference"), shown("rollout.logprob_difference_mean")),
            (Column("greatest"), shown("rollout.logprob_difference_max")),
            (Column("effective samples %"), shown("rollout.effective_sample_size", lambda share: f"{100 * share:.1f}")),
        ]
        yield table_of([LABEL, *mismatch], known)
    split = [row for row in rows if row.manifest.layout.generation_ranks and not _order(row)]
    if split:
        yield _SPLIT
        stale: list[Shown] = [
            (Column("generating ranks"), lambda row: str(row.manifest.layout.generation_ranks)),
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
    ranks = counted(layout.generation_ranks, "rank")
    return f"{own}, on {ranks} of its own{_order(row)}" if layout.generation_ranks else own


def _order(row: Row) -> str:
    """Ranks that only generate do the next batch while the others train; those of trainers as far ahead as a queue lets
    them, or in turn with the others."""
    if row.setting.asynchronous:
        return ", asynchronous"
    return "" if row.setting.kind == "engine" else ", in turn"


def _peak(name: str) -> Callable[[Row], str]:
    return shown("memory.by_phase", lambda phases: gib(next((it.peak_bytes for it in phases if it.name == name), None)))


def asynchronous(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.rollout.roles]
    if not rows:
        return
    yield _PERIODS
    columns: list[Shown] = [
        (Column("period s [95 %]"), _period),
        (Column("consumed samples/s [95 %]"), rate),
        (Column("exposed s"), shown("rollout.exposed")),
        (Column("staleness", False), shown("rollout.ages", _histogram)),
    ]
    yield table_of([LABEL, *columns], rows)
    yield _ROLES
    roles: list[tuple[Column, Callable[[tuple[Row, RoleUse]], str]]] = [
        (LABEL[0], lambda of: label(of[0])),
        (Column("role", False), lambda of: of[1].name),
        (Column("devices"), lambda of: str(of[1].ranks)),
        (Column("busy s"), lambda of: number(of[1].busy_seconds)),
        (Column("busy % [95 %]"), lambda of: interval(of[1].busy_share.scaled(100), bound_digits=1)),
    ]
    yield table_of(roles, [(row, role) for row in rows for role in row.rollout.roles])


def _period(row: Row) -> str:
    rate, samples = row.samples_per_second, row.samples_per_iteration
    if rate is None or samples is None:
        return UNKNOWN
    low, high = (None if bound is None else samples / bound for bound in (rate.high, rate.low))
    return interval(Interval(samples / rate.value, low, high))


def _histogram(staleness: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{age}: {percent(share)} %" for age, share in staleness)


def lengths(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.rollout.lengths]
    if not rows:
        return
    yield _TOKENS
    yield Table(_LENGTHS, tuple(_length_cells(rows)))
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


def _length_cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Two lines for the rows that share their samples, of which the first alone names them."""
    alike = grouped(((row.manifest.workload.name, row.lengths_hash), row) for row in rows)
    for (workload, _), members in alike.items():
        lengths, samples = members[0].rollout.lengths, members[0].manifest.work.global_rollouts
        assert lengths is not None, "only uneven rows are shown"
        names = row_names([row.number for row in members])
        yield (names, inline(workload), str(samples), "prompts", *_figures(lengths.prompt))
        yield ("", "", "", "responses", *_figures(lengths.response))


def _figures(one: LengthSummary) -> tuple[str, ...]:
    whole = (f"{tokens:,}" for tokens in (one.p50, one.p90, one.p99, one.max))
    return number(one.mean), *whole, percent(one.at_cap)


def _batches(row: Row) -> str:
    layout = row.manifest.layout
    return ("packed" if layout.packing else "padded") + ", balanced" * layout.balance


def _lost_share(row: Row) -> str:
    lost = row.rollout.idle_slot_seconds
    return percent(lost / row.iteration_seconds) if lost is not None and row.iteration_seconds else UNKNOWN
