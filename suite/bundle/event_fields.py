"""What each field of each kind of event must hold (docs/contracts.md), as cheap checks of parsed JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import call, itemgetter
from typing import Any, get_args

from suite.bundle.amounts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.bundle.files import check_tree, is_unicode
from suite.bundle.record import Counts
from suite.launch.outcome import FailureKind
from suite.spec.phases import TIMED_NAMES

_FAILURES = frozenset(get_args(FailureKind))
_WORKER_PHASES = frozenset(TIMED_NAMES)
#: Memory of a whole iteration is told as that of ``other``, where phases are known from a trainer's log alone.
_MEMORY_PHASES = _WORKER_PHASES | {"setup", "other"}
_COUNTS = tuple(Counts.model_fields)
#: What a trainer's own log must tell before a rate can be made of it; of the other counts it may know nothing.
_TOLD_COUNTS = ("samples", "prompt_tokens", "response_tokens")
#: Whose clock an event's seconds are of, where it is not the suite's own.
TRAINER = "trainer"
#: A share, or a mean beside its greatest part, may be above it by so much.
_ROUNDING = 1e-6
#: How many publications old a sample is, and what an asynchronous trainer's devices do.
_AGE, _ROLE, _MOST_ROLES = re.compile("0|[1-9][0-9]{0,8}"), re.compile("[a-z][a-z0-9_-]{0,39}"), 64
#: Rows that take turns, and the characters of their start's id.
_MOST_ROWS, _LONGEST_START = 1000, 100

#: A check says whether a value is right; the text completes "must be ...".
Check = tuple[Callable[[Any], bool], str]
Fields = tuple[tuple[str, Check], ...]
#: For who describes the checks to other programs (``event_schema.py``): words that one takes, and the check within one
#: that takes null too.
WORDS: dict[Callable[[Any], bool], tuple[str, ...]] = {}
NULLABLE: dict[Callable[[Any], bool], Callable[[Any], bool]] = {}


def _is_text(value: Any) -> bool:
    return type(value) is str and is_unicode(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


def _is_bytes(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= MOST_COUNT)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e30 < value < 1e30


def is_moment(value: Any) -> bool:
    """Unix seconds of any time that a clock could show."""
    return type(value) in (int, float) and 0 <= value < 1e11


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST_SECONDS


def _is_iteration_seconds(value: Any) -> bool:
    return type(value) in (int, float) and LEAST_SECONDS <= value <= MOST_SECONDS


def _is_counts(value: Any) -> bool:
    return (
        type(value) is dict
        and all(map(_is_count, map(value.get, _COUNTS)))
        and value["samples"] > 0
        and value["response_tokens"] > 0
    )


def _is_told_counts(value: Any) -> bool:
    """Of a trainer's log: null where it does not tell, and nothing left out."""
    if type(value) is not dict or not all(name in value for name in _COUNTS):
        return False
    missing = [name for name in _COUNTS if value[name] is None]
    return not set(missing) & set(_TOLD_COUNTS) and _is_counts({**value, **dict.fromkeys(missing, 0)})


def _is_stats(value: Any) -> bool:
    return type(value) is dict and all(map(_is_number_or_null, value.values()))


def _is_number_or_null(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_rollout(value: Any) -> bool:
    """Of the figures that are known what they can be; of others that they are numbers."""
    if not _is_stats(value):
        return False
    least, most = value.get("logprob_difference_mean"), value.get("logprob_difference_max")
    seconds, size = value.get("idle_slot_seconds"), value.get("effective_sample_size")
    return (
        all(part is None or part >= 0 for part in (least, most, seconds))
        and (seconds is None or seconds <= MOST_SECONDS)
        and (size is None or 0 <= size <= 1 + _ROUNDING)
        and (least is None or most is None or least <= most * (1 + _ROUNDING) + _ROUNDING)
    )


def _is_noise(value: Any) -> bool:
    """Of a rank, and of its host where it tells that."""
    if type(value) is not dict:
        return False
    host = value.get("host")
    own = [part for name, part in value.items() if name != "host"]
    return (host is None or type(host) is dict) and all(map(_is_noise_figure, [*own, *(host or {}).values()]))


def _is_noise_figure(value: Any) -> bool:
    """Rates are made of these, so none is all but 0."""
    return value is None or (type(value) in (int, float) and (value == 0 or 1e-10 <= value <= 1e12))


def _is_asynchronous(value: Any) -> bool:
    return (
        type(value) is dict
        and _is_count(value.get("publication"))
        and _is_named(value.get("staleness"), _AGE, _is_count)
        and _is_named(value.get("roles"), _ROLE, _is_role)
        and 0 < len(value["roles"]) <= _MOST_ROLES
    )


def _is_turns(value: Any) -> bool:
    """Who was started together: the rows are named, each once."""
    return (
        type(value) is dict
        and _is_text_list(value.get("rows"))
        and 0 < len(set(value["rows"])) == len(value["rows"]) <= _MOST_ROWS
        and _is_text(value.get("start"))
        and 0 < len(value["start"]) <= _LONGEST_START
    )


def _is_named(value: Any, names: re.Pattern[str], is_right: Callable[[Any], bool]) -> bool:
    return type(value) is dict and all(
        type(name) is str and names.fullmatch(name) and is_right(part) for name, part in value.items()
    )


def _is_role(value: Any) -> bool:
    return (
        type(value) is dict
        and _is_count(value.get("ranks"))
        and value["ranks"] > 0
        and _is_seconds(value.get("busy_seconds"))
    )


def _is_parts(value: Any) -> bool:
    return type(value) is dict and all(_is_text(name) and _is_seconds(part) for name, part in value.items())


def _is_object(value: Any) -> bool:
    return type(value) is dict


def _is_text_list(value: Any) -> bool:
    return type(value) is list and all(_is_text(part) for part in value)


def _is_exit_codes(value: Any) -> bool:
    """A list by rank, or an object from rank to code where not every rank was started."""
    codes = value.values() if type(value) is dict else value
    return type(value) in (dict, list) and all(code is None or _is_exit_code(code) for code in codes)


def _is_exit_code(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 31


def _one_of(names: frozenset) -> Check:
    def is_one(value: Any) -> bool:
        return type(value) is str and value in names

    WORDS[is_one] = tuple(sorted(names))
    return is_one, "one of " + " ".join(sorted(names))


def _or_null(check: Check) -> Check:
    def is_right(value: Any) -> bool:
        return value is None or check[0](value)

    NULLABLE[is_right] = check[0]
    return is_right, f"{check[1]} or null"


_TEXT: Check = (_is_text, "text")
_COUNT: Check = (_is_count, "a whole number from 0")
_SECONDS: Check = (_is_seconds, "a number of seconds from 0")
_ITERATION_SECONDS: Check = (_is_iteration_seconds, "a number of seconds above 0")
_TEXTS: Check = (_is_text_list, "a list of texts")
_OBJECT: Check = (_is_object, "an object")
_TOLD: Check = (_is_told_counts, "an object of whole numbers, or of nulls where the trainer's log does not tell")
_BYTES: Check = (_is_bytes, f"{_COUNT[1]} or null")
_FAILURE = (
    ("failure", _one_of(_FAILURES)),
    ("phase", _or_null(_TEXT)),
    ("iteration", _or_null(_COUNT)),
    ("evidence", _TEXTS),
)
_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "peak_resident_bytes")

#: Writer -> kind -> the fields it must carry.
_TABLE: dict[str, dict[str, Fields]] = {
    "driver": {
        "launch": (("schema", _TEXT), ("launcher", _TEXT), ("ranks", _COUNT)),
        "failure": _FAILURE,
        "end": (
            ("status", _one_of(frozenset(("ok", "failed", "interrupted")))),
            ("exit_codes", (_is_exit_codes, "exit codes by rank")),
            ("elapsed_seconds", _SECONDS),
        ),
    },
    "rank": {
        "start": (
            ("schema", _TEXT),
            ("world_size", _COUNT),
            ("manifest_hash", _TEXT),
            ("host", _TEXT),
            ("suite_version", _TEXT),
            ("resident_bytes", _BYTES),
        ),
        "environment": (("facts", _OBJECT),),
        "phase": (
            ("iteration", _COUNT),
            ("phase", _one_of(_WORKER_PHASES)),
            ("seconds", _SECONDS),
            ("wait_seconds", _SECONDS),
        ),
        "memory": (
            ("iteration", _BYTES),
            ("phase", _one_of(_MEMORY_PHASES)),
            *((name, _BYTES) for name in _PEAKS),
            ("allocation_retries", _BYTES),
        ),
        "iteration": (
            ("iteration", _COUNT),
            ("seconds", _ITERATION_SECONDS),
            ("counts", (_is_counts, f"an object of whole numbers {' '.join(_COUNTS)}, with samples and responses")),
            ("stats", (_is_stats, "an object of numbers or nulls")),
        ),
        "turn": (("iteration", _COUNT),),
        "heartbeat": (("iteration", _or_null(_COUNT)), ("phase", _one_of(_MEMORY_PHASES)), ("calls", _COUNT)),
        "failure": _FAILURE,
        "end": (("status", _one_of(frozenset(("ok", "failed")))), ("iterations", _COUNT)),
    },
}
#: Fields that an event may carry beside those it must.
OPTIONAL: tuple[tuple[str, Check], ...] = (
    ("details", (_is_parts, "an object of seconds by part")),
    ("doing", _TEXT),
    ("skipped_steps", _COUNT),
    (
        "rollout",
        (
            _is_rollout,
            "an object of numbers or nulls: seconds and differences from 0, no mean above its maximum, an effective "
            "sample size of 0 to 1",
        ),
    ),
    ("staleness", _COUNT),
    (
        "asynchronous",
        (
            _is_asynchronous,
            "an object of a publication's number, the staleness as samples by number, and roles with ranks and busy "
            "seconds",
        ),
    ),
    ("own_timers", (_is_parts, "an object of seconds by timer")),
    ("source", _one_of(frozenset((TRAINER,)))),
    (
        "turns",
        (_is_turns, "an object with the start's id, and as rows the run ids of those that take turns, each once"),
    ),
    ("noise", (_is_noise, "an object of numbers from 0 or nulls, with one such object as host")),
)
#: How many fields every event has: kind, rank, time and seq.
HEAD = 4
#: Fields with free content, wherever they occur: storable again, or the bundle is damaged.
FREE = ("facts", "device")


class Kind:
    """What events of a kind must carry, ready to be checked together: what is usual is seen at once."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._checks = tuple(is_right for _, (is_right, _) in fields)
        # with two names it gives all values, with one it would give that one alone
        self._values = itemgetter(*(name for name, _ in fields), *(("kind", "kind") if len(fields) < 2 else ()))

    def is_usual(self, event: dict[str, Any]) -> bool:
        """Whether the event has these fields as they must be, those of every event, and no others."""
        if len(event) != len(self.fields) + HEAD or "facts" in event or "device" in event:
            return False
        try:
            return all(map(call, self._checks, self._values(event)))
        except KeyError:
            return False


#: Writer -> kind.
FIELDS = {writer: {name: Kind(fields) for name, fields in kinds.items()} for writer, kinds in _TABLE.items()}


def wrong_field(event: dict[str, Any], kind: Kind, file: str) -> str | None:
    """What is wrong with the event's fields, in words, or null. Raises DamagedBundle for unusable free content.

    ``event`` has the fields of every event.
    """
    by_trainer = event.get("source") == TRAINER
    for name, check in kind.fields:
        if name not in event:
            return f"{name} is missing"
        is_right, wanted = _TOLD if by_trainer and name == "counts" else check
        if not is_right(event[name]):
            return f"{name} is {_short(event[name])}, must be {wanted}"
    for name, (is_right, wanted) in OPTIONAL:
        if event.get(name) is not None and not is_right(event[name]):
            return f"{name} is {_short(event[name])}, must be {wanted}"
    for name in FREE:
        if event.get(name) is not None:
            if type(event[name]) is not dict:
                return f"{name} is {_short(event[name])}, must be an object"
            check_tree(event[name], f"{file} line {event['seq'] + 1}: {name}")
    return None


def _short(value: Any) -> str:
    text = ascii(value) if not isinstance(value, (dict, list)) or len(value) < 100 else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
