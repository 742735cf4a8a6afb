"""The facts of a rank's environment event, and by which rules its bundle is derived."""

from collections.abc import Iterator
from typing import Any

from suite.bundle.event_fields import Environment
from suite.bundle.events import Events
from suite.bundle.files import DamagedBundle
from suite.spec.version import suite_version

#: The newest rules that this version knows; ``suite.worker.facts.DERIVATION`` is what its own ranks ask for.
NEWEST_DERIVATION = 4
#: Of a rank's own words, as much as a note shows.
_LINES, _LINE_CHARACTERS = 8, 200
_MOST_LISTED = 512


def facts_of(events: Events, rank: int) -> dict[str, Any]:
    """The facts of a rank's environment event, empty where it wrote none."""
    for event in events.of(rank, Environment):
        return event.facts
    return {}


def inner(value: Any, *names: str) -> Any:
    """A field of facts that others may have written; None where it is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def listed_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list of facts, as many as somebody reads."""
    return [one for one in value[:_MOST_LISTED] if isinstance(one, dict)] if isinstance(value, list) else []


def positive(value: Any) -> float | None:
    """A positive number that a measurement can have, else None."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e18 else None


def derivation(events: Events) -> int:
    """Which rules a bundle is derived by: those of the worker that wrote it, so that old records stay as they were.

    1 for bundles of before there was such a fact. Raises DamagedBundle for rules that this version does not know.
    """
    value = facts_of(events, 0).get("derivation", 1)
    if type(value) is not int or not 1 <= value <= NEWEST_DERIVATION:
        raise DamagedBundle(
            f"events/rank-0.jsonl: derivation is {ascii(value)[:40]}, this version knows 1 to {NEWEST_DERIVATION}; it "
            f"is suite {suite_version()}, and what a newer one wrote a newer one reads"
        )
    return value


def disturbance_notes(events: Events) -> Iterator[str]:
    """Whose devices were not free before the run, as each rank saw its own; nothing of bundles of before it was asked.

    Raises DamagedBundle for what is no list of texts.
    """
    for rank in events.ranks if derivation(events) >= 2 else ():
        found = inner(facts_of(events, rank), "idle", "disturbed_by")
        if found is not None and not (isinstance(found, list) and all(isinstance(line, str) for line in found)):
            raise DamagedBundle(f"events/rank-{rank}.jsonl: what disturbed the device is not a list of texts")
        if found:
            lines = "; ".join(line[:_LINE_CHARACTERS] for line in found[:_LINES])
            yield f"the device of rank {rank} was not free before the run: {lines}"
