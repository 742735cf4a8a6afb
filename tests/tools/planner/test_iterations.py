"""Published RL iterations: how rows are read."""

import csv

import pytest

from tests.tools.planner.rows import PUBLISHED
from tools.planner.rows import read


@pytest.fixture(scope="module")
def published():
    return read([PUBLISHED])


def test_every_configuration_is_read_or_left_out_for_a_reason_and_named_by_its_page(published):
    assert len(published.rows) > 100 and len({row.stack for row in published.rows}) >= 6
    assert all(entry.reason for entry in published.left_out)
    for path in (PUBLISHED / "rl").glob("*.csv"):
        for row in [] if "recipes" in path.name else csv.DictReader(path.open(encoding="utf-8")):
            assert row["url"]


def test_rows_get_the_layout_of_their_recipe_and_engines_that_their_heads_allow(published):
    rows = {row.config: row for row in published.rows}
    nemo = rows["nemorl-v0.6-09"]
    assert (nemo.job["devices"], nemo.work["gen_devices"], nemo.work["staleness"]) == (128, 64, 8)
    assert nemo.job["experts_per_token"] == 8 and 3300 < nemo.job["sequence"] < 3330
    degrees = [rows[f"verllog-lora-qwen{size}"].work["gen_tensor"] for size in ("7b", "14b")]
    assert degrees == [2, 8], "as their command lines say"


def test_what_a_stack_does_by_its_documents_goes_for_its_releases_alone(published):
    rows = {row.config: row for row in published.rows}
    packed = [rows[f"verl-sync-qwen3-30b-a3b-16-16-{each}"].work["one_by_one"] for each in ("off", "on")]
    assert packed == [1, 0], "tensors that a checkpoint engine packs are not sent one by one"
    old = rows["verllog-gpg-qwen2-7b-fsdp-all"]
    assert old.work["eager"] == 1, "release 0.4 captures no graphs"
    assert ("generation_time", "generation", "generation and sync") in old.values
    trainer = next(row for row in published.rows if row.source == "prime-rl-bench")
    assert trainer.work["chunked_loss"] in (0, 1) and trainer.job["trainer"] == 1


def test_deepspeed_chats_rates_are_whole_iterations_of_the_largest_batch_that_fits(published):
    rows = [row for row in published.rows if row.stack == "deepspeed-chat zero"]
    assert len(rows) == 15
    for row in rows:
        assert row.job["plain_model"] == 1 and row.work["engine"] == 0
        assert row.work["samples"] <= 1024 and row.work["samples"] % row.job["devices"] == 0
