"""The `suite` command inside of the tests' own process: what it prints and its exit code."""

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner


def suite(*arguments: object) -> Result:
    """Run ``suite *arguments``. What it raises but SystemExit is the test's."""
    from suite.cli.app import app  # anew at each call: a test may have put another in its place

    words = [str(each) for each in arguments]
    return CliRunner().invoke(app, words, catch_exceptions=False, prog_name="suite")


def told(*arguments: object) -> Any:
    """What a command that ends well prints with ``--json``."""
    done = suite(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: object) -> str:
    """The one line of a command that ends with exit code 2 and prints nothing else, or the same as JSON."""
    done = suite(*arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert done.stdout == "" or json.loads(done.stdout)["error"] == done.stderr[len("error: ") : -1]
    return done.stderr
