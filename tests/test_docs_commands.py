"""Every `suite ...` that README and the docs show: its options exist, and what it would start can be planned."""

import itertools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import Result

from suite.conduct.planning import machine
from suite.launch.probe import stack_code, stack_versions
from tests.cli.test_examples import unknown_options
from tests.cli.test_help import commands
from tests.command import suite

ROOT = Path(__file__).resolve().parent.parent
DOCS = (path for path in (ROOT / "docs").rglob("*.md") if "results" not in path.relative_to(ROOT).parts)
PAGES = [ROOT / "README.md", *sorted(DOCS)]
DIGEST = "sha256:" + "a" * 64
#: what pages write for something of the reader's own
PLACEHOLDERS = (
    ("NAME@sha256:...", f"registry.example/engines@{DIGEST}"),
    ("$IMAGE", f"registry.example/engines@{DIGEST}"),
    ("REGISTRY/", "registry.example/"),
    (" TEAM", " team"),
    ("my-model/config.json", "config.json"),
    ("--backend my-stack", "--backend megatron"),
)
#: planned as they stand, with --dry-run; of the others only names and options are checked
PLANNED = ("run", "submit slurm", "submit kubernetes")
#: what needs a container runtime, the environments of trainers, or files that the page leaves to its reader
_NEEDS_MORE = ("--launcher docker", "/bin/python", "before-stack", "trainers-", "backend tr", "openrlhf", "verl")
CONFIG = """{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 128, "n_head": 4,
"n_positions": 8192, "vocab_size": 5120}"""


class Shown(NamedTuple):
    """A command as a page shows it."""

    page: str
    words: tuple[str, ...]
    in_block: bool

    def __str__(self) -> str:
        """How a test is called: no edit of the page elsewhere changes it."""
        return f"{self.page}: {' '.join(self.words).replace(DIGEST, 'DIGEST')}"


def shown() -> Iterator[Shown]:
    """Commands in blocks, and in running text where they are more than a name."""
    for page in PAGES:
        inside = False
        for line in re.sub(r"\\\n\s*", " ", page.read_text()).splitlines():
            inside ^= line.lstrip().startswith("```")
            is_block = bool(re.match(r"\s*suite [a-z]", line)) and (inside or line.startswith("    "))
            found = [line.strip()] if is_block else re.findall(r"`(suite [a-z][^`]*)`", line)
            for command in found:
                words = words_of(command)
                if len(words) > 1 and words[0] != "X":  # any command
                    yield Shown(str(page.relative_to(ROOT)), tuple(words), is_block)


def words_of(command: str) -> list[str]:
    """What a shell would pass, without a comment and what follows the command."""
    for placeholder, value in PLACEHOLDERS:
        command = command.replace(placeholder, value)
    return shlex.split(re.split(r"\s+#\s|\s+&&\s|\s+\|\|?\s|\s+>\s", command)[0])[1:]


def name_of(words: tuple[str, ...]) -> str | None:
    known = commands()
    return next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in known), None)


#: each once for a page, as a block's where it is in one
COMMANDS = list({(each.page, each.words): each for each in sorted(shown(), key=lambda each: each.in_block)}.values())


def is_whole(words: tuple[str, ...]) -> bool:
    return not any("..." in word or "<" in word or re.fullmatch("[A-Z]{3,}", word) for word in words)


@pytest.mark.parametrize("each", COMMANDS, ids=str)
def test_a_command_of_the_docs_has_its_options(each: Shown) -> None:
    groups = {name.split()[0] for name in commands() if " " in name}
    if each.words[0] in groups and name_of(each.words) is None:
        assert "..." in each.words[1] or each.words[1].isupper() or each.words[1].startswith("-"), each.words
        return
    words = itertools.takewhile(lambda word: word != "--", each.words)  # what follows is for another command
    options = [word for word in unknown_options(list(words)) if word not in ("-h", "--help")]
    assert options == [], each.words


def planned() -> list[Shown]:
    in_full = [each for each in COMMANDS if each.in_block or each.page == "README.md"]
    wanted = [each for each in in_full if name_of(each.words) in PLANNED and is_whole(each.words)]
    return [each for each in wanted if not any(text in " ".join(each.words) for text in _NEEDS_MORE)]


#: the interpreter is asked once, not for each command
_ASKED = {"stack_code": cache(stack_code), "stack_versions": cache(stack_versions)}


@pytest.mark.parametrize("each", planned(), ids=str)
def test_a_command_of_the_docs_can_be_planned(each: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, ask in _ASKED.items():
        monkeypatch.setattr(machine, name, ask)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    (tmp_path / "engines.sqsh").write_bytes(b"")
    (tmp_path / "config.json").write_text(CONFIG)
    words = [word.replace("$PWD", str(tmp_path)) for word in each.words]
    if each.words[0] == "run":
        # on this machine, else for one with GPUs and all stacks, of which small sizes take the small workload
        refusals = []
        for more in (("--force",), ("--device", "cuda"), ("--device", "cuda", "--workload", "cpu")):
            done = plan(*words, *more)
            if done.exit_code == 0:
                return
            refusals.append(done.stderr)
        pytest.fail("\n".join(refusals))
    else:
        done = suite(*words) if "-o" in words else plan(*words)
        assert done.exit_code == 0, done.stderr


def plan(*words: str) -> Result:
    return suite(*words, *([] if "--dry-run" in words else ["--dry-run"]))


def test_the_pages_show_enough_for_this_to_mean_something() -> None:
    assert len(COMMANDS) > 100 and len(planned()) > 20
    assert {each.page for each in planned()} >= {"README.md", "docs/slurm.md", "docs/kubernetes.md"}
