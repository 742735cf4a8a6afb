"""Reading published rows: what is used, what is left out and why, and that no cell can stop it."""

import csv
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.planner.parameters import load_parameters
from suite.spec.base import UsageError
from tests.tools.planner.rows import PUBLISHED, ROW, write_rows
from tools.planner import published
from tools.planner.check import run_check
from tools.planner.published import csv_files, measured, read_published
from tools.planner.stacks import plain_framework, traits


def only(path):
    collection = read_published([path])
    assert len(collection.entries) == 1, collection.left_out
    return collection.entries[0]


def test_a_whole_row_is_an_entry_with_its_job(tmp_path):
    entry = only(write_rows(tmp_path / "a.csv"))
    assert entry.step_seconds == 5.6
    assert entry.job["gated"] == 1
    assert entry.job["zero_stage"] == 3
    assert entry.groups["framework|device|precision|release"] == "some trainer|H100|16 bit|v1.2"


def test_tokens_per_second_give_the_step_time(tmp_path):
    tokens = 128 * 4096
    per_device = only(
        write_rows(tmp_path / "a.csv", {"metric": "tokens_per_sec_per_gpu", "value": str(tokens / 8 / 4)})
    )
    total = only(write_rows(tmp_path / "b.csv", {"metric": "tokens_per_sec", "value": str(tokens / 4)}))
    assert per_device.step_seconds == total.step_seconds == 4


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("0.5", "hours", 1800),
        ("1,234.5", "s", 1234.5),
        ("11.5", "ktokens/s", 11500),
        ("85.9", "GB", 80.0),
        ("81920", "MiB", 80),
        ("7", "furlongs", 7),
        ("true", "bool", 1),
        ("nan", "s", None),
        ("1,23", "s", None),
    ],
)
def test_values_come_in_seconds_tokens_per_second_and_gib(text, unit, value):
    assert measured(text, unit) == (value and pytest.approx(value, rel=1e-3))


def test_what_is_no_table_is_told_and_not_read_without_end(tmp_path, monkeypatch):
    (tmp_path / "header.csv").write_text(",".join(["config_id", "metric", "value", "x" * 140_000]))
    with pytest.raises(UsageError, match="its header cannot be read"):
        read_published([tmp_path / "header.csv"])
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe.csv", "endless"):
        with pytest.raises(UsageError, match="is not a regular file"):
            read_published(csv_files([tmp_path / name]))
    with (tmp_path / "sparse.csv").open("wb") as file:
        file.truncate(6 << 30)
    with pytest.raises(UsageError, match="more than the 16777216 that are read"):
        read_published(csv_files([tmp_path / "sparse.csv"]))
    (tmp_path / "endless").rename(tmp_path / "endless.csv")
    with pytest.raises(UsageError, match=r"endless\.csv is a symbolic link"):
        csv_files([tmp_path])
    monkeypatch.setattr(published, "_MOST_ROWS", 10)
    (tmp_path / "long.csv").write_text("config_id,metric,value\n" + "a,step_time,3\n" * 6)
    with pytest.raises(UsageError, match="more than 10 rows in all"):
        read_published([tmp_path / "long.csv"] * 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu_model": "TPU v5p"}, "not in the catalogue"),
        ({"hidden": "-1"}, "hidden not given"),
        ({"task": "GRPO"}, "not training"),
        ({"tp": "3"}, "does not divide"),
        ({"value": "nan"}, "no step time"),
        ({"global_batch_seqs": ""}, "global_batch_seqs"),
        ({"precision": "fp32"}, "not modelled"),
        ({"kv_heads": "64"}, "contradict"),
    ],
)
def test_what_cannot_be_used_has_its_reason(tmp_path, change, words):
    collection = read_published([write_rows(tmp_path / "a.csv", change)])
    assert not collection.entries and words in collection.left_out[0].reason


def test_missing_columns_are_unknown_cells_and_files_in_another_format_and_missing_ones_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("config_id,metric,value\nx,step_time,3\n")
    assert "not given" in read_published([path]).left_out[0].reason
    path.write_text("config_id,metric,value,ep,layers\nx,step_time,3,8,2\n")
    assert not read_published([path]).entries, "expert parallelism is not modelled there"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="published format"):
        read_published([path])
    with pytest.raises(UsageError, match="no file or folder"):
        csv_files([tmp_path / "none"])


CELLS = st.sampled_from(
    ["", "0", "-1", "nan", "inf", "1e308", "1e-308", "x", "3.5", "64", "8", "1e11", "LoRA", "full", "fits"]
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(ROW)), CELLS, max_size=6), min_size=1, max_size=4))
def test_no_cell_can_stop_a_check_or_make_it_print_what_is_no_json(tmp_path, changes):
    path = write_rows(tmp_path / "a.csv", *[{**change, "config_id": f"c{i}"} for i, change in enumerate(changes)])
    check = run_check([path], load_parameters())
    assert check.model_dump_json()
    assert len(check.rows) + len(check.left_out) >= len(changes)


def test_every_published_row_is_used_or_has_a_reason():
    files = csv_files([PUBLISHED])
    collection = read_published(files)
    configs = set()
    for path in files:
        with path.open(newline="") as file:
            configs |= {(row["source_id"], row["config_id"]) for row in csv.DictReader(file)}
    used = {(entry.source, entry.config) for entry in collection.entries}
    left = {(entry.source, entry.config) for entry in collection.left_out}
    assert used | left == configs
    assert not used & left


@pytest.mark.parametrize(
    ("name", "family", "framework", "fused"),
    [
        ("Megatron-LM PTD-P (interleaved 1F1B + scatter/gather)", "megatron", "megatron lm", False),
        ("Megatron-DeepSpeed 3D", "zero", "megatron deepspeed", False),
        ("MaxText", "xla", "maxtext", True),
        ("NeMo AutoModel (PyTorch FSDP2)", "fsdp", "nemo automodel", True),
        ("", "fsdp", "unknown", True),
    ],
)
def test_traits_come_from_words_that_a_new_stack_shares(name, family, framework, fused):
    known = traits(name)
    assert (known.family, plain_framework(name), known.fused_attention) == (family, framework, fused)
