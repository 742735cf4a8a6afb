"""What a session prints before and after its runs: tables that 80 columns hold, and honest lines below them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.planning.preflight import preflight
from suite.conduct.running.display import plan_rows, print_plan, print_summary
from suite.conduct.running.rerun import read_manifest
from suite.conduct.running.results import results
from suite.conduct.running.session import Summary, states
from suite.launch.outcome import Failure
from suite.report.facts.model import build
from suite.report.terminal import headline_rows
from suite.report.text.markdown import render
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Measure
from tests.conduct.requests import STACKS, request, shape
from tests.conduct.running.test_troubles import Failing
from tests.conduct.sessions import Instantly, work
from tests.report import entries as made

Printed = pytest.CaptureFixture[str]
FAST = Instantly(lambda manifest: 0.02 * (1 + manifest.run.repeat * 1e-6))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Standard output is a terminal of 80 columns from the call on: a test's output is captured anew after set-up."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    return lambda: monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


def two_rows() -> Plan:
    return make_plan(request(ranks=(1,), repeats=2), STACKS)


def shown(plan: Plan, root: Path, capsys: Printed, device: str | None = None) -> list[str]:
    """The plan's lines, none of them longer than 80 columns where the terminal has no more."""
    found = preflight(plan.manifests, device, price=2.0 if device else None)
    print_plan(plan, plan_rows(states(plan, root), found), found)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_the_plan_shows_whole_run_ids_at_80_columns(
    tmp_path: Path, capsys: Printed, narrow: Callable[[], None]
) -> None:
    narrow()
    sizes = (shape("33B-trlx-and-more"), shape("66B", layers=4))
    plan = make_plan(request(sizes=sizes, ranks=(1, 2), repeats=3), STACKS)
    lines = shown(plan, tmp_path, capsys)
    assert all(sum(manifest.run.id in line for line in lines) == 1 for manifest in plan.manifests)
    assert not [line for line in lines if len(line) > 80 or "…" in line]


def test_the_plan_has_all_its_columns_in_a_pipe(tmp_path: Path, capsys: Printed) -> None:
    heading = shown(two_rows(), tmp_path, capsys)[2]
    assert heading.split() == ["run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state"]


def test_what_is_expected_is_one_line_for_all_repeats_and_fits_80_columns(
    tmp_path: Path, capsys: Printed, narrow: Callable[[], None]
) -> None:
    narrow()
    body = {"sizes": (find_size("66B"),), "ranks": (32,), "nodes": 4, "workload": find_workload("trlx-ds-chat")}
    plan = make_plan(request(**body, measure=Measure(device="cuda", precision="bf16"), repeats=3), STACKS)
    lines = shown(plan, tmp_path, capsys, "A100-SXM-80GB")
    assert not [line for line in lines if len(line) > 80]
    heading = next(line for line in lines if line.startswith("expected of each run"))
    for word in ("GiB", "s/iter", "time", "limit", "GPU-h", "cost"):
        assert word in heading
    assert sum(line.startswith(("deepspeed 66B", "megatron 66B")) for line in lines) == 2
    assert any(line.startswith("expected on A100-SXM-80GB: 6 runs") for line in lines)


def test_the_results_stand_at_the_end_one_row_for_each_configuration(
    tmp_path: Path, capsys: Printed, narrow: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow()
    monkeypatch.chdir(tmp_path)
    plan, root = two_rows(), Path("runs")
    print_summary(work(plan, root, FAST)[0], plan, root)
    told = capsys.readouterr().out
    assert not [line for line in told.splitlines() if len(line.rstrip()) > 80]
    assert sum("2 of 2" in line and "200" in line for line in told.splitlines()) == 2
    assert "4 runs measured, 0 failed" in told and "report: suite report" in told
    print_summary(work(plan, root, FAST)[0], plan, root)
    again = capsys.readouterr().out
    assert "already holds all 4 runs; nothing to do" in again and again.count("2 of 2") == 2


def test_results_count_failed_runs_and_pool_the_others(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)
    second = plan.model_copy(update={"manifests": plan.manifests[1:2]})
    failing = Failing(Failure(kind="oom_device"))
    failing._runs = 1
    work(second, tmp_path, failing)
    (row,) = results(second, tmp_path)
    assert (row.runs_ok, row.runs, row.rate) == (0, 1, "failed")
    work(plan, tmp_path, FAST)
    (row,) = results(plan, tmp_path)
    assert (row.runs_ok, row.runs) == (2, 3) and row.samples_per_second.value == pytest.approx(200, rel=1e-4)


@pytest.mark.parametrize("interrupted", [False, True])
def test_no_report_is_suggested_where_there_is_nothing_to_report(
    tmp_path: Path, capsys: Printed, interrupted: bool
) -> None:
    plan = two_rows()
    left = tuple(manifest.run.id for manifest in plan.manifests)
    print_summary(Summary(interrupted=True) if interrupted else Summary(left_by_budget=left), plan, tmp_path)
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
    with pytest.raises(UsageError, match=r"is a results folder with 5 bundles.* and 2 more$") as error:
        read_manifest(tmp_path / "runs")
    assert str(tmp_path / "runs" / plan.manifests[0].run.id) in str(error.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no manifest\.json and no bundle"):
        read_manifest(tmp_path / "empty")
