"""Studies with the scripted worker: what they find, that they go on, and that they are what their bundles say."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from suite.bundle.store import find_bundles
from suite.bundle.walk import STUDY, TRIALS
from suite.export.schema import schema
from suite.spec.layout import LayoutChoices
from suite.spec.manifest import Manifest
from suite.tune.bundles import OTHER_LOSSES, apart
from suite.tune.check import verify_study
from suite.tune.knobs import ON_REQUEST, named_knobs, values_of
from suite.tune.study import CONFIRMED, Study, read_study
from tests.command import refused, suite
from tests.slurm import Slurm
from tests.tune.conftest import ASKED, FEW, SCRIPT
from tests.waiting import wait_until
from tests.worker.tiny import tiny_manifest

pytestmark = pytest.mark.packages
SCRIPTED = Path(__file__).parents[1] / "scripted_suite.py"
Made = tuple[Path, str]


def study_of(folder: Path) -> Study:
    found = read_study(folder)
    assert found is not None
    return found


def test_a_study_finds_who_is_faster_at_its_best_and_measures_it_again_in_turns(made: Made) -> None:
    folder, printed = made
    study = study_of(folder)
    winners = {winner.backend: winner.choice for winner in study.winners}
    assert winners["deepspeed"] == {"zero_stage": 1, "micro_batch": 2}
    assert winners["megatron"]["distributed_optimizer"] is True
    rows = [(row.backend, row.row, row.without) for row in study.confirmed]
    assert ("deepspeed", "without", "zero_stage") in rows and ("deepspeed", "without", "micro_batch") in rows
    answer = study.answer
    assert answer is not None and answer.held_back == "deepspeed"
    gains = {name: one.ratio.ratio.value for one in answer.knobs for name in one.turned if one.ratio}
    assert gains["zero_stage"] == pytest.approx(1 / 0.7, rel=0.05)
    assert gains["micro_batch"] == pytest.approx(1 / 0.9, rel=0.05)
    assert all(one.ratio and one.ratio.turns for one in answer.knobs), "within turns by iteration"
    assert "deepspeed was held back by its defaults" in printed


def test_a_driver_that_died_before_all_was_measured_again_makes_that_alone_and_the_answer_is_in_study_report_and_page(
    copy: Path, tmp_path: Path, scripted: Callable[[dict], None]
) -> None:
    scripted(SCRIPT)
    shutil.rmtree(copy / CONFIRMED)
    kept = {path: path.stat().st_mtime_ns for path in copy.glob("trials/*/manifest.json")}
    printed = json.loads(suite(*ASKED, "--runs", copy, "--json").stdout)
    assert {path: path.stat().st_mtime_ns for path in copy.glob("trials/*/manifest.json")} == kept
    assert printed == json.loads((copy / STUDY).read_text()) and verify_study(copy).status == "equal"
    Draft202012Validator(schema("study")).validate(printed)
    page = tmp_path / "page.html"
    assert suite("report", copy, "--html", page).exit_code == 0
    assert "tuned(60m): each stack at its best" in page.read_text()
    shown = suite("report", copy, "-o", "-").stdout
    assert shown.index("## tuned(60m): each stack at its best") < shown.index("## Ranking")


def test_every_trial_is_a_bundle_whose_cost_counts_and_each_backend_says_why_it_ended(made: Made) -> None:
    study = study_of(made[0])
    assert {trial.run for trial in study.trials} == {path.name for path in (made[0] / TRIALS).iterdir()}
    assert all(trial.device_seconds > 0 for trial in study.trials)
    assert {stop.why for stop in study.stops} <= {"nothing untried", "within 2 %"}
    assert study.trials[0].backend != study.trials[1].backend, "they take turns"
    firsts = [trial for trial in study.trials if trial.rung == 0]
    assert len([trial for trial in study.trials if trial.rung == 2]) < len(firsts), "slow rows get few iterations"


def change(folder: Path, do: Callable[[dict[str, Any]], object]) -> None:
    body = json.loads((folder / STUDY).read_text())
    do(body)
    (folder / STUDY).write_text(json.dumps(body))


def spend_less(body: dict[str, Any]) -> None:
    body["stops"][0].update(why="budget", expected_seconds=1.0)


def own_row_wins(body: dict[str, Any]) -> None:
    body["winners"][0].update(run=body["trials"][0]["run"], choice=body["trials"][0]["choice"])


@pytest.mark.parametrize(
    ("do", "finding"),
    [
        (lambda body: body["trials"].pop(), "study-trial"),
        (lambda body: body["trials"][0].update(rate=1e6), "study-trial"),
        (lambda body: body["trials"][0].update(device_seconds=0.0), "study-trial"),
        (lambda body: body["question"].update(work="0" * 64), "study-trial"),
        (own_row_wins, "study-winner"),
        (lambda body: body["answer"].update(held_back=None), "study-winner"),
        (lambda body: body["winners"].append({**body["winners"][0], "backend": "another"}), "study-winner"),
        (lambda body: body["confirmed"][0]["choice"].update(micro_batch=1), "study-winner"),
        (spend_less, "study-budget"),
        (lambda body: body["stops"].pop(), "study-budget"),
        (lambda body: body.update(budget_seconds=0.001), "study-budget"),
    ],
)
def test_what_a_study_says_beside_its_bundles_is_found(do, finding, copy):
    assert verify_study(copy).status == "equal"
    change(copy, do)
    assert finding in {each.name for each in verify_study(copy).findings}
    assert suite("verify", copy).exit_code == 3


def test_a_bundle_that_is_gone_is_found(copy: Path) -> None:
    shutil.rmtree(copy / TRIALS / study_of(copy).trials[0].run)
    shutil.rmtree(copy / CONFIRMED / study_of(copy).confirmed[0].runs[0])
    assert {each.name for each in verify_study(copy).findings} >= {"study-trial", "study-winner"}


def test_an_archive_carries_the_study_and_reports_make_no_rows_of_trials(made: Made, tmp_path: Path) -> None:
    archive = tmp_path / "tuned.suite.zip"
    assert suite("pack", made[0], "-o", archive, "--keep", "scripted").exit_code == 0
    checked = suite("verify", archive).stdout
    told = json.loads(suite("report", archive, "--json").stdout)
    assert "1 study: 1 equal" in checked and f"digest: {told['evidence']['digest']}" in checked
    assert told["studies"] == [json.loads((made[0] / STUDY).read_text())]
    assert {row["setting"]["track"] for row in told["rows"]} == {"equal-config", "tuned"}
    shown = {Path(path).name for row in told["rows"] for path in row["paths"]}
    assert shown and not shown & {one.run for one in study_of(made[0]).trials}
    history = json.loads(suite("site", tmp_path / "site", "--from", archive, "--json").stdout)["series"]
    assert sum(one["runs"] for one in history) == len(find_bundles([made[0] / CONFIRMED]))


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (("--seed", "5"), "holds another study (work:"),
        (("--budget", "1m"), "has a budget of 60m"),
        (("--knob", "tensr"), "did you mean 'tensor'?"),
        (("--knob", "engine"), "means nothing to deepspeed or megatron"),
        (("--size", "3M"), "one size on one number of ranks"),
        (("--track", "tuned"), "--track means nothing to suite tune"),
    ],
)
def test_what_cannot_be_asked_of_a_study_is_one_line(changed: tuple[str, ...], line: str, made: Made) -> None:
    assert line in refused(*ASKED, "--runs", made[0], *changed)


def test_a_budget_that_is_too_short_for_a_trial_is_one_line_and_a_larger_one_goes_on(tmp_path, scripted, made):
    done = suite(*FEW, "--runs", tmp_path, "--budget", "0.001s")
    assert done.exit_code == 2 and "too short for a trial of " in done.stderr.splitlines()[-1]
    assert suite(*FEW, "--runs", tmp_path).exit_code == 0
    assert verify_study(tmp_path).status == "equal"


@pytest.mark.parametrize(("name", "other"), [("commit", "0123456"), ("machine", {"cpu": "another"})])
def test_a_study_of_another_commit_or_machine_is_refused(name: str, other: object, copy: Path) -> None:
    change(copy, lambda body: body["question"].update({name: other}))
    assert f"holds another study ({name}:" in refused(*ASKED, "--runs", copy)


def test_a_size_that_fits_in_no_way_is_one_line(tmp_path: Path, made: Made) -> None:
    assert "cannot be run" in refused("tune", "--size", "66B", "--backend", "deepspeed", "--runs", tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_study_whose_driver_is_stopped_goes_on_with_the_same_command(number, tmp_path, scripted):
    scripted({"of": {"deepspeed": {"sleep": True, "times": {"layout.zero_stage=1": 1e5}}}})
    words = list(map(str, (*FEW, "--runs", tmp_path)))
    command = [sys.executable, str(SCRIPTED), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        wait_until(lambda: [one for one in find_bundles([tmp_path]) if one.manifest().layout.zero_stage == 1])
        before = study_of(tmp_path).trials
        driver.send_signal(number)
        output = driver.communicate()[0]
    if number == signal.SIGINT:
        assert driver.returncode == 130
        assert output.splitlines()[-1].endswith("is kept, and the same command goes on")
    assert "Traceback" not in output
    wait_until(lambda: not any(one.running() for one in find_bundles([tmp_path])))
    scripted(SCRIPT)
    assert suite(*words).exit_code == 0
    assert study_of(tmp_path).trials[: len(before)] == before
    assert verify_study(tmp_path).status == "equal"


def test_a_backend_whose_trials_fail_is_told_and_the_others_are_compared(tmp_path, scripted, made):
    failing = {"at": {"iteration": 1, "do": "oom"}, "seconds": 0.01}
    scripted({"of": {"megatron": failing}})
    done = suite(*ASKED, "--runs", tmp_path)
    assert done.exit_code == 0, done.output
    study = study_of(tmp_path)
    assert {trial.why for trial in study.of("megatron")} == {"oom_device"}
    assert [winner.backend for winner in study.winners] == ["deepspeed"]


def test_that_a_default_which_wins_alone_takes_no_turns_is_no_news(tmp_path, scripted):
    scripted({"of": {"deepspeed": {"seconds": 0.01, "times": {"layout.zero_stage=1": 2.0}}}})
    done = suite(*FEW, "--runs", tmp_path)
    assert done.exit_code == 0, done.output
    assert [row.row for row in study_of(tmp_path).confirmed] == ["equal-config"]
    assert "rounds, not turns" not in done.output


def test_knobs_that_make_a_space_large_are_turned_where_they_or_values_of_them_are_named() -> None:
    def tried(manifest: Manifest, *names: str, **asked: tuple[int | str, ...]) -> dict[str, tuple[object, ...]]:
        choices = LayoutChoices(**asked)
        return {**values_of(manifest, 1, named_knobs(names, ["deepspeed"], choices), choices, ())}

    colocated = tiny_manifest(2)
    assert not set(ON_REQUEST) & set(tried(colocated))
    assert tried(colocated, bucket_elements=(0, 5))["bucket_elements"] == (0, 5)
    found = tried(colocated, "placement", "generation-ranks", "bucket-elements")
    assert (found["placement"], found["generation_ranks"]) == (("colocated", "split"), (0, 1))
    assert found["bucket_elements"][0] == 0 and len(found["bucket_elements"]) == 3
    on_gpu = tiny_manifest(2, layout={"generation": "vllm"}, measure={"device": "cuda", "precision": "bf16"})
    assert tried(on_gpu)["engine_memory"] == (0, 40, 70) and "engine_memory" not in tried(colocated)


@pytest.mark.parametrize(("loss", "is_other"), [(0.95, True), (0.99, False)])
def test_losses_of_other_work_are_further_off_than_drawn_tokens_put_them(loss: float, is_other: bool) -> None:
    assert ((apart([loss, -1.0], [1.0, -1.0]) or 0) > OTHER_LOSSES) == is_other
    small = apart([0.0003, -0.0005], [-0.0002, 0.0004])  # responses of one length leave little of a loss
    assert small is not None and small < OTHER_LOSSES and apart([], [1.0]) is None


@pytest.mark.daemon
def test_one_job_of_one_node_makes_a_study(slurm: Slurm, tmp_path: Path, scripted: Callable[[dict], None]) -> None:
    """As docs/how-to/tune.md has it."""
    scripted(SCRIPT)
    words = shlex.join(map(str, (sys.executable, SCRIPTED, *FEW, "--runs", tmp_path / "tuned")))
    job = ("sbatch", "--wait", "--nodes=1", "--exclusive", "--requeue", f"--output={tmp_path / 'log'}", "--wrap", words)
    environment = {**slurm.environment, "SUITE_SCRIPT": os.environ["SUITE_SCRIPT"]}
    subprocess.run(job, env=environment, cwd=tmp_path, check=True, timeout=300)
    assert verify_study(tmp_path / "tuned").status == "equal"
