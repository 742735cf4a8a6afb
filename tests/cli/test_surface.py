"""The command line as scripts and shells use it: names do not change unnoticed, and a shell is offered them.

An option that is added or renamed on purpose: ``pytest tests/cli/test_surface.py --snapshot-update``.
"""

import pytest
from typer.testing import CliRunner

from suite.cli.app import app, load
from suite.cli.commands import COMMANDS, Group
from suite.launch.cluster.submission import submission_path
from suite.spec.catalogue import devices, presets, sizes
from tests.cli.test_help import commands


def test_the_names_of_the_commands(snapshot):
    named = {name: sorted(entry.commands) if isinstance(entry, Group) else [] for name, entry in COMMANDS.items()}
    assert named == snapshot
    assert app.info.name == "suite"


@pytest.mark.parametrize("words", sorted(commands()))
def test_the_names_of_a_commands_options(words, snapshot):
    params = load(words.split()[-1], commands()[words]).params
    options = {name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    arguments = [param.name for param in params if param.param_type_name == "argument"]
    assert {"arguments": arguments, "options": sorted(options)} == snapshot


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is given for a command line whose last word is being typed."""
    monkeypatch.setenv("_SUITE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    done = CliRunner().invoke(app, [], prog_name="suite")
    assert done.exit_code == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("suite run --size ", list(sizes())),
        ("suite run --backend meg", ["megatron"]),
        ("suite run --preset ", list(presets())),
        ("suite plan --device ", list(devices())),
        ("suite re", ["rerun", "report"]),
    ],
)
def test_names_are_offered(line, names, tmp_path, monkeypatch):
    (tmp_path / "a-file.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert offered(line, monkeypatch) == names


def test_runs_that_were_submitted_are_offered_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("deepspeed-1M-n1-abc-1", "deepspeed-1M-n1-abc-2", "megatron-1M-n1-abc-1"):
        path = submission_path(tmp_path / "results", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = ["deepspeed-1M-n1-abc-1", "deepspeed-1M-n1-abc-2"]
    assert offered("suite collect --runs results deep", monkeypatch) == found
    assert offered(f"suite collect --runs results {found[0]} deep", monkeypatch) == found[1:]
    assert offered("suite collect deep", monkeypatch) == []
