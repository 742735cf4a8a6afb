"""`suite plan --target`, `--deadline` and `--simulate`: what a buyer is told is what the planner answers."""

import json
import re

import pytest

from suite.cli.options.plan_search import manner_of
from suite.planner.ask import question
from suite.planner.parameters import load_parameters
from suite.planner.search.answer import found_again
from suite.planner.search.request import Wishes, answer, make_search
from suite.planner.search.wishes import read_prices
from suite.planner.simulate.explain import setting_of
from suite.planner.simulate.iteration import simulate
from suite.spec.catalogue import find_size, find_workload
from tests.command import suite

MODEL = ("plan", "--size", "6.7B", "--price", "2")
KINDS = ("H100-SXM-80GB", "A100-SXM-80GB")
DEVICES = ("--device", KINDS[0], "--device", KINDS[1], "--devices", "64")
SAMPLES = 16 * 64  # of an iteration: the workload's per device, of 64 devices


def asked_of_the_planner(**wished):
    """The search and its answer, without the command."""
    work, parameters = find_workload("trlx-ds-chat"), load_parameters()
    manner = manner_of("vllm", False, False, False)
    questions = [
        question(find_size("6.7B"), work, KINDS[0], name, parameters, manner) for name in ("deepspeed", "megatron")
    ]
    wishes = Wishes(devices=(64,), kinds=KINDS, prices=read_prices(["2"]), **wished)
    search = make_search(questions, 64, wishes, None)
    return search, answer(search, wishes)


@pytest.mark.parametrize(
    ("words", "wished", "rate"),
    [
        (("--target", "20 samples/s"), {"target": "20 samples/s"}, 20.0),
        (
            ("--deadline", "2d", "--iterations", "4000"),
            {"deadline": "2d", "iterations": 4000},
            4000 * SAMPLES / (2 * 86_400),
        ),
        (
            ("--target", "20 samples/s", "--objective", "cost"),
            {"target": "20 samples/s", "objective": "cost"},
            20.0,
        ),
    ],
    ids=["samples", "deadline", "cheapest"],
)
def test_the_words_a_buyer_reads_are_those_of_the_planners_own_answer(words, wished, rate):
    _, found = asked_of_the_planner(**wished)
    told, body = suite(*MODEL, *DEVICES, *words), suite(*MODEL, *DEVICES, *words, "--json")
    assert (told.exit_code, body.exit_code) == (0, 0), told.stderr
    assert json.loads(body.stdout) == {"search": {**found.model_dump(mode="json"), "met": True}}
    best, cheapest = found.options[0], found.objective == "cost"
    assert found.target_samples_per_second == pytest.approx(rate) and best.samples_per_second >= rate
    assert f"{'cheapest' if cheapest else 'fewest'}: {best.devices} x {best.device}, {best.label}" in told.stdout
    assert f"{best.samples_per_second:.3g} samples/s" in told.stdout
    assert f"{best.seconds:.1f} s an iteration" in told.stdout
    assert best.cost_per_hour == 2 * best.devices and f"{best.cost_per_hour:.2f} an hour" in told.stdout
    assert found.target in told.stdout and "prices: yours, per device and hour: 2" in told.stdout
    for kind in found.kinds:
        assert re.search(rf"^{kind.device} +{kind.best.devices} ", told.stdout, re.MULTILINE), "each kind has its row"
    measure = "cost_per_hour" if cheapest else "devices"
    assert getattr(best, measure) == min(getattr(kind.best, measure) for kind in found.kinds if kind.reached)


def test_a_target_out_of_reach_ends_with_three_and_says_what_the_most_devices_do():
    wished = {"target": "100000 samples/s"}
    _, found = asked_of_the_planner(**wished)
    done = suite(*MODEL, *DEVICES, "--target", wished["target"])
    assert (done.exit_code, found.met, found.options) == (3, False, [])
    fastest = max(kind.best.samples_per_second for kind in found.kinds)
    assert f"{fastest:.3g}" in done.stdout and "fewest:" not in done.stdout


def test_the_best_is_simulated_and_its_seconds_are_told_by_cause(tmp_path):
    search, found = asked_of_the_planner(target="20 samples/s")
    columns, asked, index = found_again(search, found.options[0])
    simulated = simulate(setting_of(columns, asked, search.work, index, False), None)
    files = ("--trace", tmp_path / "trace.json", "--svg", tmp_path / "causes.svg")
    told = suite(*MODEL, *DEVICES, "--target", "20 samples/s", "--simulate", *files)
    body = json.loads(suite(*MODEL, *DEVICES, "--target", "20 samples/s", "--simulate", "--json").stdout)
    assert body["simulated"] == {"seconds": simulated.seconds, "causes": simulated.causes}
    assert sum(simulated.causes.values()) == pytest.approx(simulated.seconds)
    assert f"simulated: {simulated.seconds:.2f} s an iteration" in told.stdout
    for cause, seconds in simulated.causes.items():
        if seconds >= 0.005 * simulated.seconds:
            assert re.search(rf"^{cause} +█* +{seconds:.2f} s", told.stdout, re.MULTILINE), cause
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "causes.svg").read_text().startswith("<svg")


def test_a_presets_own_work_is_bought_for_and_its_curve_is_drawn():
    asked = ("plan", "--preset", "grpo-8b", "--device", "H100-SXM-80GB", "--price", "2")
    body = json.loads(suite(*asked, "--target", "5 samples/s", "--json").stdout)["search"]
    assert body["met"] and body["work"]["algorithm"]["name"] == "grpo"
    points = json.loads(suite(*asked, "--scale", "8..16", "--json").stdout)["curves"]
    assert {point["devices"] for point in points} == {8, 16}
