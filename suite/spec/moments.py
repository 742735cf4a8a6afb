"""A point in time as somebody types it: a day, a day with a time, or how long ago."""

from __future__ import annotations

from datetime import datetime, timezone

from suite.spec.base import UsageError
from suite.spec.typed import seconds, shown

_DAY_SECONDS = 86400


def moment_of(option: str, text: str, now: float) -> float:
    """``2026-11-01``, ``2026-11-01T18:00`` (UTC unless it names another zone), ``90m``, ``24h``, ``7d`` (so long before
    ``now``) in Unix seconds. Raises UsageError for anything else."""
    plain = text.strip()
    days = plain.removesuffix("d")
    if days != plain and days.isdecimal() and len(days) <= 5:
        return now - int(days) * _DAY_SECONDS
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        pass
    else:
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    try:
        return now - seconds(option, plain)
    except UsageError as error:
        raise UsageError(
            f"{option} is a day such as 2026-11-01, with a time as 2026-11-01T18:00, or how long ago as 24h or 7d, not "
            f"{shown(text)}"
        ) from error
