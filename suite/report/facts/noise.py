"""What the rows of a folder share of their noise, which of their runs stand apart, and which rows took turns."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from suite.report.facts.pool import Row, TwoModes, unbounded
from suite.stats.intervals import log_rates, pooled_rate
from suite.stats.moderated import Prior, mean_of, moderate, slow_runs
from suite.stats.rounds import InTurns, Rounds, find_rounds


def share_noise(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with intervals from the variance that is moderated over all rows of a machine and kind of device; those
    of suspect runs alone share nothing."""
    alike: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for row in rows:
        if row.is_ranked:
            alike[place_of(row)].append(log_rates(row.measured))
    priors = {place: moderate(found) for place, found in alike.items()}
    return tuple(_with(row, priors[place_of(row)]) if row.measured and row.is_ranked else row for row in rows)


def two_mode_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """Of rows with runs that are slower than the others by more than noise."""
    return tuple(
        f"{row.name}: {found.slow} of {found.runs} runs {'is' if found.slow == 1 else 'are'} {found.loss:.1%} slower "
        f"than the others (two modes); its rate is of all of them, and its interval need not hold that of either"
        for row in rows
        if (found := row.two_modes) is not None
    )


def place_of(row: Row) -> tuple[str, str]:
    """Machine and kind of device: rows of one place share noise."""
    return row.setting.machine, row.setting.device


def _with(row: Row, prior: Prior | None) -> Row:
    rate = unbounded(pooled_rate(row.measured, prior), len(row.measured))
    before, tokens, per_device = row.samples_per_second, row.tokens_per_second, row.tokens_per_second_per_device
    assert before and tokens and per_device, "a measured row has rates"
    logs = log_rates(row.measured)
    apart = slow_runs(logs, prior)
    slow, others = [logs[index] for index in apart], [log for index, log in enumerate(logs) if index not in apart]
    return replace(
        row,
        samples_per_second=rate,
        tokens_per_second=rate.scaled(tokens.value / before.value),
        tokens_per_second_per_device=rate.scaled(per_device.value / before.value),
        prior=prior,
        two_modes=TwoModes(len(slow), len(logs), 1 - math.exp(mean_of(slow) - mean_of(others))) if slow else None,
    )


#: By machine and kind of device; null where rows there are compared as independent ones.
RoundsByPlace = dict[tuple[str, str], Rounds | None]


def rounds_of(groups: Sequence[Sequence[Row]]) -> RoundsByPlace:
    """For the machines of these groups, each of which is compared within itself: whether by differences in rounds."""
    found: dict[tuple[str, str], list[Sequence[Row]]] = defaultdict(list)
    for group in groups:
        found[place_of(group[0])].append(group)
    return {
        place: find_rounds([[in_turns(row) for row in group] for group in alike], alike[0][0].prior)
        for place, alike in found.items()
    }


def in_turns(row: Row) -> InTurns:
    """The runs of the row that count, each with its turn."""
    return InTurns(row.measured, row.turns)
