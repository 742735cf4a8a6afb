"""Commands as a user types them: what they print, their exit codes, and one clear line for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.cli.app import app
from suite.spec.presets import presets
from tests.forked_suite import forked_suite
from tests.synthetic import make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]


def suite(*arguments: str, scripted: bool = True) -> subprocess.CompletedProcess[str]:
    return forked_suite(*arguments, scripted=scripted)


COMMANDS = ("run", "plan", "report", "compare", "verify", "rerun", "sizes", "backends", "doctor")


def test_help_names_every_command() -> None:
    done = suite("--help", scripted=False)
    assert done.returncode == 0
    assert all(f"  {command} " in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_offers_json(command: str) -> None:
    done = suite(command, "--help", scripted=False)
    assert done.returncode == 0
    assert ("--json" in done.stdout) and "Usage" in done.stdout


RUN = ("run", "--device", "cpu", "--size", "1M", "--ranks", "1", "--repeats", "1", "--dry-run")
RULED = ("run", "--device", "cpu", "--size", "1M", "--ranks", "1", "--backend", "megatron", "--dry-run")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--size", "66b1"), "did you mean"),
        (("run", "--dry-run"), "--size, --ladder or --shape"),
        (("run", "--ladder", "gpu"), "gpu-one"),
        ((*RUN, "--backend", "megatrom"), "did you mean 'megatron'"),
        ((*RUN, "--workload", "smoek"), "smoke"),
        ((*RUN, "--size", "1M"), "named twice"),
        ((*RUN, "--ranks", "0"), "ranks"),
        ((*RUN, "--ranks", "-2"), "ranks"),
        ((*RUN, "--ranks", "4096"), "--oversubscribe"),
        ((*RUN, "--repeats", "0"), "repeats"),
        ((*RUN, "--iterations", "0"), "--iterations 0: must be"),
        ((*RUN, "--rollouts", "0"), "--rollouts 0: must be"),
        ((*RUN, "--new-tokens", "4000"), "exceed the 128 positions"),
        ((*RUN, "--warmup", "-1"), "warmup"),
        ((*RUN, "--zero", "5"), "--zero 5: must be less than or equal to 3"),
        ((*RUN, "--backend", "megatron", "--tp", "3"), "do not divide into tensor parallel 3"),
        ((*RUN, "--backend", "megatron", "--tp", "0"), "--tp 0: must be greater than 0"),
        ((*RUN, "--backend", "megatron", "--pp", "-1"), "--pp -1: must be greater than 0"),
        ((*RUN, "--budget", "soon"), "no duration"),
        ((*RUN, "--timeout", "0s"), "no duration"),
        ((*RUN, "--precision", "fp7"), "precision"),
        ((*RUN, "--precision", "fp32", "--precision", "bf16"), "two number formats, fp32 and bf16"),
        ((*RULED, "--with-suspect"), "--with-suspect goes with --precision 3%"),
        ((*RULED, "--precision", "0%"), "--precision is a percentage such as 3%, not '0%'"),
        ((*RUN, "--precision", "3%", "--precision", "4%"), "two widths, 3% and 4%"),
        ((*RUN, "--precision", "3%"), "--repeats 1: intervals that are looked at need 3 runs at least"),
        ((*RULED, "--difference", "5"), "--difference is a percentage such as 3%, not '5'"),
        ((*RULED, "--difference", "5%"), "no two rows of this plan are"),
        (
            (*RULED, "--precision", "3%", "--repeats", "5", "--most-repeats", "3"),
            "at most 3 runs of a row are fewer than the least, 5",
        ),
        (("submit", "slurm", "--size", "1M", "--precision", "3%", "--dry-run"), "which a submitted plan cannot"),
        ((*RUN, "--track", "mine"), "track"),
        ((*RUN, "--scaling", "medium"), "scaling"),
        ((*RUN, "--reference", "half"), "--reference 'half': must be 'full' or 'hydra'"),
        ((*RUN, "--reference", "hydra"), "trainable_layers"),
        ((*RUN, "--trainable-layers", "9"), "9 trainable layers exceed"),
        ((*RUN, "--device", "tpu"), "auto, cpu or cuda"),
        ((*RUN, "--shape", "nowhere.yaml"), "nowhere.yaml"),
        ((*RUN, "--seed", "-1"), "seed"),
        ((*RUN, "--preset", "laddr"), "did you mean 'ladder'"),
        ((*RUN, "--preset", "ladder"), "has no size '1M'"),
        (("run", "--preset", "ladder", "--ladder", "cpu", "--dry-run"), "has its own sizes"),
        ((*RUN, "--offload-parameters", "--zero", "1"), "ZeRO stage 3"),
        (("report", "nowhere"), "nowhere"),
        (("verify", "nowhere"), "nowhere"),
        (("compare", "nowhere", "nowhere"), "nowhere"),
        (("compare", ".", ".", "--gate", "-1"), "above 0"),
        (("rerun", "nowhere"), "does not exist"),
        (("sizes", "--ladder", "cpuu"), "cpu"),
        (("frobnicate",), "frobnicate"),
        (("run", "--frobnicate"), "frobnicate"),
        ((*RUN, "--ranks", "two"), "--ranks"),
        ((*RUN, "--ranks", "9" * 5000), "--ranks is a whole number from 1 to 1,048,576"),
        ((*RUN, "--budget", "9" * 400 + "h"), "is no duration"),
        ((*RUN, "--timeout", "100000h"), "longer than ten years"),
        ((*RUN, "--price", "inf"), "--price is a number up to"),
        ((*RUN, "--price", "nan"), "'--price'"),
        ((*RUN, "--rollouts", "1000000000000"), "--rollouts 1000000000000: must be less than"),
        ((*RUN, "--micro-batch", "1" + "0" * 40), "--micro-batch is a number up to"),
        ((*RUN, "--iterations", "1000001"), "--iterations 1000001: must be less than"),
        ((*RUN, "--repeats", "1001"), "--repeats 1001: must be less than"),
        (("run", "--launcher", "docker", "--size", "1M", "--memory", "9" * 400 + "g"), "is no size"),
        (("plan", "--size", "1.3B", "--price", "inf"), "--price is money per device and hour"),
        (("plan", "--size", "1.3B", "--scale", "9" * 5000 + "..1"), "--scale is a range"),
        (("plan", "--size", "1.3B", "--devices", "1" + "0" * 40), "--devices is a number up to"),
        (("compare", ".", ".", "--gate", "nan"), "--gate is a number up to"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "suite.conduct.planning.machine.stack_versions", lambda python, packages: dict.fromkeys(packages, "0")
    )
    with pytest.raises(SystemExit) as ended:
        app(arguments, prog_name="suite")
    told = capsys.readouterr()
    assert ended.value.code == 2, told
    assert words in told.err and told.out == ""
    if told.err.startswith("error: "):
        assert told.err.count("\n") == 1


def test_a_missing_stack_names_the_package_and_the_way_out() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_STACK, *RUN, "--backend", "megatron"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2 and "megatron needs torch, megatron-core" in done.stderr and "--python" in done.stderr


_WITHOUT_STACK = """
import suite.conduct.planning.machine
suite.conduct.planning.machine.stack_versions = lambda python, packages: {name: None for name in packages}
from suite.cli.main import main
main()
"""


def test_an_interpreter_that_does_not_exist_is_told() -> None:
    done = suite(*RUN, "--python", "/nowhere/python", scripted=False)
    assert done.returncode == 2 and "/nowhere/python" in done.stderr and "Traceback" not in done.stderr


def test_a_dry_run_shows_the_plan_and_leaves_nothing(tmp_path: Path) -> None:
    done = suite(*RUN, "--ranks", "2", "--oversubscribe", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0 and "deepspeed-1M-n1-" in done.stdout and "4 to run; nothing was run" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_size_that_no_cpu_holds_is_refused_and_a_dry_run_says_so(tmp_path: Path) -> None:
    arguments = ("run", "--device", "cpu", "--size", "66B", "--ranks", "1", "--repeats", "1", "--runs", str(tmp_path))
    looked, done = suite(*arguments, "--dry-run"), suite(*arguments)
    assert (looked.returncode, done.returncode) == (0, 2)
    assert "not on this machine: deepspeed 66B on 1 ranks needs at least 1,2" in looked.stderr
    assert done.stderr.startswith("error: deepspeed 66B on 1 ranks needs at least 1,2")
    assert not list(tmp_path.iterdir())


def test_a_dry_run_as_json_is_the_same_plan(tmp_path: Path) -> None:
    done = suite(*RUN, "--json", "--runs", str(tmp_path / "runs"))
    rows = json.loads(done.stdout)["runs"]
    assert [(row["backend"], row["state"]) for row in rows] == [("deepspeed", "to run"), ("megatron", "to run")]


def test_a_preset_is_planned_on_a_machine_without_its_gpus_and_says_what_is_missing(tmp_path: Path) -> None:
    done = suite("run", "--preset", "ladder", "--track", "tuned", "--dry-run", "--json", "--runs", str(tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert len(plan["runs"]) == 36 and any("32 ranks on 4 nodes" in line for line in plan["not_here"])
    assert "preset ladder: --track tuned replaces equal-config" in done.stderr


def test_a_presets_ranks_are_not_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SUITE_RANKS", "2")
    with pytest.raises(SystemExit):
        app(["run", "--preset", "ladder", "--size", "1.3B", "--dry-run", "--json", "--runs", str(tmp_path)])
    told = capsys.readouterr()
    assert {row["ranks"] for row in json.loads(told.out)["runs"]} == {8} and "--ranks" not in told.err


def test_a_gpu_that_the_environment_demands_is_measured_on_or_nothing_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("suite.conduct.planning.machine.local_devices", tuple)
    monkeypatch.setenv("SUITE_DEVICE", "cuda")
    monkeypatch.setenv("SUITE_RANKS", "all")
    with pytest.raises(SystemExit) as ended:
        app(["run", "--size", "1M", "--runs", str(tmp_path / "runs")])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("\n") == 1 and "no NVIDIA driver shows a GPU" in told
    assert not (tmp_path / "runs").exists()


def test_a_run_ends_in_a_report_that_verifies(tmp_path: Path) -> None:
    runs, output = tmp_path / "runs", tmp_path / "report.md"
    done = suite(*RUN[:-1], "--runs", str(runs), "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["measured"]) == 2
    assert suite("verify", str(runs)).returncode == 0
    report = suite("report", str(runs), "-o", str(output))
    assert report.returncode == 0 and "deepspeed" in report.stdout and "## Ranking" in output.read_text()
    before = output.read_bytes()
    assert suite("report", str(runs), "-o", str(output)).returncode == 0
    assert output.read_bytes() == before


def test_rerun_measures_the_same_manifest_as_one_more_repeat(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    suite(*RUN[:-1], "--backend", "deepspeed", "--runs", str(runs))
    bundle = next(path for path in runs.iterdir() if path.is_dir())
    done = suite("rerun", str(bundle / "manifest.json"), "--runs", str(runs))
    assert done.returncode == 0, done.stderr
    assert "ratio:" in done.stdout
    again = bundle.with_name(bundle.name.removesuffix("1") + "2")
    assert json.loads((again / "record.json").read_text())["run"]["repeat"] == 2


def test_rerun_refuses_another_stack(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, synthetic_manifest())
    done = suite("rerun", str(path), "--yes")
    assert done.returncode == 2 and "install that stack" in done.stderr


def test_a_changed_record_differs_and_a_cut_bundle_is_damaged(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, synthetic_manifest())
    Bundle(path).write_record(derive(Bundle(path)))
    stored = path / "record.json"
    stored.write_text(stored.read_text().replace('"status": "ok"', '"status": "failed"'))
    done = suite("verify", str(path))
    assert done.returncode == 3 and "status" in done.stdout
    (path / "manifest.json").write_text("{")
    done = suite("verify", str(path))
    assert done.returncode == 2 and "damaged" in done.stdout and "Traceback" not in done.stderr
    done = suite("report", str(tmp_path))
    assert done.returncode == 2 and "damaged" in done.stderr and "Traceback" not in done.stderr


def test_doctor_says_what_can_run_here() -> None:
    done = suite("doctor", "--json", scripted=False)
    facts = json.loads(done.stdout)
    assert done.returncode == (0 if facts["able"] else 3)
    assert {"driver python", "backend deepspeed", "gpu", "memory"} <= {check["name"] for check in facts["checks"]}


def test_sizes_are_computed_and_not_read_off_the_name() -> None:
    rows = json.loads(suite("sizes", "--json", scripted=False).stdout)
    by_name = {row["name"]: row["parameters"] for row in rows["trlx"]}
    assert round(by_name["1.3B-trlx"] / 1e9, 3) == 0.812


def test_every_preset_is_named_where_a_user_looks_for_it() -> None:
    told = " ".join(suite("run", "--help", scripted=False).stdout.split())
    assert "--preset NAME a whole measurement, such as ladder or grpo-8b (`suite sizes`)" in told
    listed = suite("sizes", scripted=False).stdout
    for name, preset in presets().items():
        assert f"preset {name}: {preset.summary}\n" in listed
    assert "66B on 32 ranks" in listed and "preset" not in suite("sizes", "--ladder", "cpu", scripted=False).stdout


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m suite sizes | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr
