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
