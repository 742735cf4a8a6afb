"""Help: what it shows, that it is answered before anything heavy is imported, and never from stale text."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from suite.cli import saved_help
from suite.cli.app import app
from suite.cli.commands import COMMANDS, HEADINGS, Command, Group, command_paths
from suite.cli.man_page import man_page
from suite.spec.version import suite_version
from tests.command import suite

ROOT = Path(__file__).resolve().parents[2]
PATHS = [" ".join(path) for path in command_paths()]
BUILT = ("suite", "manifests", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore")
_PROBE = """
import sys
from pathlib import Path
import suite.cli.saved_help
suite.cli.saved_help.FILE = Path(sys.argv.pop(1))
from suite.cli.main import main
try:
    main()
finally:
    print("typer" in sys.modules, file=sys.stderr)
"""


def commands() -> dict[str, Command]:
    """Every command that is no group, by its words."""
    groups = {name: entry.commands for name, entry in COMMANDS.items() if isinstance(entry, Group)}
    below = {f"{name} {word}": each for name, inner in groups.items() for word, each in inner.items()}
    return {name: entry for name, entry in COMMANDS.items() if name not in groups} | below


def live_help(words: str, columns: int) -> str:
    """Without Click's runner of tests, whose terminal always has 80 columns."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(shown), pytest.raises(SystemExit) as ended:
        patched.setenv("COLUMNS", str(columns))
        app([*words.split(), "--help"], prog_name="suite")
    assert ended.value.code == 0
    return shown.getvalue()


def python(code: str, *arguments: object, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a fresh interpreter prints that runs this code; with the variables that are given, if any, and no others."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", **environment} if environment else None
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Help as an installation saves it, from a process of its own."""
    file = tmp_path_factory.mktemp("help") / "saved_help.json"
    write = "import sys, pathlib, suite.cli.saved_help as help; help.write_pages(pathlib.Path(sys.argv[1]))"
    python(write, file)
    return file


def probe(file: Path, *arguments: str) -> tuple[str, bool]:
    """What a fresh process prints, and whether it imported Typer for it."""
    done = python(_PROBE, file, *arguments, COLUMNS="80")
    return done.stdout, done.stderr.strip() == "True"


@pytest.mark.parametrize("columns", [80, 109, 110, 200])
def test_saved_help_is_what_the_application_prints(columns: int, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(saved_help, "FILE", saved)
    assert saved_help.saved_page(["sizes"]) == suite("sizes").stdout
    for words in PATHS:
        live = live_help(words, columns)
        assert saved_help.saved_page([*words.split(), "--help"]) == live, words
        assert max(map(len, live.splitlines())) <= min(columns, saved_help.WIDE)


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("--help",), "Usage: suite "),
        (("submit", "slurm", "-h"), "Usage: suite submit slurm "),
        (("run", "--help-all"), "Usage: suite run "),
        (("sizes",), "ladder "),
        (("--version",), f"suite {suite_version()}\n"),
    ],
)
def test_help_and_version_need_no_typer(arguments: tuple[str, ...], begins: str, saved: Path) -> None:
    text, imported = probe(saved, *arguments)
    assert text.startswith(begins) and not imported


def test_the_version_is_an_option_of_the_application_too() -> None:
    for option in ("--version", "-V"):
        done = suite(option, "sizes")
        assert (done.exit_code, done.stdout) == (0, f"suite {suite_version()}\n")


def test_saved_help_of_other_sources_is_not_shown(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    package = tmp_path / "suite"
    shutil.copytree(ROOT / "suite", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "manifests", package / "manifests")
    monkeypatch.setattr(saved_help, "PACKAGE", package)
    monkeypatch.setattr(saved_help, "FILE", saved)
    assert saved_help.saved_page(["run", "--help"]), "an installed package with its data inside has the same sources"
    for changed in ("launch/slurm/settings.py", "spec/layout.py", "manifests/presets.yaml"):
        text = (package / changed).read_text()
        (package / changed).write_text(text + "\n")
        assert saved_help.saved_page(["run", "--help"]) is None, changed
        (package / changed).write_text(text)
    (package / "cli/plan.py").unlink()
    assert saved_help.saved_page(["run", "--help"]) is None


@pytest.mark.parametrize("content", [None, "", "{", "{}", '{"pages": {"80": {"run": "text"}}}'])
def test_without_saved_help_none_is_shown(content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(saved_help, "FILE", tmp_path / "saved_help.json")
    if content is not None:
        saved_help.FILE.write_text(content)
    assert saved_help.saved_page(["run", "--help"]) is None


def test_without_saved_help_it_is_answered_live(tmp_path: Path) -> None:
    text, imported = probe(tmp_path / "none.json", "sizes", "--help")
    assert text.startswith("Usage: suite sizes") and imported


def test_only_plain_questions_are_answered_from_saved_help(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_help, "FILE", saved)
    monkeypatch.setenv("COLUMNS", "80")
    assert saved_help.saved_page(["run", "-h"])
    for arguments in ([], ["run"], ["run", "--size", "--help"], ["nothing", "--help"], ["--help", "run"]):
        assert saved_help.saved_page(arguments) is None, arguments
    monkeypatch.setenv("COLUMNS", "60")
    assert saved_help.saved_page(["run", "--help"]) is None


def test_asking_for_one_command_imports_no_other() -> None:
    code = "import sys; from suite.cli.app import app; app(['sizes'], standalone_mode=False); print(*sys.modules)"
    loaded = set(python(code).stdout.split())
    files = {entry.function.partition(":")[0] for entry in commands().values()}
    assert {file for file in files if f"suite.cli.{file}" in loaded} == {"sizes"}
    names_of_launchers = {"suite.launch", "suite.launch.cluster", "suite.launch.cluster.registry"}
    rooms = ("suite.bundle", "suite.launch", "suite.conduct")
    assert not [name for name in loaded - names_of_launchers if name.startswith(rooms)]


def test_the_manual_page_has_every_section_and_command(saved: Path) -> None:
    page = man_page(json.loads(saved.read_text())["pages"]["80"]).replace("\\-", "-")
    sections = ["NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "FILES", "ENVIRONMENT", "SEE ALSO"]
    assert re.findall(r"^\.SH (.*)", page, re.MULTILINE) == sections
    assert re.findall(r"^\.SS (.*)", page, re.MULTILINE) == [*HEADINGS]
    assert not [words for words in commands() if f"suite {words} " not in page]


@pytest.mark.slow
class TestBuild:
    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        subprocess.run(["cp", "-r", *(ROOT / name for name in BUILT), tmp_path], check=True)
        (tmp_path / "suite/cli/saved_help.json").unlink(missing_ok=True)
        return tmp_path

    def build(self, checkout: Path, how: str, broken: str = "") -> Path:
        pytest.importorskip("hatchling", reason="the build tools come with `make test`")
        code = f"import hatchling.build; print(hatchling.build.{how}('built'))"
        return checkout / "built" / python(code, folder=checkout, PYTHONPATH=broken).stdout.split()[-1]

    def test_a_wheel_answers_help_from_saved_text(self, checkout: Path) -> None:
        wheel = self.build(checkout, "build_wheel")
        installed = checkout / "installed"
        zipfile.ZipFile(wheel).extractall(installed)
        code = "import sys; from suite.cli.main import main; main(); print('typer' in sys.modules)"
        done = python(code, "run", "--help", folder=installed, COLUMNS="100")
        assert done.stdout.startswith("Usage: suite run") and done.stdout.endswith("\nFalse\n")
        (page,) = installed.glob("*.data/data/share/man/man1/suite.1")
        assert page.read_text().startswith(".TH SUITE 1 ")

    def test_an_editable_installation_saves_help_in_the_checkout(self, checkout: Path) -> None:
        self.build(checkout, "build_editable")
        pages = json.loads((checkout / "suite/cli/saved_help.json").read_text())["pages"]
        assert set(pages["80"]) >= {*PATHS, "run --help-all"}

    def test_a_build_without_typer_is_a_build_without_saved_help(self, checkout: Path) -> None:
        (checkout / "broken/typer").mkdir(parents=True)
        (checkout / "broken/typer/__init__.py").write_text("raise ImportError('no typer here')\n")
        wheel = self.build(checkout, "build_wheel", broken=str(checkout / "broken"))
        assert "suite/cli/saved_help.json" not in zipfile.ZipFile(wheel).namelist()


#: as ``python -m suite``, telling at its end what was imported
_ALL_MODULES = """
import atexit, runpy, sys
own = lambda: sorted(name for name in sys.modules if name.partition(".")[0] == "suite")
atexit.register(lambda: print(*own(), file=sys.stderr))
runpy.run_module("suite", run_name="__main__", alter_sys=True)
"""


def test_a_local_run_imports_few_modules_and_none_of_other_launchers() -> None:
    found = python(_ALL_MODULES, "run", "--size", "1M", "--backend", "deepspeed", "--dry-run").stderr.split()
    assert "suite.launch.local" in found, "else nothing is proven"
    assert not [name for name in found if name.startswith(("suite.launch.slurm.", "suite.launch.kubernetes."))]
    docker = {name for name in found if name.startswith("suite.launch.docker.")}
    assert docker <= {"suite.launch.docker.settings"}, "only the options of containers are read"
    assert len(found) <= 78, f"{len(found)} modules: import where it is used, or merge what is only used together"
