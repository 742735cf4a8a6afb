"""README and the pages that a person wrote: plain words, short sentences, and no more than is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
#: below docs/, and written by commands of the suite or copied from their sources
GENERATED = re.compile(
    r"planner_scores\.md|self-benchmarks\.md|published/.*|results/(?!(?:README|checks|tested)\.md).*"
)
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if not GENERATED.fullmatch(page.relative_to(DOCS).as_posix())),
]
LONGEST_SENTENCE_WORDS = 35
MOST_README_WORDS = 900
MOST_DOCS_BYTES = 250_000
#: what commands write into pages of a person, between two comments
_WRITTEN = re.compile(
    r"<!-- (?:excerpt:begin|errors: made by|written by|held to the code|runs:begin).*?"
    r"<!-- (?:excerpt:end|end of|runs:end).*?-->",
    re.DOTALL,
)
_FENCE = re.compile(r"^( *)```.*?^\1```\s*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=#)|\n(?=\|)|(?<=\|)\n")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+")


def prose(markdown: str) -> str:
    """A page without code and without what commands wrote; a word in code or a link is a word."""
    text = _FENCE.sub("\n", _WRITTEN.sub("\n", markdown))
    return _LINK.sub(r"\1", _CODE.sub("code", text))


def sentences(markdown: str) -> Iterator[str]:
    """Of paragraphs, list items and headings; a cell of a table holds phrases between semicolons too."""
    for block in _BLOCK.split(prose(markdown)):
        line = block.strip()
        parts = re.split(r"\||;", line) if line.startswith("|") else [line]
        for part in parts:
            yield from (" ".join(sentence.split()) for sentence in _END.split(part) if sentence.strip())


def avoided() -> dict[str, str]:
    """Words by what to write instead, as docs/development.md lists them."""
    section = (DOCS / "development.md").read_text(encoding="utf-8").split("## Plain English")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)[1:]
    return {word: better for words, better in rows for word in words.split(", ")}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_plain_words_and_short_sentences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "development.md":
        text = re.sub(r"## Plain English\n.*?(?=\n## )", "", text, flags=re.DOTALL)
    words = " ".join(prose(text).split())
    found = {
        word: better for word, better in avoided().items() if re.search(rf"\b{re.escape(word)}\b", words, re.IGNORECASE)
    }
    assert found == {}, "docs/development.md, Plain English, says what to write instead"
    long = [each for each in sentences(text) if len(re.findall(r"\S*\w\S*", each)) > LONGEST_SENTENCE_WORDS]
    assert long == [], f"sentences of more than {LONGEST_SENTENCE_WORDS} words"


def test_a_newcomer_reads_the_readme_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_README_WORDS


def test_what_a_person_wrote_is_no_more_than_a_person_reads() -> None:
    """Results are no part of it: they come with what was measured."""
    pages = [page for page in PAGES if DOCS in page.parents and page.parent.name != "results"]
    written = {page: len(_WRITTEN.sub("", page.read_text(encoding="utf-8")).encode()) for page in pages}
    assert sum(written.values()) <= MOST_DOCS_BYTES, sorted(written.items(), key=lambda each: -each[1])[:10]


def test_sentences_are_found_in_paragraphs_lists_and_cells_and_not_in_code() -> None:
    markdown = (
        "# A b\n\nOne two. Three\nfour `a b`.\n\n- five\n- six\n\n| h |\n|---|\n| seven; eight. Nine |\n```\nno\n```\n"
    )
    found = [each for each in sentences(markdown) if re.search(r"\w", each)]
    assert found == ["# A b", "One two.", "Three four code.", "- five", "- six", "h", "seven", "eight.", "Nine"]
