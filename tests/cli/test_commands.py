"""Commands as a user types them: what they print, their exit codes, and one clear line for every mistake."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.spec.catalogue import presets
from tests.command import refused, suite, told
from tests.synthetic import make_bundle

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _scripted(script: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


RUN = ("run", "--device", "cpu", "--size", "1M", "--ranks", "1", "--repeats", "1", "--dry-run")
RULED = ("run", "--device", "cpu", "--size", "1M", "--ranks", "1", "--backend", "megatron", "--dry-run")
DOCKER = ("--launcher", "docker")
ONE = (*RUN, "--backend", "deepspeed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--size", "66b1"), "did you mean"),
        (("run", "--dry-run"), "--size, --ladder or --shape"),
        ((*RUN, "--size", "1M"), "named twice"),
        ((*RUN, "--ranks", "4096"), "--force"),
        ((*RUN, "--ranks", "0"), "--ranks, unless all, is a whole number from 1 to 1,048,576, not '0'"),
        ((*RUN, "--parallel", "2"), "--parallel 2 keeps runs apart in containers: add --launcher docker"),
        ((*RUN, "--zero", "5"), "--zero 5: must be less than or equal to 3"),
        ((*RULED, "--with-suspect"), "--with-suspect goes with --until 3%"),
        ((*RULED, "--until", "0%"), "--until is a percentage such as 3%, not '0%'"),
        ((*RUN, "--until", "3%"), "--repeats 1: intervals that are looked at need 3 runs at least"),
        ((*RULED, "--difference", "5%"), "no two rows of this plan are"),
        ((*RULED, "--until", "3%", "--repeats", "5", "--most-repeats", "3"), "--most-repeats 3 is fewer than"),
        (("submit", "slurm", "--size", "1M", "--until", "3%", "--dry-run"), "which a submitted plan cannot"),
        ((*RUN, "--reference", "half"), "--reference 'half': must be 'full' or 'hydra'"),
        ((*RUN, "--price", "inf"), "--price is a number up to"),
        (("rerun", "nowhere"), "does not exist"),
        (("compare", ".", ".", "--strict"), "give --gate too"),
        (("compare", ".", ".", "--gate", "0"), "above 0"),
        (("imges",), "Did you mean 'images'"),
        ((*RUN, "--launcher", "dokcer"), "did you mean 'docker'"),
        ((*RUN, "--image", "x"), "--image means nothing to the local launcher"),
        ((*RUN, "--gpu-ids", "0"), "--device cpu leaves no use for --gpu-ids"),
        ((*RUN, "--device", "auto", "--gpu-ids", "first"), "'first' is no GPU id"),
        ((*RUN, "--start", "fokr"), "--start is auto, fork or spawn, not 'fokr', did you mean 'fork'?"),
        ((*RUN, *DOCKER, "--shm-size", "big"), "--shm-size 'big' is no size"),
        ((*RUN, *DOCKER, "--ulimit", "memlock=much"), "--ulimit memlock"),
        ((*RUN, *DOCKER, "--env", "NO_SUCH_VARIABLE"), "--env NO_SUCH_VARIABLE"),
        ((*RUN, "--turns", "turns"), "--turns is iterations or rounds, not 'turns'"),
        ((*RUN, "--turns", "rounds", "--turn-length", "2"), "--turn-length is of turns by iteration"),
        ((*ONE, "--turns", "iterations"), "--turns iterations: 1M is one row, with nobody to take turns with"),
        ((*ONE, "--python", f"before={sys.executable}"), "(two such names are environments of a backend to compare)"),
        ((*ONE, "--python", f"a={sys.executable}", "--python", f"b={sys.executable}"), "are the same stack"),
        ((*RUN, *DOCKER), "no container runtime answers at unix:///nowhere/docker.sock"),
        (("images", "build", "engines", "--project", "/nowhere"), "no checkout"),
        (("images", "build", "engines"), "no container runtime answers"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(arguments: tuple[str, ...], words: str) -> None:
    done = suite(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 or not done.stderr.startswith("error: ")


def test_a_missing_stack_names_the_package_and_the_way_out_and_can_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda python, packages: dict.fromkeys(packages)  # noqa: E731
    monkeypatch.setattr("suite.conduct.planning.machine.stack_versions", nothing)
    for words, code in ((RUN, 0), (RUN[:-1], 2)):
        done = suite(*words, "--backend", "megatron")
        assert (done.exit_code, "megatron needs torch, megatron-core" in done.stderr) == (code, True), done.stderr
        assert "--python" in done.stderr


def test_a_dry_run_shows_the_plan_and_leaves_nothing(tmp_path: Path) -> None:
    asked = (*RUN, "--ranks", "2", "--force", "--runs", tmp_path / "runs")
    done = suite(*asked)
    assert done.exit_code == 0 and "deepspeed-1M-n1-" in done.stdout and "4 to run; nothing was run" in done.stdout
    rows = told(*asked)["runs"]
    expected = {(backend, ranks, "to run") for backend in ("deepspeed", "megatron") for ranks in (1, 2)}
    assert {(row["backend"], row["ranks"], row["state"]) for row in rows} == expected
    assert not (tmp_path / "runs").exists()


def test_a_size_that_no_cpu_holds_is_refused_and_a_dry_run_says_so(tmp_path: Path) -> None:
    arguments = ("run", "--device", "cpu", "--size", "66B", "--ranks", "1", "--repeats", "1", "--runs", tmp_path)
    looked, done = suite(*arguments, "--dry-run"), suite(*arguments)
    assert (looked.exit_code, done.exit_code) == (0, 2)
    assert "not on this machine: deepspeed 66B on 1 ranks needs at least 1,2" in looked.stderr
    assert done.stderr.startswith("error: deepspeed 66B on 1 ranks needs at least 1,2")
    assert not list(tmp_path.iterdir())


def test_a_preset_is_planned_without_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.conduct.planning.machine.local_devices", tuple)
    done = suite("run", "--preset", "ladder", "--track", "tuned", "--dry-run", "--json", "--runs", tmp_path / "r")
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)
    assert len(plan["runs"]) == 36 and any("32 ranks on 4 nodes" in line for line in plan["not_here"])
    assert "preset ladder: --track tuned replaces equal-config" in done.stderr
    monkeypatch.setenv("SUITE_RANKS", "2")
    found = told("run", "--preset", "ladder", "--size", "1.3B", "--dry-run", "--runs", tmp_path / "r")
    assert {row["ranks"] for row in found["runs"]} == {8}, "what this machine has by default is not the preset's"


def test_a_gpu_that_is_demanded_is_taken_or_nothing_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("suite.conduct.planning.machine.local_devices", tuple)
    monkeypatch.setenv("SUITE_DEVICE", "cuda")
    monkeypatch.setenv("SUITE_RANKS", "all")
    assert "no NVIDIA driver shows a GPU" in refused("run", "--size", "1M", "--runs", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_ends_in_a_report_that_verifies_and_can_be_run_again(tmp_path: Path) -> None:
    runs, output = tmp_path / "runs", tmp_path / "report.md"
    assert len(told(*RUN[:-1], "--repeats", "2", "--runs", runs)["measured"]) == 4
    checked = suite("verify", runs)
    assert checked.exit_code == 0 and "No check can tell whether somebody wrote all of them anew" in checked.stderr
    report = suite("report", runs, "-o", output)
    assert report.exit_code == 0 and "deepspeed" in report.stdout and "## Ranking" in output.read_text()
    before = output.read_bytes()
    assert suite("report", runs, "-o", output).exit_code == 0
    assert output.read_bytes() == before
    bundle = next(runs.glob("deepspeed*-r1"))
    done = suite("rerun", bundle / "manifest.json", "--runs", runs, "--repeats", "2")
    assert done.exit_code == 0 and "ratio:" in done.stdout, done.stderr
    assert "to megatron 1M on 1 rank (dist-opt): " in done.stdout and "by its ratio to 1 row" in done.stdout
    again = bundle.with_name(bundle.name.removesuffix("1") + "3")
    assert json.loads((again / "record.json").read_text())["run"]["repeat"] == 3


def test_rerun_refuses_another_stack(tmp_path: Path) -> None:
    assert "name an interpreter with that stack" in refused("rerun", make_bundle(tmp_path), "--yes")


def test_doctor_says_what_can_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.conduct.doctor.examine.ask_worker", lambda *asked, **limits: None)
    done = suite("doctor", "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == (0 if facts["able"] else 3)
    assert {"driver python", "backend deepspeed", "gpu", "memory"} <= {check["name"] for check in facts["checks"]}


def test_presets_and_sizes_are_listed_with_what_they_hold() -> None:
    listed = suite("sizes").stdout
    for name, preset in presets().items():
        assert f"preset {name}: {preset.summary}\n" in listed
    rows = told("sizes")["trlx"]
    counted = {row["name"]: round(row["parameters"] / 1e9, 3) for row in rows}
    assert counted["1.3B-trlx"] == 0.812, "and not what the name says"
    assert "66B on 32 ranks" in listed and "preset" not in suite("sizes", "--ladder", "cpu").stdout


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{shlex.quote(sys.executable)} -m suite sizes | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
