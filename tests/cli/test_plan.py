"""`suite plan` as a user types it."""

import json
import re

import pytest

from suite.planner.parameters import load_parameters
from suite.report.formatting import width
from tests.command import suite
from tests.fitting.rows import PUBLISHED, write_rows
from tests.spec.test_huggingface import PUBLISHED as PUBLISHED_CONFIGS


def plan(*arguments):
    return suite("plan", *arguments)


def body_of(*arguments):
    return json.loads(plan(*arguments, "--json").stdout)


H100 = ("--size", "13B", "--device", "H100", "--devices", "8", "--backend", "deepspeed")


def test_the_answer_is_one_screen_with_layouts_memory_and_misses():
    done = plan("--size", "66B", "--device", "A100-80GB", "--devices", "32", "--backend", "megatron", "--price", "2")
    assert done.exit_code == 0, done.stderr
    assert "tp8 pp4" in done.stdout
    assert re.search(r"misses by \d+\.\d GiB per device: [a-z ]+ take", done.stdout)
    assert "per 1000" in done.stdout
    assert len(done.stdout.splitlines()) < 40


def test_the_output_says_which_work_and_which_device_it_plans():
    shown = plan(*H100).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("one iteration: ")]
    for words in (
        *("16 samples per device (128 on 8)", "256 prompt and 256 new tokens", "1 PPO epoch of 1 optimizer step"),
        *("micro batch at most 4", "all layers train", "full reference", "no separate critic"),
    ):
        assert words in line
    assert "a separate critic of 24 layers" in plan(*H100, "--workload", "ds-chat-step3").stdout
    assert "13B on H100-SXM-80GB" in shown
    assert "note: H100 is taken for H100-SXM-80GB; others are H100-PCIe-80GB, H100-NVL-94GB" in shown


def test_every_row_has_its_range_and_tight_rows_are_marked():
    band = load_parameters().ppo
    asked = ("--size", "2.7B", "--device", "V100-SXM2-32GB", "--devices", "8", "--backend", "megatron")
    best, second, *_ = body_of(*asked)["plans"][0]["options"]
    shown = plan(*asked).stdout
    assert best["tight"] and not second["tight"]
    low, high = (best["samples_per_second"] * share for share in (band.low, band.high))
    (row,) = [line for line in shown.splitlines() if line.startswith("1 ") and "|" not in line]
    assert f"{low:.3g} to {high:.3g}" in row and f"{best['memory_bytes'] / 2**30:.1f}!" in row
    assert "! tight: within" in shown and "2 is the best with room to spare" in shown


def test_layouts_with_one_prediction_are_one_row_that_names_the_other():
    # with so many rollouts generation is the fullest phase, where ZeRO-1 and ZeRO-2 hold the same
    asked = ("--size", "1.3B", *H100[2:], "--rollouts", "128")
    options = body_of(*asked)["plans"][0]["options"]
    assert len(options) == 8
    predictions = {(one["seconds"], one["memory_bytes"], one["host_memory_bytes"]) for one in options}
    assert len(predictions) == 8, "ZeRO-1 and 2 with offload differ in host memory alone"
    twin = next(option for option in options if option["label"] == "zero1 dp8")
    assert twin["twins"] == ["zero2 dp8"]
    assert "= zero2 dp8: predicted alike" in plan(*asked).stdout


def test_fewest_devices_by_offload_name_the_host_memory():
    asked = ("--size", "13B", "--device", "H100-SXM-80GB", "--min-devices")
    shown = plan(*asked, "--backend", "deepspeed").stdout
    least = 20 * 12_853_386_240 / 2**30
    found = re.search(
        r"fewest devices: 1, by offload: .* takes at least (\d+) GiB of host memory .* the fewest are (\d+)", shown
    )
    assert found and least <= int(found[1]) < 1.01 * least and int(found[2]) > 1
    assert "offload" not in plan(*asked, "--backend", "trlx-nemo").stdout


@pytest.mark.parametrize("columns", [72, 80, 100, 121])
@pytest.mark.parametrize(
    "arguments",
    [
        H100,
        (*H100[:2], "--min-devices", "--price", "2"),
        (*H100[:2], "--scale", "8..16"),
        ("--size", "1.3B", "--target", "5 samples/s", "--device", "H100", "--device", "A100-80GB", "--simulate"),
    ],
    ids=["layouts", "fewest", "scale", "target"],
)
def test_no_line_is_longer_than_the_terminal(columns, arguments, monkeypatch):
    monkeypatch.setattr(width, "terminal_columns", lambda: columns)
    shown = plan(*arguments).stdout
    assert "samples/s" in shown
    assert not [line for line in shown.splitlines() if len(line) > columns]


def test_a_mark_means_one_part_in_all_charts():
    shown = plan(*H100[:6]).stdout
    meanings = {}
    for mark, part in re.findall(r"([█▓▒░▚▞▤▦◫·]) ([A-Za-z ]+?) (?:[\d.]+|-)(?:  |$)", shown, re.MULTILINE):
        meanings.setdefault(mark, set()).add(part)
    assert len(meanings) >= 8 and all(len(parts) == 1 for parts in meanings.values())


def test_json_holds_the_same_plan():
    plans = body_of("--size", "13B", "--devices", "8", "--min-devices", "--max-batch")["plans"]
    assert [entry["backend"] for entry in plans] == ["deepspeed", "megatron"]
    for entry in plans:
        assert entry["options"][0]["fits"]
        assert entry["min_devices"] == entry["options"][0]["devices"]
        assert entry["max_micro_batch"]


def test_nothing_that_fits_ends_with_three_and_names_the_nearest():
    done = plan("--size", "66B", "--device", "RTX-4090", "--devices", "8", "--backend", "megatron")
    assert done.exit_code == 3
    assert "nothing fits; nearest is" in done.stdout


@pytest.mark.slow
def test_the_check_prints_its_table_and_its_json(tmp_path):
    done = plan("--check", PUBLISHED, "--svg", tmp_path / "chart.svg")
    assert done.exit_code == 0, done.stderr
    assert "llm-foundry" in done.stdout
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    body = body_of("--check", PUBLISHED)
    assert set(body) >= {"overall", "sources"}
    assert body["overall"]["step_time"]["rows"] > 400


def test_several_files_can_be_checked(tmp_path):
    first, second = write_rows(tmp_path / "a.csv"), write_rows(tmp_path / "b.csv", {"source_id": "other"})
    assert set(body_of("--check", first, second)["sources"]) == {"somebody", "other"}


def test_a_scaling_curve_names_the_binding_limit():
    done = plan("--size", "6.7B", "--backend", "megatron", "--scale", "8..64")
    assert done.exit_code == 0, done.stderr
    assert len(re.findall(r"^weak ", done.stdout, re.MULTILINE)) == 4


def test_the_chart_of_memory_is_written(tmp_path):
    done = plan("--size", "1.3B", "--devices", "8", "--backend", "deepspeed", "--svg", tmp_path / "memory.svg")
    assert done.exit_code == 0, done.stderr
    assert "optimizer states" in (tmp_path / "memory.svg").read_text()


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
        (("--size", "13B", "--calibrate", "no-such-folder"), "no-such-folder"),
        (("rows.csv", "--size", "13B"), "--check"),
        (("--size", "13B", "--scale", "x..y"), "--scale"),
        (("--size", "13B", "--target", "fast"), "--target is a rate such as '50 samples/s'"),
        (("--size", "13B", "--target", "5", "--deadline", "24h"), "give one of them"),
        (("--size", "13B", "--deadline", "24h"), "--deadline needs --iterations"),
        (("--size", "13B", "--deadline", "soon", "--iterations", "5"), "--deadline is a time such as 24h"),
        (("--size", "13B", "--iterations", "5"), "until --deadline, which is not given"),
        (("--size", "13B", "--target", "5", "--objective", "cost"), "no price is known"),
        (("--size", "13B", "--target", "5", "--min-devices"), "leave out --placement, --target and --preset"),
        (("--size", "13B", *H100[2:], "--target", "1", "--trace", "/nowhere/a.json"), "/nowhere/a.json cannot be"),
        (("--size", "13B", "--placement", "split", "--generation", "hf"), "--generation vllm, or --placement"),
        (("--preset", "ladder", "--target", "5"), "preset ladder has several sizes"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_two(arguments, words, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "falcon", "hidden_size": 64}')
    done = plan(*(tmp_path / "config.json" if word == "FALCON" else word for word in arguments))
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_config_json_with_grpo_uneven_lengths_and_vllm_is_planned(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED_CONFIGS["Llama-3.2-1B"]))
    work = ("--algorithm", "grpo", "--lengths", "lognormal:mean=512,sigma=0.6,cap=4096")
    asked = ("--shape", tmp_path / "config.json", "--device", "H100", "--backend", "deepspeed", "--rollouts", "32")
    (found,) = body_of(*asked, *work, "--generation", "vllm", "--packing")["plans"]
    phases = found["options"][0]["phases"]
    assert phases["sync"] > 0 and "reference" not in phases and found["rate_band"] is None
    assert found["work"]["algorithm"]["name"] == "grpo" and found["options"][0]["layout"]["generation"] == "vllm"
