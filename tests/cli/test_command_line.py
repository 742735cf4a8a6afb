"""What every command has alike, and the ways to say what a run is: options, a layout in one option, a file."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite.cli.main import main
from suite.cli.options.fields import settings_of
from suite.cli.options.launchers import Where
from suite.cli.output import confirmed
from suite.launch.docker.settings import DockerSettings
from suite.launch.local import LocalLauncher
from suite.spec.catalogue import find_workload
from tests.command import refused, suite, told
from tests.conduct.running.test_progress import Terminal
from tests.synthetic import make_bundle

ROOT = Path(__file__).resolve().parents[2]
PLAN = ("run", "--device", "cpu", "--size", "1M", "--repeats", "1", "--dry-run")
MEGATRON = (*PLAN, "--backend", "megatron")


@pytest.fixture(autouse=True)
def _any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = lambda python, packages: dict.fromkeys(packages, "5.19.0")  # noqa: E731
    monkeypatch.setattr("suite.conduct.planning.machine.stack_versions", versions)
    monkeypatch.setattr("suite.conduct.planning.machine.stack_code", lambda python, packages: {})


def layouts(*arguments: object) -> list[str]:
    return [run["layout"] for run in told(*arguments)["runs"]]


class TestOldSpellings:
    @pytest.mark.parametrize(("value", "option"), [("bf16", "--dtype"), ("3%", "--until")])
    def test_precision_works_and_says_what_it_is_now(self, value: str, option: str) -> None:
        words = (*MEGATRON, "--repeats", "4")
        for old in (("--precision", value), (f"--precision={value}",)):
            before, now = suite(*words, *old, "--json"), suite(*words, option, value, "--json")
            assert before.stdout == now.stdout and now.exit_code == 0
            assert before.stderr.splitlines()[0].startswith(f"note: --precision {value} is now {option} {value};")

    def test_render_is_submit_with_output(self, tmp_path: Path) -> None:
        words = ("slurm", "--backend", "megatron", "--size", "1M", "--device", "cpu", "--runs", tmp_path)
        words += ("--stack", "torch=1", "--stack", "megatron-core=1")
        before, now = suite("render", *words), suite("submit", *words, "-o", "-")
        assert before.stdout == now.stdout and now.stdout.startswith("#!")
        assert "suite render is now suite submit ... --output DIR" in before.stderr
        assert suite("render", *words, "-o", tmp_path / "files").exit_code == 0
        assert list((tmp_path / "files").glob("*.sbatch"))


class TestLayout:
    def test_one_option_says_what_goes_together_and_several_compare(self) -> None:
        apart = layouts(*MEGATRON, "--ranks", "2", "--tp", "2", "--no-sequence-parallel")
        assert layouts(*MEGATRON, "--ranks", "2", "--layout", "tp=2,no-sequence-parallel") == apart
        both = layouts(*MEGATRON, "--ranks", "2", "--layout", "tp=2", "--layout", "tp=1,recompute")
        assert [name.split()[0] for name in both] == ["tp2", "dp2"] and "recompute" in both[1]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("tpp=2", "--layout tpp=2: there is no 'tpp', did you mean 'tp'"),
            ("tp", "--layout tp: write tp=VALUE"),
            ("tp=2,tp=1", "--tp is given twice"),
            ("tp=many", "--tp 'many': must be a valid integer"),
        ],
    )
    def test_what_is_no_layout_is_refused_by_its_name(self, text: str, words: str) -> None:
        assert words in refused(*MEGATRON, "--layout", text)


class TestFile:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_a_file_holds_options_by_their_names_and_the_command_line_replaces_them(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.yaml"
        path.write_text("size: [1M]\nranks: [1, 2]\nrepeats: 2\nbackend: megatron\nrecompute: true\nbind: false\n")
        typed = ("--size", "1M", "--ranks", "2", "--repeats", "1", "--backend", "megatron", "--recompute", "--no-bind")
        device = ("--device", "cpu", "--dry-run")
        assert told("run", path, *device, "--ranks", "2", "--repeats", "1") == told("run", *typed, *device)
        assert len(layouts("run", path, *device)) == 4

    def test_a_folders_own_file_says_what_neither_the_command_line_nor_a_plan_does(self) -> None:
        Path("suite.toml").write_text('\ufeff[run]\nranks = [1, 2]\nbackend = "megatron"\nrecompute = true\nseed = 3\n')
        Path("plan.yaml").write_text("ranks: [2]\n")
        assert len(layouts(*PLAN)) == 2
        assert len(layouts(*PLAN, "--ranks", "1")) == 1
        done = suite("run", "plan.yaml", *PLAN[1:], "--no-recompute", "-v")
        assert done.exit_code == 0 and "from suite.toml: --backend, --seed\n" in done.stderr
        assert "suite.toml" not in suite(*PLAN).stderr

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("plan.yaml", "sizes: 1M", "has no option 'sizes', did you mean 'size'"),
            ("plan.yaml", r'runs: "a\0b"', r"runs holds a character that no command line can carry: 'a\x00b'"),
            ("plan.yaml", r'runs: "\ud800"', r"runs holds a character that no command line can carry: '\ud800'"),
            ("suite.toml", "[run]\nsizes = '1M'", "suite.toml: run has no option 'sizes', did you mean 'size'"),
            ("suite.toml", "[runn]\nsize = '1M'", "suite.toml is of no command 'runn', did you mean 'run'"),
            ("suite.toml", "[run", "suite.toml is not valid TOML"),
        ],
    )
    def test_what_is_wrong_in_one_is_told_in_one_line(self, name: str, text: str, words: str) -> None:
        Path(name).write_text(text)
        assert words in refused(*(("run", name, "--dry-run") if name == "plan.yaml" else PLAN))

    def test_consent_is_typed(self) -> None:
        Path("suite.toml").write_text("[rerun]\nyes = true")
        assert "rerun has no option 'yes'" in refused("rerun", "bundle")


class TestErrors:
    def test_a_program_that_asked_for_json_gets_errors_as_json(self) -> None:
        for words in (("report", "nowhere", "--json"), ("report", "--jsn", "--json"), ("import", "--json")):
            done = suite(*words)
            body = json.loads(done.stdout)
            assert done.exit_code == body["exit_code"] == 2
            assert body["schema"] == "suite/error/1" and body["error"] in " ".join(done.stderr.split())

    def test_an_error_that_nobody_can_be_told_is_an_exit_code(self) -> None:
        with open("/dev/full", "w") as full:
            words = [sys.executable, "-c", "from suite.cli.main import main; main()", "report", "nowhere"]
            done = subprocess.run(words, cwd=ROOT, stderr=full, stdout=subprocess.PIPE)
            assert (done.returncode, done.stdout) == (2, b"")
            for more in (["--version"], ["sizes", "--json"]):
                done = subprocess.run([*words[:3], *more], cwd=ROOT, stdout=full, stderr=subprocess.PIPE)
                assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)

    def test_an_empty_value_is_not_one_that_was_left_out(self) -> None:
        assert "--budget '' is no duration" in refused(*MEGATRON, "--budget", "")
        assert "--device is auto, cpu or cuda, not ''" in refused("run", "--size", "1M", "--device", "")
        assert "--python '': one interpreter for all backends, or NAME=PATH" in refused(*MEGATRON, "--python", "")
        no_ranks = refused("tune", "--size", "1M", "--device", "cpu", "--ranks", "")
        assert "--ranks, unless all, is a whole number from 1 to 1,048,576, not ''" in no_ranks
        assert "there is no workload ''" in refused(*PLAN, "--workload", "")
        for words in (("--runs", ""), ("--runs=",)):
            assert "--runs '' names no folder" in refused(*PLAN, *words)

    def test_a_question_is_asked_on_a_terminal_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stderr", Terminal())
        for typed, is_yes in ((Terminal("y\n"), True), (Terminal("\n"), False), (io.StringIO("y\n"), False)):
            monkeypatch.setattr(sys, "stdin", typed)
            assert confirmed("remove 1 run?") is is_yes

    def test_with_v_it_is_told_what_was_behind_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "s.yaml").write_text("{")
        quiet = suite("run", "--shape", tmp_path / "s.yaml", "--device", "cpu")
        loud = suite("run", "--shape", tmp_path / "s.yaml", "--device", "cpu", "-v")
        assert loud.stderr.startswith(quiet.stderr) and "because of ParserError" in loud.stderr


class TestOutput:
    def test_a_dash_is_standard_output(self, tmp_path: Path) -> None:
        make_bundle(tmp_path)
        assert suite("report", tmp_path, "-o", "-").stdout.startswith("# ")
        (row,) = csv.DictReader(io.StringIO(suite("export", tmp_path, "-o", "-").stdout))
        assert row["size"] == "1M"
        packed = suite("pack", tmp_path, "-o", "-").stdout_bytes
        assert "suite-archive.json" in zipfile.ZipFile(io.BytesIO(packed)).namelist()
        assert "--output" in refused("export", tmp_path, "-o", "-", "--json")
        assert not Path("-").exists()

    def test_q_leaves_errors_and_results(self, tmp_path: Path) -> None:
        make_bundle(tmp_path)
        for words in (("report", tmp_path), ("sizes",)):
            assert suite(*words, "-q").stderr == "" and suite(*words, "-q").stdout == suite(*words).stdout
        assert refused("report", "nowhere", "-q") == refused("report", "nowhere")


def test_a_stack_that_cannot_run_says_so_and_which_interpreter_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    newer_than_the_last_with_ppo = {"trl": "1.16.0"}
    versions = lambda python, packages: {**dict.fromkeys(packages, "5.0"), **newer_than_the_last_with_ppo}  # noqa: E731
    monkeypatch.setattr("suite.launch.probe.stack_versions", versions)
    monkeypatch.setattr("suite.backends.trlx.ask_worker", lambda python, module: {})
    lines = suite("backends", "--python", f"trl-ppo={sys.executable}").stdout.splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("trl-ppo ")]
    assert "trl 1.16.0" in lines[first + 1] and lines[first + 2].strip() == f"in {sys.executable}"
    assert lines[first + 3].strip().startswith("cannot run there: ") and "1.12.0" in lines[first + 3]
    (usable,) = [number for number, line in enumerate(lines) if line.startswith("trl-grpo ")]
    assert "cannot run" not in lines[usable + 3]


SHAPE = "name: Größe\nlayers: 2\nhidden: 64\nffn: 256\nheads: 4\nkv_heads: 4\nvocab: 512\npositions: 64\n"


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f"{shlex.join((sys.executable, str(ROOT / 'tests/scripted_suite.py')))} {words}"
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, **environment}, capture_output=True)


def test_a_run_with_closed_streams_is_a_run_like_any_other(tmp_path: Path) -> None:
    words = f"run --backend deepspeed --device cpu --size 1M --repeats 1 --iterations 2 --runs {tmp_path / 'runs'}"
    done = shell(f"{words} <&- >&- 2>&-")
    assert done.returncode == 0
    (record,) = (tmp_path / "runs").glob("*/record.json")
    assert record.read_text().startswith("{")
    events = (record.parent / "events" / "driver.jsonl").read_text().splitlines()
    assert all(line.startswith('{"kind"') for line in events), "nothing was printed into a file of the run"


def test_what_an_encoding_does_not_have_is_shown_by_number(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(SHAPE)
    words = f"run --backend deepspeed --device cpu --shape {tmp_path / 'own.yaml'} --repeats 1 --dry-run"
    done = shell(words, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"Gr\\xf6\\xdfe" in done.stdout and done.stdout.isascii()


class Importing(ModuleType):
    """A module in whose import Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("module", ["suite.cli.saved_help", "suite.cli.app"])
def test_ctrl_c_while_modules_are_imported_is_one_line_and_130(module, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, Importing(module))
    monkeypatch.setattr(sys, "argv", ["suite", "run", "--size", "1M"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")


DEEPSPEED = (*PLAN, "--backend", "deepspeed")


def test_threads_places_and_free_devices_of_a_clusters_ranks() -> None:
    asked = ("submit", "slurm", "-o", "-", "--backend", "megatron", "--size", "125M", "--repeats", "1")
    stack = ("--stack", "torch=1", "--stack", "megatron-core=1")

    def rendered(*more: str) -> str:
        done = suite(*asked, *stack, *more)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    usual = rendered()
    assert "OMP_NUM_THREADS=8 " in usual and '"threads_per_rank":8,"bind":"near-gpu"' in usual
    assert "SUITE_REQUIRE_IDLE" not in usual
    changed = rendered("--threads", "12", "--no-bind", "--require-idle")
    assert "OMP_NUM_THREADS=12 " in changed and '"threads_per_rank":12,"warmup"' in changed
    assert "SUITE_REQUIRE_IDLE=1 " in changed
    on_cpus = rendered("--device", "cpu", "--workload", "cpu")
    assert "OMP_NUM_THREADS=1 " in on_cpus and "bind" not in on_cpus.split("<<'SUITE_MANIFEST'")[1].split("limits")[0]


def test_what_is_typed_becomes_the_containers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    typed_and_read = {
        "gpu_ids": ("0,GPU-8f6a", ("0", "GPU-8f6a")),
        "shm_bytes": ("1.5g", 3 << 29),
        "ulimits": (["memlock=unlimited", "nofile=4096"], {"memlock": -1, "nofile": 4096}),
        "env": (["NCCL_DEBUG", "A=b=c"], {"NCCL_DEBUG": "INFO", "A": "b=c"}),
        "memory_bytes": ("512m", 512 << 20),
    }
    typed, read = ({name: pair[at] for name, pair in typed_and_read.items()} for at in (0, 1))
    assert settings_of(Where(launcher="docker", **typed), DockerSettings) == DockerSettings(**read)
    assert settings_of(Where(launcher="docker"), DockerSettings) == DockerSettings()


def test_the_local_launcher_takes_its_interpreter_and_no_container_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    machine, launcher = Where(python=["/x/python"]).open("cpu", ("megatron",))
    assert isinstance(launcher, LocalLauncher) and machine.python == "/x/python"


def test_an_interpreter_of_this_machine_is_not_sought_in_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr("suite.conduct.running.containers.open_containers", lambda *given: asked.append(given[4]))
    monkeypatch.setenv("SUITE_PYTHON", "/here/python")
    Where(launcher="docker", python=[]).open("cpu", ("megatron",))
    Where(launcher="docker", python=["/image/python"]).open("cpu", ("megatron",))
    assert asked == [None, "/image/python"]


def planned(*options: str) -> list[dict]:
    return told(*DEEPSPEED, *options)["runs"]


def test_the_work_is_set_from_the_command_line_and_refused_where_it_cannot_be() -> None:
    (usual,), (changed,) = planned(), planned("--rollouts", "6", "--micro-batch", "3")
    assert (usual["samples"], changed["samples"]) == (4, 6)
    assert usual["run"] != changed["run"]
    (same,) = planned("--prompt-tokens", str(find_workload("cpu").prompt_tokens))
    assert usual["run"] == same["run"], "a value that the workload has anyway"
    assert "--lengths (at most 800)" in refused(*DEEPSPEED, "--lengths", "lognormal:mean=6,sigma=0.6,cap=800")
    assert "grpo compares the samples of a prompt: --gro" in refused(*DEEPSPEED, "--algorithm", "grpo", "--group", "1")
