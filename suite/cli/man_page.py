"""The manual page `suite(1)`: the commands in their groups, each with its saved help, and what holds for all of them.

``python -m suite.cli.man_page FILE`` writes it from ``saved_help.json``, as a build does (``hatch_build.py``)."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from suite.cli.commands import ABOUT, HEADINGS, Group
from suite.cli.saved_help import FILE, NORMAL
from suite.spec.foreign import read_text
from suite.spec.version import suite_version

_EXITS = {
    "0": "done; a gate is met",
    "1": "a run failed, and its record says why",
    "2": "bad usage or input",
    "3": "a gate is not met",
    "4": "a gate could not be decided",
    "130": "interrupted; what was measured is kept",
}
_FILES = {
    "runs/": "the results folder, with a bundle for each run, unless --runs names another",
    "suite.toml": "defaults of options by command, in the working folder",
    "~/.config/suite/site.yaml": "what suite submit need not be told on this cluster",
    "~/.cache/suite/": "what is derived from bundles, and the key by which one's own manifests are known",
}
_VARIABLES = {
    "SUITE_PYTHON": "the Python interpreter that has the training stack",
    "SUITE_DEVICE, SUITE_RANKS": "what --device and --ranks of suite run are where they are not given",
    "SUITE_CACHE": "another folder for what can be derived again, or off",
    "XDG_CACHE_HOME, XDG_CONFIG_HOME": "where the folders above lie instead of ~/.cache and ~/.config",
    "CUDA_VISIBLE_DEVICES": "which GPUs a run on this machine may use",
    "DOCKER_HOST, KUBECONFIG": "as Docker and kubectl have them",
    "COLUMNS, NO_COLOR": "width of the output; no colour",
}


def man_page(pages: Mapping[str, str]) -> str:
    """The page as roff with the macros of man(7). ``pages``: saved help of a terminal of 80 columns, by command."""
    return "".join(f"{line}\n" for line in _lines(pages))


def _lines(pages: Mapping[str, str]) -> Iterator[str]:
    yield f'.TH SUITE 1 "" "suite {suite_version()}" "User Commands"'
    yield from (".SH NAME", rf"suite \- {_text(ABOUT.rstrip('.'))}")
    yield from (".SH SYNOPSIS", r".B suite", r"[\fB\-V\fR] \fICOMMAND\fR [\fIOPTION\fR]...")
    yield from (".SH COMMANDS", _text("suite COMMAND --help shows a command's usual options, --help-all every one."))
    for heading, commands in HEADINGS.items():
        yield f".SS {heading}"
        for name, entry in commands.items():
            yield from (".TP", rf"\fBsuite {name}\fR", _text(f"{entry.summary}."))
            for words in [name] if not isinstance(entry, Group) else [f"{name} {each}" for each in entry.commands]:
                yield from (".RS", *_help(pages[words]), ".RE")
    for title, entries in (("EXIT STATUS", _EXITS), ("FILES", _FILES), ("ENVIRONMENT", _VARIABLES)):
        yield f".SH {title}"
        for name, text in entries.items():
            yield from (".TP", rf"\fB{_text(name)}\fR", _text(f"{text}."))
    yield from (".SH SEE ALSO", r".BR torchrun (1), \fBsbatch\fR(1), \fBkubectl\fR(1), \fBdocker\fR(1)")


def _help(page: str) -> Iterator[str]:
    """How a command is called, and what its help says before the options, in the lines that it has there."""
    usage, *blocks = page.removeprefix("Usage: ").split("\n\n")
    yield from (".nf", *map(_text, usage.splitlines()), ".fi")
    for block in blocks:
        if re.match(r"\w[^\n]*:\n", block):  # the heading of the first options
            return
        yield from (".PP", ".nf", *(_text(line.strip()) for line in block.splitlines()), ".fi")


def _text(text: str) -> str:
    """What roff shows as it is: hyphens that can be copied, and no line that begins with a request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    saved = json.loads(read_text(FILE, str(FILE)))
    Path(sys.argv[1]).write_text(man_page(saved["pages"][str(NORMAL)]), encoding="utf-8")
