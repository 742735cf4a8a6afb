"""Every regular expression of the package takes time in proportion to its text, whoever wrote that."""

from __future__ import annotations

import ast
import importlib
import json
import re
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from suite.claims.cells import _CELL
from suite.claims.columns import _PATTERNS
from suite.claims.labels import _FORMATS
from suite.launch.docker.patterns import RUNTIME_PATTERNS
from suite.launch.kubernetes.ray import PATTERNS as RAY_PATTERNS
from suite.launch.patterns import PATTERNS
from suite.launch.slurm.output import SLURM_PATTERNS

PACKAGE = Path(__file__).resolve().parents[1] / "suite"
FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
#: Lengths of the texts that are tried: eight times the text may take eight times as long, up to 16 where a pattern
#: looks 1,000 characters ahead, and not 64. The bound lies between, with room for a processor that changes its pace.
SHORT, LONG = 1_000, 8_000
MUCH_MORE = 32
#: What few linear patterns come near with so long a text, so that the others are looked at once.
MUCH_SECONDS = 0.005
#: Texts that a pattern is never given more of, because its module cuts them first: characters.
CUT = {
    "claims/columns.py": 200,
    "claims/labels.py": 200,
    "claims/cells.py": 200,
    "fitting/entries.py": 400,
    "fitting/fits.py": 400,
}


class Found(NamedTuple):
    """A pattern of the package; ``searched``: it is looked for anywhere in a text, not matched with all of it."""

    where: str
    pattern: str
    searched: bool


def literal_patterns() -> Iterator[Found]:
    """Those that are written out in the source; formatted ones are among the others."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"\bre\.[a-z]+\(", source):
            continue
        tree = ast.parse(source)
        names = {id(call): target for target, call in assigned(tree)}
        for node in ast.walk(tree):
            if not is_call_of_re(node) or not isinstance(node.args[0], ast.Constant):
                continue
            value, function = node.args[0].value, node.func.attr
            searched = function not in ("compile", "match", "fullmatch")
            if function == "compile":
                name = names.get(id(node))
                searched = (
                    name is None or re.search(rf"\b{name}\.(search|sub|split|findall|finditer)\(", source) is not None
                )
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            yield Found(f"{path.relative_to(PACKAGE)}:{node.lineno}", text, searched)


def is_call_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FUNCTIONS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and bool(node.args)
    )


def assigned(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names of a module with the calls that they are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from (
                    (one.id, call)
                    for one, call in zip(target.elts, value.elts, strict=False)
                    if isinstance(one, ast.Name)
                )
            elif isinstance(target, ast.Name):
                yield target.id, value


def tabled_patterns() -> Iterator[Found]:
    """Those that are put together, or kept in tables."""
    yield Found("claims/cells.py:_CELL", _CELL.pattern, False)
    yield from (Found(f"claims/columns.py:{name}", pattern, False) for name, pattern in _PATTERNS)
    yield from (Found(f"claims/labels.py:{name}", pattern, True) for name, pattern in _FORMATS.items())
    for entry in (*PATTERNS, *SLURM_PATTERNS, *RAY_PATTERNS, *(entry.pattern for entry in RUNTIME_PATTERNS)):
        yield Found(f"launch: {entry.kind}", entry.expression, True)
    for kind, patterns in json.loads((PACKAGE / "worker/redaction.json").read_text()).items():
        yield from (Found(f"worker/redaction.json: {kind}", pattern, True) for pattern in patterns)


ALL = [*literal_patterns(), *tabled_patterns()]


def words_of(pattern: str) -> list[str]:
    """Pieces that the pattern itself is made of: runs of its literals, and one character of each of its sets."""
    parser = importlib.import_module("re._parser")
    constants = importlib.import_module("re._constants")
    tree = parser.parse(pattern)
    found: dict[str, None] = dict.fromkeys(("a", " ", "0", "-"))
    run = ""

    def walk(items: Any) -> None:
        nonlocal run
        for operation, argument in items:
            if operation is constants.LITERAL:
                run += chr(argument)
                continue
            if run:
                found[run] = None
            run = ""
            if operation is constants.IN:
                found[next((char for char in string.printable if re.fullmatch(_set(items, argument), char)), "a")] = (
                    None
                )
            for inner in argument if isinstance(argument, (tuple, list)) else (argument,):
                for group in inner if isinstance(inner, list) else [inner]:
                    if hasattr(group, "data"):
                        walk(group)
        if run:
            found[run] = None
        run = ""

    def _set(items: Any, argument: Any) -> str:
        names = {constants.CATEGORY_DIGIT: r"\d", constants.CATEGORY_SPACE: r"\s", constants.CATEGORY_WORD: r"\w"}
        text = ""
        for kind, value in argument:
            if kind is constants.LITERAL:
                text += re.escape(chr(value))
            elif kind is constants.RANGE:
                text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
            elif kind is constants.CATEGORY and value in names:
                text += names[value]
        return f"[{text}]" if text else "a"

    walk(tree)
    return list(found)[:12]


def pumped(pattern: str, length: int) -> list[str]:
    """Texts of the pattern's own pieces, repeated, each with an end that does not fit."""
    words = words_of(pattern)
    few = words[:4]
    pieces = [("", piece) for piece in words]
    pieces += [("", first + second) for first in few for second in few if first != second]
    pieces += [(first, second) for first in few for second in few if first != second]
    return [(first + piece * (length // len(piece) + 1))[:length] + "\x00!" for first, piece in pieces]


def seconds(found: Found, text: str) -> float:
    compiled = re.compile(found.pattern)
    began = time.process_time()
    compiled.search(text) if found.searched else compiled.match(text)
    compiled.fullmatch(text)
    return time.process_time() - began


def is_slow(found: Found) -> bool:
    limit = next((limit for name, limit in CUT.items() if found.where.startswith(name)), None)
    if limit is not None:
        return max(seconds(found, text) for text in pumped(found.pattern, limit)) > MUCH_SECONDS
    for short, long in zip(pumped(found.pattern, SHORT), pumped(found.pattern, LONG), strict=True):
        if seconds(found, long) > MUCH_SECONDS:  # of a linear pattern; so look again, at both lengths
            spent = min(seconds(found, long) for _ in range(2))
            if spent > MUCH_SECONDS and spent > MUCH_MORE * min(seconds(found, short) for _ in range(10)):
                return True
    return False


def test_every_pattern_takes_time_in_proportion_to_its_text() -> None:
    assert len(ALL) > 150
    slow = {f"{found.where}: {found.pattern}" for found in ALL if is_slow(found)}
    assert not slow


@pytest.mark.parametrize("pattern", [r"\s*\|", r"a.*b.*c"])
def test_a_pattern_that_does_not_is_seen(pattern: str) -> None:
    assert is_slow(Found("", pattern, True))
