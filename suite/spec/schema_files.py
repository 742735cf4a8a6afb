"""What is said of a file whose schema this version does not read."""

import re
from typing import Any

from suite.spec.version import suite_version


def not_read(name: str, told: Any, known: str, maker: Any = None) -> str:
    """Why a file of another schema than ``known`` is not read; ``maker``: the version of the suite that it names."""
    by = f", written by suite {ascii(maker)[:40]}" if isinstance(maker, str) else ""
    text = f"{name} is of the schema {ascii(told)[:60]}{by}; this version, suite {suite_version()}, reads {known}"
    return f"{text}: install a newer one" if _is_newer(told, known) else text


def _is_newer(told: Any, known: str) -> bool:
    kind, _, number = known.rpartition("/")
    newer = re.fullmatch(rf"{re.escape(kind)}/([0-9]{{1,9}})", told) if isinstance(told, str) else None
    return newer is not None and int(newer[1]) > int(number)
