"""No regular expression of the package takes time beyond all proportion to its text, whoever wrote that."""

import ast
import importlib
import json
import re
import string
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from suite.claims.cells import _CELL
from suite.claims.columns import _PATTERNS
from suite.claims.labels import _FORMATS
from suite.launch.classify import PATTERNS
from suite.launch.docker.conclude import RUNTIME_PATTERNS
from suite.launch.kubernetes.pod import PATTERNS as RAY_PATTERNS
from suite.launch.slurm.scheduler import SLURM_PATTERNS

_parser, _compiler, _constants = (
    importlib.import_module(f"re.{name}") for name in ("_parser", "_compiler", "_constants")
)
PACKAGE = Path(__file__).resolve().parents[1] / "suite"
MATCHING = ("match", "fullmatch")
SEARCHING = ("search", "sub", "split", "findall", "finditer")
#: Modules that cut their texts to a few hundred characters first: of these only what is exponential counts.
CUT = ("claims/columns.py", "claims/labels.py", "claims/cells.py", "fitting/entries.py", "fitting/fits.py")
#: What is read of the kernel alone.
TRUSTED = ("worker/facts.py",)
#: A repeat of more is without end; with fewer a text takes so many times its length at most.
MANY = 1000
CHARACTERS = frozenset(string.printable + "\0é中")


class Found(NamedTuple):
    """A pattern of the package; ``searched``: it is looked for anywhere in a text, not from its start."""

    where: str
    pattern: str
    searched: bool
    flags: int = 0


class Atom(NamedTuple):
    """A stretch of what a pattern matches: of which characters, whether it must be there, whether it has no end."""

    characters: frozenset[str]
    is_needed: bool
    is_endless: bool


def literal_patterns() -> Iterator[Found]:
    """Those that are written out in the source; formatted ones are among the others."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source) if re.search(r"\bre\.[a-z]+\(", source) else ast.Module([], [])
        names = dict(compiled_names(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=function), args=[ast.Constant(value=value), *_]
                ) if function == "compile" or function in (*SEARCHING, *MATCHING):
                    name = names.get(node, "compile")
                    searched = function in SEARCHING or re.search(rf"\b{name}\.({'|'.join(SEARCHING)})\(", source)
                    text = value.decode("latin-1") if isinstance(value, bytes) else value
                    flags = sum(getattr(re, name) for name in re.findall(r"\bre\.([A-Z]+)\b", ast.unparse(node)))
                    yield Found(f"{path.relative_to(PACKAGE)}:{node.lineno}", text, bool(searched), flags)


def compiled_names(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Calls that a name is given to, each with that name; those of tuples too."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield value, name
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from ((value, ast.unparse(target)) for target, value in zip(targets, values, strict=False))


def tabled_patterns() -> Iterator[Found]:
    """Those that are put together, or kept in tables."""
    yield Found("claims/cells.py:_CELL", _CELL.pattern, False)
    yield from (Found(f"claims/columns.py:{name}", pattern, False) for name, pattern in _PATTERNS)
    yield from (Found(f"claims/labels.py:{name}", pattern, True) for name, pattern in _FORMATS.items())
    for entry in (*PATTERNS, *SLURM_PATTERNS, *RAY_PATTERNS, *RUNTIME_PATTERNS):
        yield Found(f"launch: {entry.kind}", entry.expression, True)
    for kind, patterns in json.loads((PACKAGE / "worker/redaction.json").read_text()).items():
        yield from (Found(f"worker/redaction.json: {kind}", pattern, True) for pattern in patterns)


def ways(nodes: Any) -> list[list[Atom]]:
    """Every way through a parsed pattern, alternative by alternative."""
    found: list[list[Atom]] = [[]]
    for node in nodes:
        found = [[*before, *after] for before, after in product(found, ways_of_one(nodes.state, *node))]
    return found


def ways_of_one(state: Any, kind: Any, argument: Any) -> list[list[Atom]]:
    if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
        least, most, body = argument
        inner = ways(body)
        if most > MANY:
            return [[Atom(frozenset().union(*(atom.characters for atom in one)), least > 0, True)] for one in inner]
        if least == 0 and all(len(one) == 1 for one in inner):
            return [[one[0]._replace(is_needed=False)] for one in inner]
        return inner if least > 0 else [*inner, []]
    if kind is _constants.BRANCH:
        return [one for branch in argument[1] for one in ways(branch)]
    if kind is _constants.SUBPATTERN:
        return ways(argument[-1])
    if kind is _constants.ATOMIC_GROUP:
        return ways(argument)
    if kind in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [[]]
    if kind is _constants.AT:
        if argument in (_constants.AT_BOUNDARY, _constants.AT_NON_BOUNDARY):
            return [[]]
        return [[Atom(frozenset("\n" if state.flags & re.MULTILINE else ""), True, False)]]
    if kind in (_constants.GROUPREF, _constants.GROUPREF_EXISTS):
        return [[Atom(CHARACTERS, False, False)]]
    one = _compiler.compile(_parser.SubPattern(state, [(kind, argument)]))
    return [[Atom(frozenset(filter(one.fullmatch, CHARACTERS)), True, False)]]


def fits(atoms: list[Atom], characters: frozenset[str]) -> bool:
    """Whether these characters alone may be all that is needed here."""
    return all(atom.characters & characters for atom in atoms if atom.is_needed)


def may_fail(atoms: list[Atom], characters: frozenset[str]) -> bool:
    return any(not atom.characters >= characters for atom in atoms if atom.is_needed)


def is_quadratic(way: list[Atom], searched: bool) -> bool:
    """Whether a text of some characters is gone through from each of its places: by two stretches without end, or by a
    search that begins anew everywhere."""
    for at, atom in enumerate(way):
        after = way[at + 1 :]
        if not atom.is_endless:
            continue
        if searched and fits(way[:at], atom.characters) and may_fail(after, atom.characters):
            return True
        for distance, other in enumerate(after):
            both = atom.characters & other.characters
            if other.is_endless and both and fits(after[:distance], both) and may_fail(after[distance + 1 :], both):
                return True
    return False


def is_exponential(nodes: Any) -> bool:
    """Whether a stretch without end lies in another with nothing needed beside it."""
    for kind, argument in nodes:
        inner = [one for one in (argument if isinstance(argument, tuple) else (argument,)) if hasattr(one, "data")]
        if kind is _constants.BRANCH:
            inner = argument[1]
        if any(map(is_exponential, inner)):
            return True
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[1] > MANY:
            for way in ways(argument[2]):
                for at, atom in enumerate(way):
                    if atom.is_endless and fits([*way[:at], *way[at + 1 :]], atom.characters):
                        return True
    return False


def is_slow(found: Found) -> bool:
    nodes = _parser.parse(found.pattern, found.flags)
    if is_exponential(nodes):
        return True
    if found.where.startswith((*CUT, *TRUSTED)):
        return False
    return any(is_quadratic(way, found.searched) for way in ways(nodes))


def test_no_pattern_goes_through_its_text_again_and_again() -> None:
    everything = [*literal_patterns(), *tabled_patterns()]
    assert len(everything) > 150
    assert not {f"{found.where}: {found.pattern}" for found in everything if is_slow(found)}


@pytest.mark.parametrize(
    "pattern", [r"\s*\|", r"a.*b.*c", r"a.*b", r"(\d+,?)*;", r"x(a|\w)*1\w+;", r"(?m)\s+$", r"((?:a+)b?)+$"]
)
def test_a_pattern_that_does_is_seen(pattern: str) -> None:
    assert is_slow(Found("", pattern, True))


@pytest.mark.parametrize("pattern", [r"^\s*\|", r"a[^b\n]*b", r"(\d+,)*;", r"a.{0,200}b", r"\w+ \w+"])
def test_a_pattern_that_does_not_is_let_be(pattern: str) -> None:
    assert not is_slow(Found("", pattern, False))
