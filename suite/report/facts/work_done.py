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
    told = {phase.name for phase in row.phases}
    return (*(getattr(row.counts, name) for name in COUNTED), *(name in told for name in PASSES))
