"""`suite plan` as a user types it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fitting.rows import PUBLISHED, write_rows

ROOT = Path(__file__).resolve().parents[2]


def plan(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "suite", "plan", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60
    )


def test_the_answer_is_one_screen_with_layouts_memory_and_misses():
    done = plan("--size", "66B", "--device", "A100-80GB", "--devices", "32", "--backend", "megatron", "--price", "2")
    assert done.returncode == 0, done.stderr
    assert "tp8 pp4" in done.stdout
    assert re.search(r"misses by \d+\.\d GiB per device: [a-z ]+ take", done.stdout)
    assert "per 1000" in done.stdout
    assert len(done.stdout.splitlines()) < 40


def test_json_holds_the_same_plan():
    done = plan("--size", "13B", "--devices", "8", "--json", "--min-devices", "--max-batch")
    plans = json.loads(done.stdout)["plans"]
    assert [entry["backend"] for entry in plans] == ["deepspeed", "megatron"]
    for entry in plans:
        assert entry["options"][0]["fits"]
        assert entry["min_devices"] == entry["options"][0]["devices"]
        assert entry["max_micro_batch"]


def test_nothing_that_fits_ends_with_three_and_names_the_nearest():
    done = plan("--size", "66B", "--device", "RTX-4090", "--devices", "8", "--backend", "megatron")
    assert done.returncode == 3
    assert "nothing fits; nearest is" in done.stdout


def test_the_check_prints_its_table_and_its_json(tmp_path):
    done = plan("--check", str(PUBLISHED), "--svg", str(tmp_path / "chart.svg"))
    assert done.returncode == 0, done.stderr
    assert "llm-foundry" in done.stdout
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    body = json.loads(plan("--check", str(PUBLISHED), "--json").stdout)
    assert set(body) >= {"overall", "sources"}
    assert body["overall"]["step_time"]["rows"] > 400


def test_several_files_can_be_checked(tmp_path):
    first, second = write_rows(tmp_path / "a.csv"), write_rows(tmp_path / "b.csv", {"source_id": "other"})
    body = json.loads(plan("--json", "--check", str(first), str(second)).stdout)
    assert set(body["sources"]) == {"somebody", "other"}


def test_a_scaling_curve_names_the_binding_limit():
    done = plan("--size", "6.7B", "--backend", "megatron", "--scale", "8..64")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^weak ", done.stdout, re.MULTILINE)) == 4


def test_the_chart_of_memory_is_written(tmp_path):
    done = plan("--size", "1.3B", "--devices", "8", "--backend", "deepspeed", "--svg", str(tmp_path / "memory.svg"))
    assert done.returncode == 0, done.stderr
    assert "optimizer states" in (tmp_path / "memory.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--size"),
        (("--size", "13B", "--shape", "x.yaml"), "name one model"),
        (("--size", "13B", "--device", "A100"), "A100-SXM-40GB, A100-PCIe-40GB"),
        (("--size", "13B", "--devices", "0"), "1 to 16384"),
        (("--size", "13B", "--objective", "speed"), "throughput"),
        (("--size", "13B", "--scaling", "odd"), "scaling"),
        (("--size", "13B", "--price", "nan"), "--price"),
        (("--check", "no-such-file.csv"), "no file or folder"),
        (("--size", "13B", "--calibrate", "no-such-folder"), "no-such-folder"),
        (("rows.csv", "--size", "13B"), "--check"),
        (("--size", "13B", "--scale", "x..y"), "--scale"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_two(arguments, words):
    done = plan(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
