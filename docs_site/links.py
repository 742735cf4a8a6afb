"""Links and anchors of Markdown pages, as GitHub reads them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

#: Not on the site though it is below docs/.
LEFT_OUT = re.compile(r"results/[^/]+/runs(/|$)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_CODE = re.compile(r"(`+)(?:(?!\1).)*\1", re.DOTALL)


def github_anchor(heading: str) -> str:
    """Lower case without punctuation, a hyphen for each space."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(markdown: str) -> set[str]:
    """Of all headings; a heading that comes again gets a number."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for line, is_code in _lines(markdown):
        match = None if is_code else _HEADING.match(line)
        if match:
            words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "").replace("*", "")
            anchor = github_anchor(words)
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', markdown))


def links(markdown: str) -> Iterator[str]:
    """Targets of links and pictures outside of code."""
    for line, is_code in _lines(markdown):
        if not is_code:
            for match in _LINK.finditer(_CODE.sub("", line)):
                yield match[3]


def within_the_site(markdown: str, page: Path, docs: Path) -> str:
    """With links that leave docs/, or lead to data there, turned into their words."""

    def turned(match: re.Match[str]) -> str:
        target = match[3].partition("#")[0]
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        below = os.path.normpath(page.parent / target)
        is_out = below.startswith("..") or LEFT_OUT.match(Path(below).as_posix()) or (docs / below).is_dir()
        return match[2] if is_out else match[0]

    return "\n".join(line if is_code else _LINK.sub(turned, line) for line, is_code in _lines(markdown))


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced block."""
    fence = ""
    for line in markdown.split("\n"):
        match = _FENCE.match(line)
        if fence:
            yield line, True
            if match and match[1].startswith(fence) and line.strip() == match[1]:
                fence = ""
        else:
            fence = match[1] if match else ""
            yield line, bool(fence)
