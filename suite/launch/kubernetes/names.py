"""Names and numbers as Kubernetes takes them."""

from __future__ import annotations

import hashlib
import re
from fractions import Fraction

#: Whatever a variant appends (``-worker-12``, ``-node-0-12``, the random end of a pod's name) stays within 63.
NAME_LENGTH = 50
_HASH_LENGTH = 8
_PREFIX = "suite-"
_SUFFIXES = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_SUFFIXES |= {suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)}
_SUFFIXES |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?")


def object_name(run_id: str, length: int = NAME_LENGTH) -> str:
    """The run's name in the cluster: a DNS-1035 label of at most so many characters, its own for each run id."""
    plain = re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")
    if len(_PREFIX + plain) <= length and plain == run_id.lower().replace(".", "-"):
        return _PREFIX + plain
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:_HASH_LENGTH]
    room = length - len(_PREFIX) - _HASH_LENGTH - 1
    return f"{_PREFIX}{plain[:room].rstrip('-') or 'run'}-{digest}"


def literal(text: str) -> str:
    """Text that an argument or a variable's value will hold as it is: the kubelet would replace ``$(NAME)`` in it."""
    return text.replace("$", "$$")


def quantity_number(text: str) -> Fraction:
    """The number that a quantity such as ``16Gi``, ``500m`` or ``2e3`` means. Raises ValueError for any other text."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write 8, 500m or 16Gi")
    number, exponent, suffix = match.groups()
    return Fraction(number + (exponent or "")) * _SUFFIXES[suffix or ""]
