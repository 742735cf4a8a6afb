"""Options that follow from the declarations of workload and layout: each is there, and does what it says."""

from __future__ import annotations

import json

import pytest

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.cli.options.fields import LayoutOptions, WorkloadOptions, layout_choices, workload_changes
from suite.cli.options.work import Work
from suite.spec.catalogue import find_workload
from suite.spec.fields import declared
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.workload import Workload
from tests.command import suite

PLAN = ("run", "--size", "1M", "--backend", "deepspeed", "--repeats", "1", "--dry-run", "--json")
UNEVEN = "lognormal:mean=6,sigma=0.6,cap=8"


@pytest.fixture(autouse=True)
def _any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = lambda python, packages: dict.fromkeys(packages, "5.19.0")  # noqa: E731
    monkeypatch.setattr("suite.conduct.planning.machine.stack_versions", versions)


def planned(*options: str) -> list[dict]:
    done = suite(*PLAN, *options)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["runs"]


def test_nothing_given_changes_nothing() -> None:
    assert workload_changes(WorkloadOptions()) == {}
    assert LayoutChoices(**layout_choices(LayoutOptions())) == LayoutChoices()


def test_every_declared_option_is_one_of_the_commands() -> None:
    names = {name for model in (Workload, Layout) for name, fact in declared(model) if fact.option}
    assert names <= set(vars(Work()))


def test_the_work_is_set_from_the_command_line() -> None:
    (usual,), (changed,) = planned(), planned("--rollouts", "6", "--micro-batch", "3")
    assert (usual["samples"], changed["samples"]) == (4, 6)
    assert usual["run"] != changed["run"]
    (same,) = planned("--prompt-tokens", str(find_workload("cpu").prompt_tokens))
    assert usual["run"] == same["run"], "a value that the workload has anyway"


def test_values_to_compare_are_crossed_and_switches_are_switched() -> None:
    rows = planned("--zero", "1", "--zero", "2", "--recompute", "--ranks", "1")
    assert [row["layout"] for row in rows] == ["zero1 recompute", "zero2 recompute"]


def test_the_old_name_of_the_hang_timeout_still_works() -> None:
    assert planned("--silence", "5m") == planned("--hang-timeout", "5m")


def test_another_algorithm_with_uneven_lengths_is_planned() -> None:
    options = ("--workload", "cpu", "--algorithm", "grpo", "--lengths", UNEVEN)
    (usual,), (grpo,), (again,) = planned(), planned(*options), planned(*options)
    (capped,) = planned(*options, "--lengths", UNEVEN + ",at-cap=0.1")
    assert usual["run"] != grpo["run"] == again["run"] != capped["run"]


TOO_LONG = "lognormal:mean=6,sigma=0.6,cap=800"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lengths", TOO_LONG), "--lengths (at most 800)"),
        (("--algorithm", "grpo", "--group", "1"), "grpo compares the samples of a prompt: --group is at least 2"),
        (("--algorithm", "grpo", "--rollouts", "3", "--group", "2"), "3 rollouts do not divide into groups of 2"),
        (("--group", "0"), "--group"),
    ],
)
def test_work_that_cannot_be_is_refused_in_one_line(options: tuple[str, ...], words: str) -> None:
    done = suite(*PLAN, *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1) and words in done.stderr


def test_a_trainer_refuses_work_that_it_would_leave_out() -> None:
    workload = find_workload("cpu").changed({"algorithm": "grpo", "lengths": UNEVEN, "prompt_lengths": UNEVEN})
    (error,) = unknown_work(find_backend("trlx-ddp"), workload)
    assert error == (
        "the trlx-ddp backend has no algorithm grpo, no groups of 4 samples, no prompts of uneven length and no "
        "responses of uneven length, which workload cpu asks for"
    )
