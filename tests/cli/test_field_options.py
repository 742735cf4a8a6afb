"""Options that follow from the declarations of workload and layout: each is there, and does what it says."""

from __future__ import annotations

import json

import pytest

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
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


UNEVEN = "lognormal:mean=6,sigma=0.6,cap=8"


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        app((*PLAN, *options), prog_name="suite")
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1, "one line"
    return shown.err


def test_another_algorithm_with_uneven_lengths_is_planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = "suite.conduct.planning.machine"
    monkeypatch.setattr(f"{machine}.stack_versions", lambda python, packages: dict.fromkeys(packages, "5.19.0"))
    options = ("--workload", "cpu", "--algorithm", "grpo", "--lengths", UNEVEN)
    (usual,), (grpo,), (again,) = planned(capsys), planned(capsys, *options), planned(capsys, *options)
    (capped,) = planned(capsys, *options, "--lengths", UNEVEN + ",at-cap=0.1")
    assert usual["run"] != grpo["run"] == again["run"] != capped["run"]
    assert "3 rollouts do not divide into groups of 2" in refused(
        capsys, "--algorithm", "grpo", "--rollouts", "3", "--group", "2"
    )
    words = refused(capsys, "--lengths", "lognormal:mean=6,sigma=0.6,cap=800")
    assert "exceed the 128 positions of 1M" in words and "--lengths (at most 800)" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lengths", "garbage"), "error: 'garbage' is no distribution of lengths; write fixed:512"),
        (("--prompt-lengths", "list:/nowhere"), "error: there is no file '/nowhere' with lengths"),
        (("--lengths", "lognormal:mean=9,sigma=1,cap=8"), "error: lengths of mean 9 cannot be at most 8 each"),
        (("--lengths", UNEVEN, "--new-tokens", "9"), "new_tokens 9 is not the longest of lengths, lognormal:"),
        (("--algorithm", "nope"), "error: there is no algorithm 'nope'; known are ppo, "),
        (("--algorithm", "grpo:foo=1"), "error: grpo has no option 'foo'; its options are "),
        (
            ("--algorithm", "grpo", "--group", "1"),
            "error: grpo compares the samples of a prompt: --group is at least 2",
        ),
        (("--group", "0"), "--group"),
    ],
)
def test_work_that_cannot_be_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, *options)


@pytest.mark.parametrize("backend", ["trlx-deepspeed", "trlx-ddp", "trlx-nemo"])
def test_trainers_refuse_work_that_they_would_leave_out(backend: str) -> None:
    workload = find_workload("cpu").changed({"algorithm": "grpo", "lengths": UNEVEN, "prompt_lengths": UNEVEN})
    (error,) = unknown_work(find_backend(backend), workload)
    assert error == (
        f"the {backend} backend has no algorithm grpo, no groups of 4 samples, no prompts of uneven length and no "
        "responses of uneven length, which workload cpu asks for"
    )
