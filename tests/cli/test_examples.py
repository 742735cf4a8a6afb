"""The examples that a user copies: they are valid, and every option in them is one that the commands have."""

import math
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from suite.cli.app import load
from suite.stats.deciding import power, runs_to_decide
from suite.stats.multiple import LEVEL
from tests.cli.test_help import commands

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "examples" / "github-actions" / "regression-gate.yml"
GUIDE = ROOT / "docs" / "regression-gates.md"


def suite_commands(script: str, variables: dict[str, str]) -> list[list[str]]:
    """The words of every call of suite in a shell script, variables of the job put in."""
    lines = script.replace("\\\n", " ").splitlines()
    calls = [line.strip() for line in lines if re.match(r"\s*suite \w", line)]
    for name, value in variables.items():
        calls = [call.replace(f"${name}", value) for call in calls]
    return [shlex.split(re.split(r" > | \|\| | # ", call)[0])[1:] for call in calls]


def unknown_options(words: list[str]) -> list[str]:
    """Options that the command does not have; an unknown command is one too."""
    known = commands()
    name = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in known), None)
    if name is None:
        return words[:1]
    params = load(name.split()[-1], known[name]).params
    options = {option for param in params for option in (*param.opts, *param.secondary_opts)}
    return [word for word in words if word.startswith("-") and word.split("=")[0] not in {"-", *options}]


def test_the_workflow_is_whole_and_its_commands_have_their_options() -> None:
    workflow: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text())
    # YAML 1.1 reads the key `on` as true, as GitHub's own examples have it
    assert set(workflow) == {"name", True, "concurrency", "jobs"}
    calls = []
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"] and job["steps"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            calls += suite_commands(step.get("run", ""), job.get("env", {}))
    assert [words[0] for words in calls] == ["doctor", "run", "compare", "compare", "compare"]
    assert [unknown_options(words) for words in calls] == [[]] * len(calls)
    assert unknown_options(["compare", "a", "b", "--gaet", "1"]) == ["--gaet"], "a wrong one would be found"
    gate = calls[2]
    assert gate[gate.index("--gate") + 1] == "0.95" and "--strict" in gate


def needed(gate: float, loss: float, noise: float, rows: int = 1) -> int | None:
    """Runs a side with which a loss is caught in 80 % of cases."""
    return runs_to_decide(math.log(gate / (1 - loss)), noise, LEVEL / rows)


def test_the_table_of_runs_is_what_the_power_of_the_test_gives() -> None:
    table = GUIDE.read_text().split("<!-- runs:begin -->")[1].split("<!-- runs:end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    losses = [float(cell.strip(" %")) / 100 for cell in rows[0][1:]]
    assert len(losses) == 5 and len(rows) == 7
    for noise, *cells in rows[2:]:
        found = [needed(0.95, loss, float(noise.strip(" %")) / 100) for loss in losses]
        assert cells == ["over 1,000" if runs is None else str(runs) for runs in found]


def test_the_other_figures_of_the_guide_are_so_too() -> None:
    text = " ".join(GUIDE.read_text().split())
    assert f"in {power(5, math.log(0.95 / 0.9), 0.05, LEVEL):.0%}".replace("%", " %") in text
    strict = [needed(0.98, 0.05, noise) for noise in (0.02, 0.03, 0.05)]
    assert "takes {} runs a side at 2 % noise, {} at 3 %, {} at 5 %".format(*strict) in text
    kept = [runs_to_decide(math.log(1 / 0.95), noise, LEVEL, chance=0.95) for noise in (0.02, 0.03, 0.05)]
    assert "for 95 % of cases {} runs a side at 2 % noise, {} at 3 %, {} at 5 %".format(*kept) in text
    many = [needed(0.95, 0.1, noise, rows=16) for noise in (0.02, 0.05)]
    assert "takes up to {} runs a side at 2 % noise, {} at 5 %".format(*many) in text
