"""The check against published rows, how rows of RL iterations are read, and that priors stood before the fit."""

import csv

import numpy as np
import pytest

from suite.planner.parameters import load_parameters, load_priors
from tests.tools.planner.rows import PUBLISHED, write_rows
from tools.planner.check import check_lines, check_of, run_check
from tools.planner.nested import fit_all
from tools.planner.page import TITLES
from tools.planner.refit import priors_digest
from tools.planner.rows import read
from tools.planner.step_fit import Rows, fit


@pytest.fixture(scope="module")
def published():
    return read([PUBLISHED])


@pytest.mark.slow
def test_the_shipped_constants_are_those_that_the_fit_gives(published):
    shipped = load_parameters()
    assert shipped.provenance.digest == published.digest
    found = fit_all(published)
    assert set(found.values) == set(shipped.values)
    assert [found.values[name] for name in shipped.values] == pytest.approx(list(shipped.values.values()), rel=0.01)


def test_priors_have_a_source_each_stood_before_the_fit_and_were_left_alone():
    priors, made = load_priors(), load_parameters().provenance
    assert priors.frozen <= made.fitted and made.priors == priors_digest()
    assert all(prior.source and prior.meaning for prior in priors.every.values())
    assert set(load_parameters().values) == set(priors.every)


def test_no_rule_of_a_reader_names_a_source(published):
    names = {source for source in published.sources if source not in ("ds-chat", "torchtitan", "llm-foundry")}
    for path in (PUBLISHED.parents[1] / "tools" / "planner").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in names if f'"{name}"' in text and name not in ("nemo-rl",)], path.name


def test_the_check_scores_the_model_that_answers_by_kind_and_with_its_bands(published):
    check = check_of(published, load_parameters())
    assert set(check.overall) == {*TITLES, "fits"}
    assert check.overall["step"].median < 0.06 and check.overall["fits"].inside > 0.9
    assert all(row.low < row.predicted < row.high for row in check.rows if row.kind != "fits")
    lines = "\n".join(check_lines(check))
    assert "prime-rl-bench" in lines and "in band" in lines


def test_a_source_that_was_left_out_of_the_fit_is_predicted(published):
    """All of them are in the generated page; this holds one of it, with a margin."""
    rest = published.without("nvidia-dgxc")
    own = [entry for entry in published.timed if entry.source == "nvidia-dgxc"]
    predicted = fit(Rows.of(rest.timed)).predict(Rows.of(own))
    seconds = np.array([entry.step_seconds for entry in own])
    assert np.median(np.abs(predicted / seconds - 1)) < 0.12


def test_a_stack_never_seen_is_predicted_from_physics_alone(tmp_path):
    check = run_check([write_rows(tmp_path / "a.csv")], load_parameters())
    assert check.overall["step"].rows == 1 and check.overall["step"].median < 0.4
    assert "fits" not in check.overall


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


def test_deepspeed_chats_rates_are_whole_iterations_of_the_largest_batch_that_fits(published):
    rows = [row for row in published.rows if row.stack == "deepspeed-chat zero"]
    assert len(rows) == 15
    for row in rows:
        assert row.job["plain_model"] == 1 and row.work["engine"] == 0
        assert row.work["samples"] <= 1024 and row.work["samples"] % row.job["devices"] == 0
