"""Logs recorded with the trainers' own timers and trackers (docs/trainers) become phases and counts, or are refused."""

from __future__ import annotations

import json
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
NAMES = tuple(READ)


def steps_of(name: str) -> list[LoggedStep]:
    kind = READ[name][0]
    steps = read_all(str(LOGS[name]), name, kind.known_versions)
    return [areal.summed(step) for step in steps] if name == "areal" else steps


def timed(name: str, step: LoggedStep) -> Timed:
    return time_step(step, READ[name][0].timers, name)


def without(step: LoggedStep, logged: str) -> LoggedStep:
    return replace(step, values={key: number for key, number in step.values.items() if key != logged})


@pytest.mark.parametrize("name", NAMES)
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
        for step in steps_of(name):
            counts = check_told(READ[name][1](step), manifest, step, name)

            assert {key: counts[key] for key in ("samples", "prompt_tokens", "response_tokens", "trained_tokens")} == {
                key: asked[key] for key in ("samples", "prompt_tokens", "response_tokens", "trained_tokens")
            }
            assert counts["total_parameters"] is None and counts["trainable_parameters"] is None
            assert counts["optimizer_steps"] == (2 if name == "areal" else None)

    def test_another_amount_of_work_is_refused_with_both_numbers(self, name: str) -> None:
        manifest = body(made_manifest(name, new_tokens=16))
        step = steps_of(name)[0]

        with pytest.raises(ConfigError, match="response_tokens 256 wanted, 128 logged"):
            check_told(READ[name][1](step), manifest, step, name)

    def test_a_step_that_tells_no_samples_is_refused(self, name: str) -> None:
        step = replace(steps_of(name)[0], values={})

        with pytest.raises(ConfigError, match="tells no samples, prompt_tokens, response_tokens"):
            check_told(READ[name][1](step), body(made_manifest(name)), step, name)

    def test_names_of_another_version_are_refused(self, name: str) -> None:
        timer = next(timer for timer in READ[name][0].timers if timer.phase == "train" and timer.required)

        with pytest.raises(ConfigError, match=f"has no {timer.name}: a version that logs by other names"):
            timed(name, without(steps_of(name)[0], timer.name))

    @pytest.mark.parametrize("seconds", [None, -0.5])
    def test_a_timer_without_a_time_is_refused(self, name: str, seconds: float | None) -> None:
        step = steps_of(name)[0]
        timer = next(timer for timer in READ[name][0].timers if timer.phase == "generate")

        with pytest.raises(ConfigError, match=f"took {seconds} in {timer.name}"):
            timed(name, replace(step, values={**step.values, timer.name: seconds}))

    def test_phases_longer_than_the_step_are_refused(self, name: str) -> None:
        step = steps_of(name)[0]
        timer = next(timer for timer in READ[name][0].timers if timer.phase == "generate")

        with pytest.raises(ConfigError, match="the phases of step 1"):
            timed(name, replace(step, values={**step.values, timer.name: 1000.0}))

    def test_the_log_holds_no_path_and_no_text(self, name: str) -> None:
        for line in LOGS[name].read_text().splitlines():
            values = json.loads(line).get("values", {})
            assert all(isinstance(number, (int, float)) for number in values.values())


class TestSemantics:
    @pytest.mark.parametrize("name", NAMES)
    def test_every_timer_of_the_suite_says_what_it_holds_and_where_it_is(self, name: str) -> None:
        timers: tuple[Timer, ...] = READ[name][0].timers

        assert len({timer.name for timer in timers}) == len(timers)
        for timer in timers:
            assert timer.includes and timer.waits and timer.overlaps
            assert timer.where.split(":")[1][0].isdigit(), timer

    def test_areals_means_are_multiplied_by_how_often_they_were_taken(self) -> None:
        raw = read_all(str(LOGS["areal"]), "areal", areal.ArealTrainer.known_versions)[0]

        assert raw.values["timeperf/rollout_onload__count"] == 2
        once = raw.values["timeperf/rollout_onload"]
        assert once is not None and areal.summed(raw).values["timeperf/rollout_onload"] == 2 * once

    def test_without_a_timer_of_the_whole_a_step_is_from_the_last_line_to_its_own(self) -> None:
        step = steps_of("areal")[1]

        assert timed("areal", step).seconds == step.ended - step.began

    def test_what_lies_within_another_timer_is_in_no_sum(self) -> None:
        timers = (
            Timer("all", WHOLE, "i", "w", "o", "f:1"),
            Timer("a", "train", "i", "w", "o", "f:2"),
            Timer("b", WITHIN, "i", "w", "o", "f:3", detail="train/b"),
        )
        step = LoggedStep(1, 0.0, 5.0, {"all": 2.0, "a": 1.5, "b": 1.0})

        assert time_step(step, timers, "toy") == Timed(2.0, {"train": 1.5}, {"train/b": 1.0})


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_has_every_timer_as_the_reader_knows_it(name: str) -> None:
    page = (HERE.parents[3] / "docs" / "trainers" / f"{name}.md").read_text()
    for timer in READ[name][0].timers:
        phase = "other" if timer.phase is None else timer.phase
        row = f"| `{timer.name}` | {phase} | {timer.includes} | {timer.waits} | `{timer.where}` |"
        assert row in page, row


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_has_every_difference_of_the_work(name: str) -> None:
    page = " ".join((HERE.parents[3] / "docs" / "trainers" / f"{name}.md").read_text().split())
    differences = {"nemo-rl": nemo_rl.differences, "skyrl": skyrl.differences, "areal": areal.differences}[name]
    for kl_coefficient in (0.0, 0.001):
        for sentence in differences(body(made_manifest(name, kl_coefficient=kl_coefficient))):
            assert f"- {sentence}" in page, sentence
