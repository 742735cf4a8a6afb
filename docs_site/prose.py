"""Words and sentences of Markdown pages, and which of them a person wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_SENTENCE_WORDS = 35
#: below docs/, and written by commands of the suite or copied from their sources
GENERATED = re.compile(
    r"planner_scores\.md|self-benchmarks\.md|published/.*|results/(?!(?:README|checks|tested)\.md).*"
)
#: what commands write into pages of a person, or what a test holds to the code, between two comments
_WRITTEN = re.compile(
    r"<!-- (?:excerpt:begin|errors: made by|written by|held to the code|runs:begin).*?"
    r"<!-- (?:excerpt:end|end of|runs:end).*?-->",
    re.DOTALL,
)
_FENCE = re.compile(r"^( *)```.*?^\1```\s*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
#: a blank line, a list item, a heading, a row of a table
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=#)|\n(?=\|)|(?<=\|)\n")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+")
_WORDS = re.compile(r"## Plain English\n.*?(?=\n## )", re.DOTALL)


def of_a_person(markdown: str) -> str:
    """A page without what commands wrote into it."""
    return _WRITTEN.sub("", markdown)


def prose(markdown: str) -> str:
    """A page without code and without the list of words; a word in code or a link is a word."""
    text = _FENCE.sub("\n", _WRITTEN.sub("\n", _WORDS.sub("", markdown)))
    return _LINK.sub(r"\1", _CODE.sub("code", text))


def sentences(markdown: str) -> Iterator[str]:
    """Of paragraphs, list items and headings; a cell of a table holds phrases between semicolons too."""
    for block in _BLOCK.split(prose(markdown)):
        line = block.strip()
        parts = re.split(r"\||;", line) if line.startswith("|") else [line]
        for part in parts:
            yield from (" ".join(sentence.split()) for sentence in _END.split(part) if re.search(r"\w", sentence))


def long_sentences(markdown: str) -> list[str]:
    """Those of more than LONGEST_SENTENCE_WORDS words."""
    return [each for each in sentences(markdown) if len(re.findall(r"\S*\w\S*", each)) > LONGEST_SENTENCE_WORDS]


def avoided_words(development: str) -> dict[str, str]:
    """Words by what to write instead, as docs/development.md lists them."""
    (section,) = _WORDS.findall(development)
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)[1:]
    return {word: better for words, better in rows for word in words.split(", ")}
