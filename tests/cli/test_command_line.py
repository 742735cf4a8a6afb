"""What every command has alike, and the two other ways to say what a run is: a layout in one option, a file."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite.cli.commands import COMMANDS, HEADINGS
from suite.cli.main import main
from suite.cli.options.reading import confirmed
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


def test_commands_are_listed_in_five_groups_each_in_one_line() -> None:
    shown = suite("--help").stdout.split("Measure:\n")[1].split("\n\n")
    assert [*HEADINGS] == ["Measure", "Look", "Clusters", "Hand on", "More"]
    lines = [line for group in shown for line in group.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == [*COMMANDS]


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
            ("recompute=yes", "--layout recompute=yes: write recompute"),
            ("tp=2,tp=1", "--tp is given twice"),
            ("tp=many", "--tp 'many': must be a valid integer"),
        ],
    )
    def test_what_is_no_layout_is_refused_by_its_name(self, text: str, words: str) -> None:
        assert words in refused(*MEGATRON, "--layout", text)


class TestFile:
    def test_a_file_holds_options_by_their_names_and_the_command_line_replaces_them(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.yaml"
        path.write_text("size: [1M]\nranks: [1, 2]\nrepeats: 2\nbackend: megatron\nrecompute: true\nbind: false\n")
        typed = ("--size", "1M", "--ranks", "2", "--repeats", "1", "--backend", "megatron", "--recompute", "--no-bind")
        device = ("--device", "cpu", "--dry-run")
        assert told("run", path, *device, "--ranks", "2", "--repeats", "1") == told("run", *typed, *device)
        assert len(layouts("run", path, *device)) == 4

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("sizes: 1M", "has no option 'sizes', did you mean 'size'"),
            ("recompute: 1", "recompute is true or false, not 1"),
            ("size: true", "size is a text, not True"),
            ("[1M]", "holds names with values, not list"),
            ("size: {", "is not valid YAML"),
            ("repeats: many", "repeats is a whole number, not 'many'"),
            (r'runs: "a\0b"', r"runs holds a character that no command line can carry: 'a\x00b'"),
            (r'runs: "\ud800"', r"runs holds a character that no command line can carry: '\ud800'"),
        ],
    )
    def test_what_is_wrong_in_it_is_told(self, text: str, words: str, tmp_path: Path) -> None:
        (tmp_path / "plan.yaml").write_text(text)
        done = suite("run", tmp_path / "plan.yaml", "--dry-run")
        assert done.exit_code == 2 and words in done.stderr


class TestDefaults:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_a_folders_own_file_says_what_neither_the_command_line_nor_a_plan_does(self) -> None:
        Path("suite.toml").write_text('\ufeff[run]\nranks = [1, 2]\nbackend = "megatron"\nrecompute = true\nseed = 3\n')
        Path("plan.yaml").write_text("ranks: [2]\n")
        assert len(layouts(*PLAN)) == 2
        assert len(layouts(*PLAN, "--ranks", "1")) == 1
        done = suite("run", "plan.yaml", *PLAN[1:], "--no-recompute", "-v")
        assert done.exit_code == 0 and "from suite.toml: --backend, --seed\n" in done.stderr
        assert "suite.toml" not in suite(*PLAN).stderr

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[run]\nsizes = '1M'", "suite.toml: run has no option 'sizes', did you mean 'size'"),
            ("[run]\nseed = 'many'", "suite.toml: run: seed is a whole number, not 'many'"),
            ("[runn]\nsize = '1M'", "suite.toml is of no command 'runn', did you mean 'run'"),
            ("run = 1", "suite.toml: run holds names with values, not int"),
            ("[run", "suite.toml is not valid TOML"),
        ],
    )
    def test_what_is_wrong_in_it_is_one_line(self, text: str, words: str) -> None:
        Path("suite.toml").write_text(text)
        assert words in refused(*PLAN)

    def test_what_is_no_command_of_a_group_is_told_too(self) -> None:
        Path("suite.toml").write_text("[submit.slrum]\nqos = 'large'\n")
        assert "suite.toml is of no command 'slrum', did you mean 'slurm'" in refused("submit", "slurm", "--size", "1M")

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
        assert "--python '' names no interpreter" in refused(*MEGATRON, "--python", "")
        assert "--ranks is a number or all, not ''" in refused("tune", "--size", "1M", "--device", "cpu", "--ranks", "")

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

    def test_columns_hold_in_a_pipe_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make_bundle(tmp_path)
        wide = suite("report", tmp_path).stdout
        monkeypatch.setenv("COLUMNS", "60")
        narrow = suite("report", tmp_path).stdout
        assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))

    def test_q_leaves_errors_and_results(self, tmp_path: Path) -> None:
        make_bundle(tmp_path)
        for words in (("report", tmp_path), ("sizes",)):
            assert suite(*words, "-q").stderr == "" and suite(*words, "-q").stdout == suite(*words).stdout
        assert refused("report", "nowhere", "-q") == refused("report", "nowhere")


def test_a_stack_that_cannot_run_says_so_and_which_interpreter_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    newer_than_the_last_with_ppo = {"trl": "1.16.0"}
    for module in ("suite.launch.probe", "suite.backends.base"):
        versions = lambda python, packages: {**dict.fromkeys(packages, "5.0"), **newer_than_the_last_with_ppo}  # noqa: E731
        monkeypatch.setattr(f"{module}.stack_versions", versions)
    for module in ("trlx_deepspeed", "trlx_nemo"):
        monkeypatch.setattr(f"suite.backends.{module}.trlx_errors", lambda python, engine=False: [])
    lines = suite("backends", "--python", f"trl-ppo={sys.executable}").stdout.splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("trl-ppo ")]
    assert "trl 1.16.0" in lines[first + 1] and lines[first + 2].strip() == f"in {sys.executable}"
    assert lines[first + 3].strip().startswith("cannot run there: ") and "1.12.0" in lines[first + 3]
    (usable,) = [number for number, line in enumerate(lines) if line.startswith("trl-grpo ")]
    assert "cannot run" not in lines[usable + 3]


def test_colour_is_nobodys_where_no_color_says_so(tmp_path: Path) -> None:
    make_bundle(tmp_path)
    words = [sys.executable, "-c", "from suite.cli.main import main; main()", "report", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", done.stdout)


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
