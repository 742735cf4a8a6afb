"""Logs recorded with the trainers' own timers and trackers (docs/trainers) become phases and counts, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from suite.worker.loop import expected_counts
from suite.worker.rank import ConfigError
from suite.worker.trainers.areal import trainer as areal
from suite.worker.trainers.logged.counts import Told, check_told
from suite.worker.trainers.logged.reading import LoggedStep, read_all
from suite.worker.trainers.logged.timers import WHOLE, WITHIN, Timed, Timer, phases_of, time_step
from suite.worker.trainers.nemo_rl import trainer as nemo_rl
from suite.worker.trainers.skyrl import trainer as skyrl
from tests.worker.trainers.logged.made import HERE, LOGS, body, made_manifest

#: how each trainer's steps are read: its class, and what its log tells of the work
READ: dict[str, tuple[Any, Callable[[LoggedStep], Told]]] = {
    "nemo-rl": (nemo_rl.NemoRlTrainer, nemo_rl.told_counts),
    "skyrl": (skyrl.SkyRlTrainer, skyrl.told_counts),
    "areal": (areal.ArealTrainer, lambda step: areal.told_counts(step, 2)),
}
DIFFERENCES = {"nemo-rl": nemo_rl.differences, "skyrl": skyrl.differences, "areal": areal.differences}


def steps_of(name: str) -> list[LoggedStep]:
    kind = READ[name][0]
    steps = read_all(str(LOGS[name]), name, kind.known_versions)
    return [areal.summed(step) for step in steps] if name == "areal" else steps


def timed(name: str, step: LoggedStep) -> Timed:
    return time_step(step, READ[name][0].timers, name)


def timer_of(name: str, phase: str) -> Timer:
    """The first timer that must be in every step of the phase."""
    return next(timer for timer in READ[name][0].timers if timer.phase == phase and timer.required)


def changed(name: str, **values: float | None) -> LoggedStep:
    step = steps_of(name)[0]
    return replace(step, values={**step.values, **values})


@pytest.mark.parametrize("name", READ)
class TestEveryTrainer:
    def test_four_steps_have_their_phases_within_the_whole(self, name: str) -> None:
        times = [timed(name, step) for step in steps_of(name)]
        assert len(times) == 4
        for each in times:
            assert set(each.phases) - {"reference"} == set(phases_of(READ[name][0].timers))
            assert 0 < sum(each.phases.values()) <= each.seconds * 1.01
            assert each.phases["generate"] >= 0.03 and each.phases["train"] >= 0.02

    def test_the_counts_that_are_told_are_the_manifests_and_the_others_null(self, name: str) -> None:
        manifest = body(made_manifest(name))
        asked = expected_counts(manifest["workload"], manifest["work"])
        unknown = {"padded_tokens", "total_parameters", "trainable_parameters"}
        unknown |= set() if name == "areal" else {"optimizer_steps"}
        for step in steps_of(name):
            counts = check_told(READ[name][1](step), manifest, step, name)
            assert {key: counts[key] for key in asked if key not in unknown} == {
                key: asked[key] for key in asked if key not in unknown
            }
            assert all(counts[key] is None for key in unknown - {"padded_tokens"})

    def test_another_amount_of_work_and_none_are_refused(self, name: str) -> None:
        step = steps_of(name)[0]
        with pytest.raises(ConfigError, match="response_tokens 256 wanted, 128 logged"):
            check_told(READ[name][1](step), body(made_manifest(name, new_tokens=16)), step, name)
        with pytest.raises(ConfigError, match="tells no samples, prompt_tokens, response_tokens"):
            check_told(READ[name][1](replace(step, values={})), body(made_manifest(name)), step, name)

    def test_names_of_another_version_are_refused(self, name: str) -> None:
        step, timer = steps_of(name)[0], timer_of(name, "train")
        values = {key: number for key, number in step.values.items() if key != timer.name}
        with pytest.raises(ConfigError, match=f"has no {timer.name}: a version that logs by other names"):
            timed(name, replace(step, values=values))

    @pytest.mark.parametrize(
        ("seconds", "words"), [(None, "took None in "), (-0.5, "took -0.5 in "), (1000.0, "the phases of step 1")]
    )
    def test_times_that_cannot_be_are_refused(self, name: str, seconds: float | None, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            timed(name, changed(name, **{timer_of(name, "generate").name: seconds}))

    def test_the_documentation_has_every_timer_and_every_difference_of_the_work(self, name: str) -> None:
        page = " ".join((HERE.parents[3] / "docs" / "trainers" / f"{name}.md").read_text().split())
        timers: tuple[Timer, ...] = READ[name][0].timers
        assert len({timer.name for timer in timers}) == len(timers)
        for timer in timers:
            assert timer.overlaps and timer.where.split(":")[1][0].isdigit(), timer
            phase = "other" if timer.phase is None else timer.phase
            assert f"| `{timer.name}` | {phase} | {timer.includes} | {timer.waits} | `{timer.where}` |" in page
        for kl_coefficient in (0.0, 0.001):
            for sentence in DIFFERENCES[name](body(made_manifest(name, kl_coefficient=kl_coefficient))):
                assert f"- {sentence}" in page, sentence


def test_areals_means_are_multiplied_by_how_often_they_were_taken() -> None:
    raw = read_all(str(LOGS["areal"]), "areal", areal.ArealTrainer.known_versions)[0]
    once = raw.values["timeperf/rollout_onload"]
    assert raw.values["timeperf/rollout_onload__count"] == 2 and once is not None
    assert areal.summed(raw).values["timeperf/rollout_onload"] == 2 * once


def test_without_a_timer_of_the_whole_a_step_is_from_the_last_line_to_its_own() -> None:
    step = steps_of("areal")[1]
    assert timed("areal", step).seconds == step.ended - step.began


def test_what_lies_within_another_timer_is_in_no_sum() -> None:
    timers = (
        Timer("all", WHOLE, "i", "w", "o", "f:1"),
        Timer("a", "train", "i", "w", "o", "f:2"),
        Timer("b", WITHIN, "i", "w", "o", "f:3", detail="train/b"),
    )
    step = LoggedStep(1, 0.0, 5.0, {"all": 2.0, "a": 1.5, "b": 1.0})
    assert time_step(step, timers, "toy") == Timed(2.0, {"train": 1.5}, {"train/b": 1.0})
