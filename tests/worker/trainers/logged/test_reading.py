"""A step log is believed line by line or not at all: torn, repeated, missing and foreign lines are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.reading import StepReader, read_all
from suite.worker.trainers.logged.sink import STEP_LOG_SCHEMA, StepSink

START = {"kind": "start", "schema": STEP_LOG_SCHEMA, "trainer": "toy", "version": "1", "clock": 1.0}
BEGIN = {"kind": "begin", "clock": 2.0}


def step(number: int, clock: float, finished: bool = True, **values: object) -> dict[str, object]:
    return {"kind": "step", "step": number, "finished": finished, "values": values, "clock": clock}


def written(path: Path, *lines: object, end: str = "\n") -> str:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return str(path)


def read(path: str) -> list[tuple[int, float, float, dict[str, float | None]]]:
    return [(each.number, each.began, each.ended, each.values) for each in read_all(path, "toy", ("1",))]


class TestSteps:
    def test_lines_of_a_step_are_put_together_and_timed_from_the_step_before(self, tmp_path: Path) -> None:
        path = written(tmp_path / "log", START, BEGIN, step(1, 3.0, False, a=1), step(1, 4.0, b=2), step(2, 9.0, a=3))

        assert read(path) == [(1, 2.0, 4.0, {"a": 1, "b": 2}), (2, 4.0, 9.0, {"a": 3})]

    def test_half_a_line_waits_for_its_other_half(self, tmp_path: Path) -> None:
        whole = json.dumps(step(1, 3.0, a=1)) + "\n"
        path = written(tmp_path / "log", START, BEGIN, whole[:20], end="")
        reader = StepReader(path, "toy", ("1",))

        assert list(reader.read()) == []
        with (tmp_path / "log").open("a") as file:
            file.write(whole[20:])

        assert [each.values for each in reader.read()] == [{"a": 1}]

    def test_a_log_that_is_not_there_yet_or_of_a_build_of_a_known_version_has_no_steps(self, tmp_path: Path) -> None:
        assert list(StepReader(str(tmp_path / "none"), "toy", ("1",)).read()) == []
        assert read(written(tmp_path / "log", {**START, "version": "1+0a1b2c3"}, BEGIN)) == []

    def test_the_sink_keeps_numbers_and_makes_what_is_not_finite_null(self, tmp_path: Path) -> None:
        sink = StepSink(str(tmp_path / "log"), "toy", "1")
        sink.begin()
        sink.log({"a": float("nan"), "b": 2, "c": [1, 2], "d": "text", "e": True}, 1, "p")

        assert read_all(str(tmp_path / "log"), "toy", ("1",))[0].values == {"p/a": None, "p/b": 2, "p/e": 1}


class TestRefusals:
    @pytest.mark.parametrize(
        ("lines", "told"),
        [
            ((START, BEGIN, '{"kind": "step", "st', step(1, 3.0)), "line 3 of toy's step log (log) is torn or no JSON"),
            ((START, BEGIN, '{"kind": "step", "step": 1, "clock": NaN}'), "is torn or no JSON"),
            ((START, BEGIN, "[1]"), "is no object"),
            ((START, BEGIN, {"kind": "else", "clock": 3.0}), "unknown kind 'else'"),
            ((BEGIN,), "comes before its start"),
            ((START, step(1, 3.0)), "is a step before the loop began"),
            ((START, START, BEGIN), "the trainer was started twice"),
            (({**START, "trainer": "other"},), "is of 'other'"),
            (({**START, "schema": "suite/steplog/9"},), "'suite/steplog/9'"),
            (({**START, "version": "2"},), "toy 2 logs by other names than those that are known, which are of 1"),
            ((START, BEGIN, step(1, 3.0), step(3, 4.0)), "is of step 3 where 2 follows"),
            ((START, BEGIN, step(1, 3.0), step(1, 4.0)), "is of step 1 where 2 follows"),
            ((START, BEGIN, step(1, 3.0, False), step(2, 4.0)), "is of step 2 within step 1"),
            ((START, BEGIN, step(1, 1.5)), "has no clock, or one that goes back"),
            ((START, BEGIN, {**step(1, 3.0), "clock": "now"}), "has no clock"),
            ((START, BEGIN, {**step(1, 3.0), "step": True}), "is no step"),
            ((START, BEGIN, step(1, 3.0, a="fast")), "has str for 'a'"),
            ((START, BEGIN, step(1, 3.0, False)), "ends within step 1"),
        ],
    )
    def test_what_cannot_be_trusted_is_refused_with_its_line(
        self, tmp_path: Path, lines: tuple[object, ...], told: str
    ) -> None:
        with pytest.raises(ConfigError) as error:
            read(written(tmp_path / "log", *lines))

        assert told in str(error.value)

    def test_a_log_that_ends_within_a_line_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="ends within line 3"):
            read(written(tmp_path / "log", START, BEGIN, '{"kind": "st', end=""))
