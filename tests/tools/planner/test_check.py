"""The check against published rows, bands of its predictions, how rows of RL iterations are read, and frozen priors."""

import csv

import numpy as np
import pytest

from suite.planner.parameters import Band, load_parameters, load_priors
from tests.tools.planner.rows import PUBLISHED, write_rows
from tools.planner.bands import bands_of, ends
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


def band(logs, groups, kind="training"):
    """The logarithms of both ends of one kind, beside which no other has rows."""
    return np.log(ends(np.full(len(logs), kind), np.exp(logs), np.array(groups))[kind])


def test_the_ends_of_nineteen_groups_are_the_second_and_the_last_but_one():
    assert band(np.arange(19.0), np.arange(19)) == pytest.approx([1, 17])


@pytest.mark.parametrize("groups", [6, 30])
def test_a_group_weighs_the_same_however_many_rows_it_has(groups):
    once, names = np.linspace(-1, 1, groups), np.arange(groups)
    often, longer = np.append(once, np.full(30, once[3])), np.append(names, np.full(30, 3))
    assert band(often, longer) == pytest.approx(band(once, names), abs=0.05)
    assert band(often, np.arange(len(often))) != pytest.approx(band(once, names), abs=0.1)


def test_fewer_groups_have_a_wider_band_and_without_any_it_is_the_priors():
    spreads = [np.ptp(band(np.tile([-0.25, 0.25], count), np.arange(2 * count))) for count in (1, 2, 4, 8)]
    assert spreads == sorted(spreads, reverse=True)
    low, high = band(np.zeros(0), [], "memory")
    assert low == pytest.approx(-high) and 1.2816 * load_priors().spreads["memory"] < high


def test_a_kind_of_few_groups_learns_from_the_others_how_far_sources_lie_apart():
    def of(scatter):
        kinds = np.array(["training"] * 2 + ["iteration"] * 12)
        logs = np.concatenate([[-0.1, 0.1], scatter * np.linspace(-1, 1, 12)])
        return np.ptp(np.log(ends(kinds, np.exp(logs), np.arange(14))["training"]))

    assert of(1.0) > 1.5 * of(0.2)


@pytest.mark.parametrize("groups", [4, 9, 25])
def test_four_of_five_rows_of_new_groups_lie_inside(groups):
    random, inside = np.random.default_rng(1), []
    labels = np.repeat(np.arange(groups), 3)
    for _ in range(400):
        logs = np.repeat(random.normal(0, 0.25, groups), 3) + random.normal(0, 0.1, 3 * groups)
        low, high = band(logs, labels)
        inside.append(low <= random.normal(0, 0.25) + random.normal(0, 0.1) <= high)
    assert 0.75 <= np.mean(inside) <= 0.87


def judged(ratios: list[float], without: list[float]) -> Band:
    """Rows a, a, b, b, c, c, each a group of its own, left out by letter."""
    keys, rest = list("aabbcc"), np.array(without)
    apart = {key: np.where(np.array(keys) == key, np.nan, rest) for key in "abc"}
    return bands_of(["training"] * 6, np.array(ratios), [str(row) for row in range(6)], keys, apart)["training"]


def test_a_row_is_judged_in_a_band_of_fits_that_have_not_seen_it():
    near, far = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0, 1.1, 1.0, 1.1, 9.0, 9.5]
    assert judged(near, near).held == 1.0
    own = judged(far, far)
    assert own.rows == own.groups == 6
    assert own.held == pytest.approx(4 / 6)  # the two far ones widen the others' band, never their own
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    assert judged(values, [each / 9 for each in values]).held == 0.0
