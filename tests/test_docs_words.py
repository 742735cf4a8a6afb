"""README and the pages that a person wrote: plain words, short sentences, and no more than is needed."""

import re
from pathlib import Path

import pytest

from docs_site.prose import GENERATED, avoided_words, long_sentences, of_a_person, prose, sentences
from tests.tools.tasks import MOST_WORDS, TASKS, Task

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WRITTEN = sorted(page for page in DOCS.rglob("*.md") if not GENERATED.fullmatch(page.relative_to(DOCS).as_posix()))
OF_THE_ROOT = [ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md")]
TEXTS = {page: page.read_text(encoding="utf-8") for page in (*OF_THE_ROOT, *WRITTEN)}
MOST_README_WORDS = 900
#: without results, which come with what was measured
MOST_DOCS_BYTES = 250_000


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_plain_words_and_short_sentences(page: Path) -> None:
    words = " ".join(prose(TEXTS[page]).split())
    avoided = avoided_words(TEXTS[DOCS / "development.md"])
    found = {word: better for word, better in avoided.items() if re.search(rf"\b{word}\b", words, re.IGNORECASE)}
    assert found == {}, "docs/development.md, Plain English, says what to write instead"
    assert long_sentences(TEXTS[page]) == []


def test_the_readme_takes_five_minutes_and_pages_no_more_than_their_budget() -> None:
    assert len(TEXTS[ROOT / "README.md"].split()) <= MOST_README_WORDS
    sizes = {page: len(of_a_person(TEXTS[page]).encode()) for page in WRITTEN if page.parent.name != "results"}
    assert sum(sizes.values()) <= MOST_DOCS_BYTES, sorted(sizes.items(), key=lambda each: -each[1])[:10]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_of_a_newcomer_takes_1200_words(task: Task) -> None:
    """Its commands run for real in `make tasks`."""
    assert task.words() <= MOST_WORDS and len(task.commands()) > 3


def test_sentences_are_found_in_paragraphs_lists_and_cells_and_not_in_code() -> None:
    markdown = (
        "# A b\n\nOne two. Three\nfour `a b`.\n\n- five\n- six\n\n| h |\n|---|\n| seven; eight. |\n```\nno\n```\n"
    )
    found = ["# A b", "One two.", "Three four code.", "- five", "- six", "h", "seven", "eight."]
    assert list(sentences(markdown)) == found
