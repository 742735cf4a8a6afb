"""The check against published rows, and that priors stood before the fit that is shipped and were left alone."""

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


def test_odd_cells_leave_a_row_out_and_stop_nothing(tmp_path):
    rows = list(csv.DictReader((PUBLISHED / "rl" / "verl_logs.csv").open(encoding="utf-8")))
    odd = ("", "0", "-3", "nan", "1e400", "many", "7" * 400)
    path = tmp_path / "odd.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for column in ("resp_len_mean", "heads", "layers", "n_gpus", "gen_tp", "tp", "value", "gpu_model", "seq_len"):
            for text in odd:
                writer.writerow({**rows[0], "config_id": f"{column}-{text[:9]}", column: text, "ffn": "4x4e top9"})
    found = read([path])
    assert len(found.rows) + len(found.left_out) >= 9 * len(odd)
    assert all(np.isfinite(row.predicted) for row in check_of(found, load_parameters()).rows)
