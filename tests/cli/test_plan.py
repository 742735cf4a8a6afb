"""`suite plan` as a user types it; what a buyer is told is what the planner answers."""

import json
import os
import re
import shlex
import sys

import pytest

from suite.planner.ask import question
from suite.planner.parameters import load_parameters
from suite.planner.search.answer import found_again
from suite.planner.search.request import Wishes, answer, make_search, manner_of
from suite.planner.search.wishes import read_prices
from suite.planner.simulate.explain import setting_of
from suite.planner.simulate.iteration import simulate
from suite.spec.catalogue import find_size, find_workload
from tests.command import refused, suite, told
from tests.spec.test_huggingface import PUBLISHED as PUBLISHED_CONFIGS
from tests.tools.planner.rows import PUBLISHED

PAGE = (PUBLISHED.parent / "planner.md").read_text(encoding="utf-8")
EXAMPLES = [line for line in PAGE.splitlines() if line.startswith("suite plan ")]


H100 = ("--size", "13B", "--device", "H100", "--devices", "8", "--backend", "deepspeed")


def test_the_answer_is_one_screen_with_layouts_memory_and_misses():
    asked = ("--size", "66B", "--device", "A100-80GB", "--devices", "32", "--backend", "megatron", "--price", "2")
    done = suite("plan", *asked)
    assert done.exit_code == 0 and "tp8 pp4" in done.stdout and "per 1000" in done.stdout, done.stderr
    assert re.search(r"misses by \d+\.\d GiB per device: [a-z ]+ take", done.stdout)
    assert len(done.stdout.splitlines()) < 40


def test_the_output_says_which_work_and_which_device_it_plans():
    shown = suite("plan", *H100).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("one iteration: ")]
    assert "16 samples per device (128 on 8)" in line and "no separate critic" in line
    assert "a separate critic of 24 layers" in suite("plan", *H100, "--workload", "ds-chat-step3").stdout
    assert "note: H100 is taken for H100-SXM-80GB; others are H100-PCIe-80GB, H100-NVL-94GB" in shown


def test_every_row_has_its_range_and_tight_rows_are_marked():
    band = load_parameters().bands["iteration"].new
    asked = ("--size", "6.7B", "--device", "V100-SXM2-32GB", "--devices", "12", "--backend", "megatron")
    best, *others = told("plan", *asked)["plans"][0]["options"]
    shown = suite("plan", *asked).stdout
    assert best["tight"] and not all(other["tight"] for other in others)
    low, high = (best["samples_per_second"] / share for share in (band.high, band.low))
    (row,) = [line for line in shown.splitlines() if line.startswith("1 ") and "|" not in line]
    assert f"{low:.3g} to {high:.3g}" in row and f"{best['memory_bytes'] / 2**30:.1f}!" in row
    assert "! tight: " in shown and "is the best with room to spare" in shown


def test_rewards_take_their_time_and_tools_what_samples_may_not_grow_older_by():
    asked = ("--size", "Qwen2.5-7B", "--samples-per-iteration", "256", "--devices", "16", "--device", "H100")

    def seconds(placement: str, *more: str) -> float:
        return told("plan", *asked, "--placement", placement, *more)["search"]["options"][0]["seconds"]

    alone, ahead = seconds("colocated"), seconds("split")
    assert seconds("colocated", "--reward-seconds", "0.5") == pytest.approx(alone + 128)
    assert seconds("colocated", "--tool-seconds", "90") == pytest.approx(alone + 90)
    assert seconds("split", "--tool-seconds", "1") == pytest.approx(ahead)
    assert 45 < seconds("split", "--tool-seconds", "90") < 50 < 90


def test_fewest_devices_by_offload_name_the_host_memory():
    asked = ("--size", "13B", "--device", "H100-SXM-80GB", "--min-devices")
    shown = suite("plan", *asked, "--backend", "deepspeed").stdout
    least = 20 * 12_853_386_240 / 2**30
    says = r"fewest devices: 1, by offload: .* takes at least (\d+) GiB of host memory .* the fewest are (\d+)"
    found = re.search(says, shown)
    assert found and least <= int(found[1]) < 1.01 * least and int(found[2]) > 1
    assert "offload" not in suite("plan", *asked, "--backend", "trlx-nemo").stdout


@pytest.mark.parametrize("more", [(), ("--scale", "8..16"), ("--target", "5 samples/s", "--simulate")])
def test_no_line_is_longer_than_the_terminal(more, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = suite("plan", "--size", "1.3B", "--device", "H100", *more).stdout
    assert "samples/s" in shown and not [line for line in shown.splitlines() if len(line) > 80]


def test_json_holds_the_same_plan():
    plans = told("plan", "--size", "13B", "--devices", "8", "--min-devices", "--max-batch")["plans"]
    assert [entry["backend"] for entry in plans] == ["deepspeed", "megatron"]
    for entry in plans:
        assert entry["options"][0]["fits"] and entry["max_micro_batch"]
        assert entry["min_devices"] == entry["options"][0]["devices"]


def test_nothing_that_fits_ends_with_three_and_names_the_nearest():
    done = suite("plan", "--size", "66B", "--device", "RTX-4090", "--devices", "8", "--backend", "megatron")
    assert done.exit_code == 3
    assert "nothing fits; nearest is" in done.stdout


@pytest.mark.slow
def test_the_check_prints_its_table_and_its_json():
    assert "llm-foundry" in suite("plan", "--check", PUBLISHED).stdout
    body = told("plan", "--check", PUBLISHED)
    assert body["overall"]["step"]["rows"] > 400 and body["overall"]["iteration"]["rows"] > 50


def test_an_installation_without_a_checkout_says_where_the_check_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "tools.planner.check", None)
    assert "tools/planner of the repository: run it in a checkout" in refused("plan", "--check", PUBLISHED)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--size"),
        (("--size", "13B", "--shape", "x.yaml"), "name one model"),
        (("--shape", "FALCON"), "qwen3, qwen3_moe. To plan or measure a model of that size all the same"),
        (("--size", "13B", "--generation", "sglang"), "--generation is hf or vllm, not 'sglang'"),
        (("--size", "13B", "--objective", "speed"), "throughput"),
        (("--size", "13B", "--top", "0"), "--top is at least 1"),
        (("--size", "13B", "--scaling", "odd"), "scaling"),
        (("--check", "no-such-file.csv"), "no file or folder"),
        (("rows.csv", "--size", "13B"), "--check"),
        (("--size", "13B", "--scale", "x..y"), "--scale"),
        (("--size", "13B", "--target", "fast"), "--target is a rate such as '50 samples/s'"),
        (("--size", "13B", "--target", "5", "--deadline", "24h"), "give one of them"),
        (("--size", "13B", "--deadline", "24h"), "--deadline needs --iterations"),
        (("--size", "13B", "--deadline", "soon", "--iterations", "5"), "--deadline is a time such as 24h"),
        (("--size", "13B", "--iterations", "5"), "until --deadline, which is not given"),
        (("--size", "13B", "--target", "5", "--min-devices"), "leave out --placement, --target and --preset"),
        (("--size", "13B", "--placement", "split", "--generation", "hf"), "--generation vllm, or --placement"),
        (("--preset", "ladder", "--target", "5"), "preset ladder has several sizes"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_two(arguments, words, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "falcon", "hidden_size": 64}')
    given = [tmp_path / "config.json" if word == "FALCON" else word for word in arguments]
    assert words in refused("plan", *given)


def test_a_config_json_with_grpo_uneven_lengths_and_vllm_is_planned(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED_CONFIGS["Llama-3.2-1B"]))
    work = ("--algorithm", "grpo", "--lengths", "lognormal:mean=512,sigma=0.6,cap=4096")
    asked = ("--shape", tmp_path / "config.json", "--device", "H100", "--backend", "deepspeed", "--rollouts", "32")
    (found,) = told("plan", *asked, *work, "--generation", "vllm", "--packing")["plans"]
    phases = found["options"][0]["phases"]
    assert phases["sync"] > 0 and "reference" not in phases
    assert found["work"]["algorithm"]["name"] == "grpo" and found["options"][0]["layout"]["generation"] == "vllm"


MODEL = ("plan", "--size", "6.7B", "--price", "2", "--workload", "trlx-ds-chat", "--samples-per-iteration", "1024")
KINDS = ("H100-SXM-80GB", "A100-SXM-80GB")
DEVICES = ("--device", KINDS[0], "--device", KINDS[1], "--devices", "64")


def asked_of_the_planner(**wished):
    """The search and its answer, without the command."""
    work, parameters = find_workload("trlx-ds-chat"), load_parameters()
    work = work.changed({"rollouts": 1024, "scaling": "strong"})
    manner = manner_of("vllm", "hf", False, False, False, None)
    backends = ("deepspeed", "megatron")
    questions = [question(find_size("6.7B"), work, KINDS[0], name, parameters, manner) for name in backends]
    wishes = Wishes(devices=(64,), kinds=KINDS, prices=read_prices(["2"]), **wished)
    search = make_search(questions, 64, wishes, None)
    return search, answer(search, wishes)


@pytest.mark.parametrize(
    ("words", "wished", "rate"),
    [
        (("--target", "20 samples/s"), {"target": "20 samples/s"}, 20.0),
        (("--deadline", "2d", "--iterations", "4000"), {"deadline": "2d", "iterations": 4000}, 2_048_000 / 86_400),
        (("--target", "20 samples/s", "--objective", "cost"), {"target": "20 samples/s", "objective": "cost"}, 20.0),
    ],
    ids=["samples", "deadline", "cheapest"],
)
def test_the_words_a_buyer_reads_are_those_of_the_planners_own_answer(words, wished, rate):
    _, found = asked_of_the_planner(**wished)
    shown = suite(*MODEL, *DEVICES, *words).stdout
    assert told(*MODEL, *DEVICES, *words) == {"search": {**found.model_dump(mode="json"), "met": True}}
    best, word = found.options[0], "cheapest" if found.objective == "cost" else "fewest"
    assert found.target_samples_per_second == pytest.approx(rate) and best.samples_per_second >= rate
    assert shown.startswith(f"{best.devices} {best.device} ("), "the first line is the answer in words"
    assert f"{word}: {best.devices} x {best.device}, {best.label}" in shown
    assert best.cost_per_hour == 2 * best.devices and f"{best.cost_per_hour:.2f} an hour" in shown
    assert found.target in shown and "prices: yours, per device and hour: 2" in shown


def test_a_target_out_of_reach_ends_with_three_and_says_what_the_most_devices_do():
    wished = {"target": "100000 samples/s"}
    _, found = asked_of_the_planner(**wished)
    done = suite(*MODEL, *DEVICES, "--target", wished["target"])
    assert (done.exit_code, found.met, found.options) == (3, False, [])
    fastest = max(kind.best.samples_per_second for kind in found.kinds)
    assert f"{fastest:.3g}" in done.stdout and "fewest:" not in done.stdout


def test_the_best_is_simulated_and_its_seconds_are_told_by_cause(tmp_path):
    search, found = asked_of_the_planner(target="20 samples/s")
    columns, index = found_again(search, found.options[0])
    simulated = simulate(setting_of(columns, index, False), None)
    asked = (*MODEL, *DEVICES, "--target", "20 samples/s", "--simulate")
    shown = suite(*asked, "--trace", tmp_path / "trace.json").stdout
    assert told(*asked)["simulated"] == {"seconds": simulated.seconds, "causes": simulated.causes}
    assert sum(simulated.causes.values()) == pytest.approx(simulated.seconds)
    assert f"simulated: {simulated.seconds:.2f} s an iteration" in shown
    for cause, seconds in simulated.causes.items():
        if seconds >= 0.005 * simulated.seconds:
            assert re.search(rf"^{cause} +█* +{seconds:.2f} s", shown, re.MULTILINE), cause
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_trace_is_written_into_no_pipe_whose_reader_would_be_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    line = refused("plan", *H100, "--trace", tmp_path / "pipe")
    assert line.endswith("pipe cannot be written: it is not a regular file\n")


def test_what_would_change_the_answer_is_the_answer_to_changed_questions():
    asked = (*MODEL, *DEVICES, "--target", "20 samples/s", "--sensitivity", "--objective", "cost")
    shown, body = suite(*asked).stdout, told(*asked)
    best, (longer, slower, prices) = body["search"]["options"][0], body["sensitivity"]
    assert longer["best"]["cost_per_hour"] > best["cost_per_hour"] <= slower["best"]["cost_per_hour"]
    first, second = (kind["best"]["cost_per_hour"] for kind in body["search"]["kinds"][:2])
    assert f"costs {second / first:.2f} times its price" in prices["text"]
    assert all(f"  {change['what']}: " in shown for change in body["sensitivity"])


def test_a_presets_own_work_is_bought_for_and_its_curve_is_drawn():
    asked = ("plan", "--preset", "grpo-8b", "--device", "H100-SXM-80GB", "--price", "2")
    body = told(*asked, "--target", "5 samples/s")["search"]
    assert body["met"] and body["work"]["algorithm"]["name"] == "grpo"
    points = told(*asked, "--scale", "8..16")["curves"]["best"]
    assert {point["devices"] for point in points} == {8, 16}


def test_a_target_alone_is_of_rl_work_whose_samples_do_not_depend_on_devices():
    asked = ("plan", "--size", "Llama-3.1-8B", "--new-tokens", "256", "--device", "H100", "--target", "1 samples/s")
    few, many = (told(*asked, "--devices", most)["search"] for most in ("8", "16"))
    assert few["work"]["algorithm"]["name"] == "grpo" and few["work"] == many["work"]
    given = told(*asked, "--samples-per-iteration", "512")["search"]
    assert given["work"]["rollouts"] == 512 and given["work"]["scaling"] == "strong"


def test_ones_own_cluster_is_planned_for():
    asked = ("plan", *H100, "--gpus-per-node", "4", "--nic", "10", "--link", "25")
    slow, usual = (told(*each)["plans"][0] for each in (asked, ("plan", *H100)))
    assert slow["options"][0]["layout"]["devices_per_node"] == 4
    assert slow["options"][0]["samples_per_second"] < usual["options"][0]["samples_per_second"]
    assert "--nic is a positive number" in refused("plan", *H100, "--nic", "-1")


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_of_the_buying_page_has_an_answer(line):
    done = suite(*shlex.split(line)[1:])
    assert done.exit_code in (0, 3), done.stderr
    assert "samples/s" in done.stdout


def test_the_answer_that_the_page_explains_is_todays():
    shown = re.search(r"## How to read the answer\n\n```\n(.*?)```", PAGE, re.DOTALL)
    lines = suite(*shlex.split(EXAMPLES[0])[1:]).stdout.splitlines()
    assert shown[1].splitlines() == [line.rstrip() for line in lines[:3]]
