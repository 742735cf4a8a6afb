"""Generation by an engine or ranks of its own, and trainers that do it as far ahead as a queue lets them."""

from collections.abc import Callable, Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.rollout import Asynchronous, Generation, Overlap
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, counted, gib, interval, number, percent
from suite.report.text.columns import LABEL, Shown, label, rate, seconds, table_of
from suite.report.text.section import Block, Section
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
    "How long a device of each role worked in a period, in the mean over its devices, and how long it had nothing to "
    "do. Roles work at the same time, so their seconds do not add up:"
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.generation]
    if not rows:
        return
    yield _WHAT
    columns: list[Shown] = [(Column("engine", False), _shown(_engine))]
    columns += [(Column(f"{name} s"), seconds(name, lambda row: row.phases)) for name in _PHASES]
    columns += [(Column("iteration s"), lambda row: number(row.iteration_seconds))]
    yield table_of([LABEL, *columns], rows)
    together = [row for row in rows if row.generation and not row.generation.ranks]
    memory: list[Shown] = [(Column("while training", False), _shown(lambda one: "asleep" if one.asleep else "awake"))]
    memory += [(Column(f"{name} GiB"), _peak(name)) for name in _PHASES]
    if together:
        yield _MEMORY
        yield table_of([LABEL, *memory], together)
    known = [row for row in rows if row.generation and row.generation.logprob_difference_mean is not None]
    if known:
        yield _MISMATCH
        mismatch: list[Shown] = [
            (Column("mean difference"), _shown(lambda one: number(one.logprob_difference_mean))),
            (Column("greatest"), _shown(lambda one: number(one.logprob_difference_max))),
            (Column("effective samples %"), _shown(lambda one: _share(one.effective_sample_size))),
        ]
        yield table_of([LABEL, *mismatch], known)
    split = [row for row in rows if row.generation and row.generation.order == "ahead"]
    if split:
        yield _SPLIT
        stale: list[Shown] = [
            (Column("generating ranks"), _shown(lambda one: str(one.ranks))),
            (Column("staleness"), _shown(lambda one: UNKNOWN if one.staleness is None else str(one.staleness))),
            (Column("generating s"), _beside(lambda one: number(one.generating))),
            (Column("exposed s"), _beside(lambda one: number(one.exposed))),
            (Column("training s"), _beside(lambda one: number(one.training))),
            (Column("generating ranks idle s"), _beside(lambda one: number(one.waiting))),
            (Column("generating GiB"), _beside(lambda one: gib(one.generation_bytes))),
            (Column("training GiB"), _beside(lambda one: gib(one.training_bytes))),
        ]
        yield table_of([LABEL, *stale], split)


def _shown(show: Callable[[Generation], str]) -> Callable[[Row], str]:
    return lambda row: show(row.generation) if row.generation else UNKNOWN


def _beside(show: Callable[[Overlap], str]) -> Callable[[Row], str]:
    return _shown(lambda one: show(one.overlap) if one.overlap else UNKNOWN)


def _engine(one: Generation) -> str:
    own = "the stack's own" if one.engine == "hf" else inline(one.engine)
    order = "" if one.order == "ahead" else f", {one.order}"
    return f"{own}, on {counted(one.ranks, 'rank')} of its own{order}" if one.ranks else own


def _peak(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        found = [one.peak_bytes for one in row.memory.by_phase if one.name == name] if row.memory else []
        return gib(found[0]) if found else UNKNOWN

    return show


def _share(ratio: float | None) -> str:
    """To a tenth of a percent: what matters is how far it is from 100."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f}"


def _asynchronous(model: ReportModel) -> Iterator[Block]:
    rows = [(row, row.asynchronous) for row in model.rows if row.asynchronous]
    if not rows:
        return
    yield _PERIODS
    columns: list[Shown] = [
        (Column("period s [95 %]"), lambda row: interval(_period(row))),
        (Column("consumed samples/s [95 %]"), rate),
        (Column("exposed s"), _ahead(lambda one: number(one.exposed))),
        (Column("staleness", False), _ahead(_histogram)),
    ]
    yield table_of([LABEL, *columns], [row for row, _ in rows])
    yield _ROLES
    titles = (*(Column(title) for title in ("devices", "busy s", "busy % [95 %]", "idle % [95 %]")),)
    cells = [
        (
            *(label(row), role.name, str(role.ranks), number(role.busy_seconds)),
            *(interval(share.scaled(100), bound_digits=1) for share in (role.busy_share, role.idle_share)),
        )
        for row, one in rows
        for role in one.roles
    ]
    yield Table((Column("row", False), Column("role", False), *titles), tuple(cells))


def _ahead(show: Callable[[Asynchronous], str]) -> Callable[[Row], str]:
    return lambda row: show(row.asynchronous) if row.asynchronous else UNKNOWN


def _period(row: Row) -> Interval | None:
    """Seconds, by the rate and the samples of a period."""
    rate, samples = row.samples_per_second, row.samples_per_iteration
    if rate is None or samples is None:
        return None
    low, high = (None if bound is None else samples / bound for bound in (rate.high, rate.low))
    return Interval(samples / rate.value, low, high)


def _histogram(one: Asynchronous) -> str:
    """``0: 4 %, 1: 96 %``."""
    return ", ".join(f"{age}: {percent(share)} %" for age, share in one.staleness)


SECTION = Section("Generation and weight sync", _blocks, is_beside=True)
ASYNCHRONOUS = Section("Asynchronous trainers", _asynchronous, is_beside=True)
