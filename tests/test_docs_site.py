"""The documentation site: every page is in its navigation, every link and anchor resolves, and what is shown works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_site import reference
from docs_site.links import LEFT_OUT, anchors, github_anchor, links, within_the_site
from docs_site.reference import PAGES
from suite.spec.catalogue import presets, workloads
from tests.browser import Tab, looks_well
from tests.command import suite
from tests.scripted_suite import use_scripted_worker
from tests.test_docs_commands import words_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BELOW = [path for path in DOCS.rglob("*.md") if not LEFT_OUT.match(path.relative_to(DOCS).as_posix())]
#: Of pages below docs/, and of those of the root that link to them.
TEXTS = {path: path.read_text(encoding="utf-8") for path in (*BELOW, ROOT / "README.md", ROOT / "CHANGELOG.md")}


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"[\w/.-]+\.md$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in TEXTS if path.is_relative_to(DOCS)} | set(PAGES)
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("page", sorted(TEXTS), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_anchor_of_a_page_resolves(page: Path) -> None:
    broken = []
    for link in links(TEXTS[page]):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = Path(os.path.normpath(page.parent / target)) if target else page
        generated = path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix() in PAGES
        is_there = path.exists() or generated
        if anchor and is_there and path.suffix == ".md" and not generated:
            is_there = anchor in anchors(TEXTS.get(path) or path.read_text())
        if not is_there:
            broken.append(link)
    assert broken == []


def test_the_excerpt_in_the_readme_is_of_the_published_report() -> None:
    excerpt = TEXTS[ROOT / "README.md"].split("<!-- excerpt:begin cpu -->")[1].split("<!-- excerpt:end -->")[0]
    report = (ROOT / "docs/results/cpu/report.md").read_text().splitlines()
    shown = [line for line in excerpt.splitlines() if line.startswith(("- ", "| "))]
    assert len(shown) > 8
    assert [line for line in shown if line not in report] == []


def test_links_that_leave_the_site_become_words_and_others_stay() -> None:
    text = "[a](../suite/x.py) [b](evidence.md#digest) ![c](results/cpu/runs/x.svg) [d](https://example.org) [e](#here)"
    assert within_the_site(text, Path("index.md"), DOCS) == (
        "a [b](evidence.md#digest) c [d](https://example.org) [e](#here)"
    )
    fenced = "```\n[a](../x)\n```\n[a](../x)"
    assert within_the_site(fenced, Path("index.md"), DOCS) == "```\n[a](../x)\n```\na"


def test_anchors_are_those_of_github() -> None:
    assert github_anchor("What is always the same: the site file") == "what-is-always-the-same-the-site-file"
    assert anchors("# One `two`\n## One two\n```\n# no\n```\n") == {"one-two", "one-two-1"}


def test_the_reference_has_every_command_and_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--gate" in reference.help_of("compare")
    monkeypatch.setattr(reference, "help_of", lambda words: f"help of {words}")
    text = {name: make() for name, make in reference.PAGES.items()}
    for words in reference.command_words():
        assert f"## suite {words}\n\n```text\nhelp of {words}\n```" in text["reference/commands.md"]
    for field in ("throughput.samples_per_second.value", "memory.floor.bytes", "measure.seed", "rows[].gate.outcome"):
        assert f"| `{field}` |" in text["reference/fields.md"], field
    assert "| `samples_per_second` | number or null |" in text["reference/columns.md"]
    assert "### Engine.generate" in text["reference/interfaces.md"]
    for name in (*presets(), *(f"workload {name}" for name in workloads())):
        assert f"### {name}\n\n" in text["reference/presets.md"], name


def tutorial() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("suite ")]
    return [words_of(line) for line in lines]


@pytest.mark.slow
def test_the_commands_of_the_tutorial_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, with a worker that tells events without a stack in the place of the engines. What `suite
    doctor` says is its own tests' business."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    use_scripted_worker(monkeypatch.setattr)
    done: dict[str, str] = {}
    for words in tutorial():
        if words[0] not in ("--version", "doctor"):
            shown = suite(*words)
            assert shown.exit_code == 0, (words, shown.output[-2000:])
            done[words[0]] = shown.stdout
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 6
    assert "6 equal" in done["verify"]
    assert (tmp_path / "report.md").is_file() and (tmp_path / "history" / "index.html").is_file()
    assert set(done) == {"sizes", "run", "report", "verify", "plan", "site"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, which MkDocs makes without a warning."""
    pytest.importorskip("mkdocs", reason="pip install '.[docs]' has MkDocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere_and_numbered_steps_are_one_list(built: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(https?:)?//[^\"]*\"")
    for page in built.rglob("*.html"):
        found = [match[0] for match in loads.finditer(page.read_text()) if 'rel="canonical"' not in match[0]]
        assert found == [], page
    assert (built / "how-to" / "gpu-node.html").read_text().count("<ol>") == 1, "its ten steps are one list"


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("page", ["index", "how-to/gpu-node", "reference/commands", "results/cpu/report"])
def test_a_page_of_the_site_is_whole_and_has_no_violation(tab: Tab, built: Path, page: str, width: int) -> None:
    tab.look(width, 900, "light")
    tab.open(built / f"{page}.html", "!document.querySelector('pre > code:not([tabindex])')")
    for theme in ("light", "dark"):
        looks_well(tab, width, theme)
