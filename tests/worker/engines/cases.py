"""Cases that one launch runs in turn: those of every round, and those that the selected tests ask for."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def cases_of(cases: Iterable[str], in_every_round: Collection[str], quick: Collection[str] | None = None) -> list[Any]:
    """The parameters of a test; ``make test-nightly`` runs those that not every round does.

    ``quick``: of every round those that ``make test`` runs; null: all of them.
    """
    fast = in_every_round if quick is None else quick
    others = {case: pytest.mark.ci if case in in_every_round else pytest.mark.thorough for case in cases}
    return [pytest.param(case, marks=() if case in fast else mark) for case, mark in others.items()]


def asked_for(request: pytest.FixtureRequest, cases: Iterable[str]) -> list[str]:
    """The cases that the selected tests of the fixture's module name in their parameter ``case``."""
    own = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    named = {item.callspec.params.get("case") for item in own if hasattr(item, "callspec")}
    return [case for case in cases if case in named]
