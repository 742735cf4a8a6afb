"""Generation in an engine, or on ranks, of its own: generate, sync and train apart, and how well the stacks agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.rollout import Generation, Overlap
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import UNKNOWN, counted, gib, number
from suite.report.text.columns import LABEL, Shown, seconds, table_of
from suite.report.text.section import Block, Section

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


SECTION = Section("Generation and weight sync", _blocks, is_beside=True)
