"""The command line as scripts use it: names of commands, options and arguments do not change unnoticed.

An option that is added or renamed on purpose: ``pytest tests/cli/test_surface.py --snapshot-update``.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from suite.cli.app import app, load
from suite.cli.commands import COMMANDS, Group
from tests.cli.test_help import commands


def test_the_names_of_the_commands(snapshot: SnapshotAssertion) -> None:
    named = {name: sorted(entry.commands) if isinstance(entry, Group) else [] for name, entry in COMMANDS.items()}
    assert named == snapshot
    assert app.info.name == "suite"


@pytest.mark.parametrize("words", sorted(commands()))
def test_the_names_of_a_commands_options(words: str, snapshot: SnapshotAssertion) -> None:
    params = load(words.split()[-1], commands()[words]).params
    options = {name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    assert {
        "arguments": [param.name for param in params if param.param_type_name == "argument"],
        "options": sorted(options),
    } == snapshot
