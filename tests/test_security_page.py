"""docs/security.md names tests that are there, and what the examples run is named by commit."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", (ROOT / "docs/security.md").read_text())))


def test_claims_name_tests() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_the_page_names_is_there(file: str, name: str) -> None:
    body = ast.parse((ROOT / file).read_text()).body
    for part in name.split("::"):
        found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part]
        assert found, f"{file} has no {name}"
        body = found[0].body


def test_actions_are_named_by_commit() -> None:
    workflows = [*ROOT.glob("examples/**/*.yml"), *ROOT.glob(".github/workflows/*.yml")]
    used = [line for path in workflows for line in path.read_text().splitlines() if re.match(r"\s*-?\s*uses:", line)]
    assert used
    for line in used:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d", line), line
