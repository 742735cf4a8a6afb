"""What a session prints before and after its runs: tables that 80 columns hold, and honest lines below them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.planning.preflight import preflight
from suite.conduct.running.display import plan_rows, print_plan, print_summary
from suite.conduct.running.ledger import Settings
from suite.conduct.running.progress import PlainView
from suite.conduct.running.rerun import read_manifest
from suite.conduct.running.results import results
from suite.conduct.running.session import Summary, run_plan, states
from suite.launch.local import LocalLauncher
from suite.report.facts.model import build
from suite.report.terminal import headline_rows
from suite.report.text.markdown import render
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Measure
from tests.conduct.requests import STACKS, request, shape
from tests.report import entries as made
from tests.scripted_suite import WORKER


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deepspeed", "megatron"):
        monkeypatch.setattr(f"suite.backends.{module}.own_worker_argv", lambda m, b: (str(WORKER), m, "--bundle", b))


def make_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 80 columns from here on; called within a test, whose output is captured anew."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


def measured(plan: Plan, root: Path) -> Summary:
    return run_plan(plan, Settings(root=root, python=sys.executable), LocalLauncher(), PlainView(io.StringIO()))


def two_rows() -> Plan:
    return make_plan(request(ranks=(1,), repeats=2), STACKS)


def test_the_plan_shows_whole_run_ids_at_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_narrow(monkeypatch)
    sizes = (shape("33B-trlx-and-more"), shape("66B", layers=4))
    plan = make_plan(request(sizes=sizes, ranks=(1, 2), repeats=3), STACKS)
    found = preflight(plan.manifests, None)
    print_plan(plan, plan_rows(states(plan, tmp_path), found), found)
    shown = capsys.readouterr().out
    assert not [line for line in shown.splitlines() if len(line.rstrip()) > 80]
    assert all(sum(manifest.run.id in line for line in shown.splitlines()) == 1 for manifest in plan.manifests)
    assert "…" not in shown


def test_the_plan_has_all_its_columns_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = two_rows()
    found = preflight(plan.manifests, None)
    print_plan(plan, plan_rows(states(plan, tmp_path), found), found)
    heading = capsys.readouterr().out.splitlines()[2]
    assert heading.split() == ["run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state"]


def test_what_is_expected_is_one_line_for_all_repeats_and_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_narrow(monkeypatch)
    body = {"sizes": (find_size("66B"),), "ranks": (32,), "nodes": 4, "workload": find_workload("trlx-ds-chat")}
    plan = make_plan(request(**body, measure=Measure(device="cuda", precision="bf16"), repeats=3), STACKS)
    found = preflight(plan.manifests, "A100-SXM-80GB", price=2.0)
    print_plan(plan, plan_rows(states(plan, tmp_path), found), found)
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line.rstrip()) > 80]
    heading = next(line for line in lines if line.startswith("expected of each run"))
    for word in ("GiB", "s/iter", "time", "limit", "GPU-h", "cost"):
        assert word in heading
    assert sum(line.startswith(("deepspeed 66B", "megatron 66B")) for line in lines) == 2
    assert any(line.startswith("expected on A100-SXM-80GB: 6 runs") for line in lines)


def test_the_results_stand_at_the_end_one_row_for_each_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_narrow(monkeypatch)
    monkeypatch.chdir(tmp_path)
    plan, root = two_rows(), Path("runs")
    monkeypatch.setenv("SUITE_SCRIPT", json.dumps({"seconds": 0.02}))
    print_summary(measured(plan, root), plan, root)
    shown = capsys.readouterr().out
    assert not [line for line in shown.splitlines() if len(line.rstrip()) > 80]
    assert sum("2 of 2" in line and "200" in line for line in shown.splitlines()) == 2
    assert "4 runs measured, 0 failed" in shown and "report: suite report" in shown
    print_summary(measured(plan, root), plan, root)
    again = capsys.readouterr().out
    assert "already holds all 4 runs; nothing to do" in again and again.count("2 of 2") == 2


def test_results_count_failed_runs_and_pool_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(request(ranks=(1,), repeats=2, backends=("deepspeed",)), STACKS)
    first = plan.model_copy(update={"manifests": plan.manifests[:1]})
    monkeypatch.setenv("SUITE_SCRIPT", json.dumps({"at": {"iteration": 2, "do": "oom"}}))
    measured(first, tmp_path)
    (row,) = results(plan, tmp_path)
    assert (row.runs_ok, row.runs, row.rate) == (0, 1, "failed")
    monkeypatch.setenv("SUITE_SCRIPT", json.dumps({"seconds": 0.02}))
    measured(plan, tmp_path)
    (row,) = results(plan, tmp_path)
    assert (row.runs_ok, row.runs) == (1, 2) and row.samples_per_second.value == pytest.approx(200)


def test_no_report_is_suggested_where_there_is_nothing_to_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = two_rows()
    ids = tuple(manifest.run.id for manifest in plan.manifests)
    print_summary(Summary(left_by_budget=ids), plan, tmp_path)
    assert "suite report" not in capsys.readouterr().out
    print_summary(Summary(interrupted=True), plan, tmp_path)
    assert "suite report" not in capsys.readouterr().out


def test_a_row_of_interrupted_runs_alone_did_not_fail() -> None:
    model = build([made.failed("interrupted")])
    (cells,) = headline_rows(model)
    assert cells["samples/s [95 %]"] == "interrupted"
    (line,) = [line for line in render(model, {}).splitlines() if "| R1 " in line and "0 of 1" in line]
    assert "interrupted" in line and "failed" not in line
    both = build([made.failed("interrupted"), made.failed("oom_device", repeat=2)])
    assert headline_rows(both)[0]["samples/s [95 %]"] == "failed"


def test_a_results_folder_is_not_a_bundle_and_the_message_names_some(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=5, backends=("deepspeed",)), STACKS)
    for manifest in plan.manifests:
        Bundle.create(tmp_path / "runs", manifest)
    with pytest.raises(UsageError) as error:
        read_manifest(tmp_path / "runs")
    text = str(error.value)
    assert "is a results folder with 5 bundles" in text and text.endswith("and 2 more")
    assert str(tmp_path / "runs" / plan.manifests[0].run.id) in text
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no manifest\.json and no bundle"):
        read_manifest(tmp_path / "empty")
