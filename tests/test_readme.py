"""What README shows is what the published report says."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["cpu", "trainers-grpo", "trainers-ppo"])
def test_the_excerpt_is_of_the_published_report(name: str) -> None:
    readme = (ROOT / "README.md").read_text()
    excerpt = readme.split(f"<!-- excerpt:begin {name} -->")[1].split("<!-- excerpt:end -->")[0]
    report = (ROOT / "docs/results" / name / "report.md").read_text().splitlines()
    shown = [line for line in excerpt.splitlines() if line.startswith(("- ", "| "))]
    assert len(shown) > 8
    assert [line for line in shown if line not in report] == []


def test_every_link_of_the_readme_leads_somewhere() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = [part.split(")")[0] for part in readme.split("](")[1:]]
    assert targets
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [file for file in files if not (ROOT / file).exists()] == []
