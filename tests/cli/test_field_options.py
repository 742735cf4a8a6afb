"""Options that follow from the declarations of workload and layout: each is there, and does what it says."""

from __future__ import annotations

import json

import pytest

from suite.cli.app import app
from suite.cli.options.fields import LayoutOptions, WorkloadOptions, layout_choices, workload_changes
from suite.cli.options.work import Work
from suite.spec.catalogue import find_workload
from suite.spec.fields import declared
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.workload import Workload

PLAN = ("run", "--size", "1M", "--backend", "deepspeed", "--repeats", "1", "--dry-run", "--json")


@pytest.fixture(autouse=True)
def _any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = "suite.conduct.planning.machine"
    monkeypatch.setattr(f"{machine}.stack_versions", lambda python, packages: dict.fromkeys(packages, "0"))


def planned(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict]:
    with pytest.raises(SystemExit) as ended:
        app((*PLAN, *options), prog_name="suite")
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)["runs"]


def test_nothing_given_changes_nothing() -> None:
    assert workload_changes(WorkloadOptions()) == {}
    assert LayoutChoices(**layout_choices(LayoutOptions())) == LayoutChoices()


def test_every_declared_option_is_one_of_the_commands() -> None:
    names = {name for model in (Workload, Layout) for name, fact in declared(model) if fact.option}
    assert names <= set(vars(Work()))


def test_the_work_is_set_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    (usual,), (changed,) = planned(capsys), planned(capsys, "--rollouts", "6", "--micro-batch", "3")
    assert (usual["samples"], changed["samples"]) == (4, 6)
    assert usual["run"] != changed["run"]


def test_a_value_that_the_workload_has_anyway_is_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    own = find_workload("cpu")
    (usual,), (same,) = planned(capsys), planned(capsys, "--prompt-tokens", str(own.prompt_tokens))
    assert usual["run"] == same["run"]


def test_values_to_compare_are_crossed_and_switches_are_switched(capsys: pytest.CaptureFixture[str]) -> None:
    rows = planned(capsys, "--zero", "1", "--zero", "2", "--recompute", "--ranks", "1")
    assert [row["layout"] for row in rows] == ["zero1 recompute", "zero2 recompute"]


def test_the_old_name_of_the_hang_timeout_still_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(capsys, "--silence", "5m") == planned(capsys, "--hang-timeout", "5m")
