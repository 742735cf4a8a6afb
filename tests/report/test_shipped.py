"""Reports that are shipped are what today's code writes of the bundles beside them, by the command beside them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.command import suite

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "results"
#: Of the table in README.md: the name of a folder, and what writes its report again inside of it.
COMMANDS = dict(
    re.findall(r"(?m)^\| \[(.+)\]\(\1/report\.md\) .* `suite (report .+)` \|$", (RESULTS / "README.md").read_text())
)


def contents(folder: Path) -> dict[str, bytes]:
    files = [folder / "report.md", *folder.glob("report-assets/*")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_every_shipped_report_lies_beside_its_bundles_and_has_its_command() -> None:
    assert {path.parent for path in DOCS.rglob("report.md")} == {RESULTS / name for name in COMMANDS}
    for name in COMMANDS:
        assert list((RESULTS / name / "runs").glob("*/manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_shipped_report_and_its_pictures_are_written_again_byte_for_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of what reports say writes these again too, with the commands of docs/results/README.md."""
    monkeypatch.setenv("SUITE_CACHE", "off")
    monkeypatch.chdir(RESULTS / name)
    words = [str(tmp_path / word) if word == "report.md" else word for word in shlex.split(COMMANDS[name])]
    done = suite(*words)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "report.md").read_text() == Path("report.md").read_text()
    assert contents(tmp_path) == contents(Path())
