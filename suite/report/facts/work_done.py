"""What the runs of a row did by their own count: rows that did other work are in no ranking together."""

from __future__ import annotations

from suite.report.facts.pool import Row

#: What a trainer may do more or less of than was asked for; padding is how, not what.
COUNTED = ("prompt_tokens", "response_tokens", "trained_tokens", "optimizer_steps", "trainable_parameters")
#: Passes of whole models over the samples, which no count holds.
PASSES = ("score", "reference")


def done_otherwise(row: Row) -> tuple:
    """Equal for rows that did the same: of a trainer its counts and the passes it makes; an engine's are as asked."""
    if row.setting.kind == "engine" or row.counts is None:
        return ()
    known = {phase.name for phase in row.phases}
    return (*(getattr(row.counts, name) for name in COUNTED), *(name in known for name in PASSES))


def otherwise(row: Row, other: Row) -> tuple[str, ...]:
    """In what a row's own counts and passes are not another's, each in words; empty where they did the same."""
    assert row.counts is not None and other.counts is not None, "a row with runs has counts"
    both = [(name, getattr(row.counts, name), getattr(other.counts, name)) for name in ("samples", *COUNTED)]
    counted = [
        f"{own:,} {name.replace('_', ' ')}, not {theirs:,}"
        for name, own, theirs in both
        if own is not None and theirs is not None and own != theirs
    ]
    counted += [f"{name.replace('_', ' ')} not told" for name, own, _ in both if own is None]
    own, theirs = ({phase.name for phase in one.phases} for one in (row, other))
    passes = [f"{'a' if name in own else 'no'} {name} pass" for name in PASSES if name in own ^ theirs]
    return (*counted, *passes)
