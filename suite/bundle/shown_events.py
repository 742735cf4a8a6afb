"""Which of the events that a rank prints are shown while it runs: those that a bundle may hold, and no others."""

from __future__ import annotations

from typing import Any

from suite.bundle.event_fields import FIELDS, is_moment, wrong_field
from suite.bundle.files import DamagedBundle

_KINDS = FIELDS["rank"]
#: A sequence number is needed to say what is wrong; it is nobody's here.
_NOWHERE = {"seq": 0}


def is_shown(event: dict[str, Any]) -> bool:
    """Whether the event has what its kind must have; what ranks write into their files is checked when it is read."""
    kind = _KINDS.get(event["kind"])
    if kind is None or not is_moment(event.get("time")):
        return False
    try:
        return kind.is_usual(event) or wrong_field({**event, **_NOWHERE}, kind, "") is None
    except DamagedBundle:
        return False
