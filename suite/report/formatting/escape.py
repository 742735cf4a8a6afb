"""Marked text, the running text of all views: Markdown of two marks, escaped markup and code spans, in which strings
that others chose (names, evidence, versions, paths) are harmless; and such strings in pictures."""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

#: Plain words and versions. Everything that Markdown, HTML or an auto-linker could read as markup is left out:
#: ``| < > & [ ] ! * _ ` ~ # @ : \\ $`` and ``www.``.
_PLAIN = re.compile(r"(?!.*www\.)[A-Za-z0-9(](?:[A-Za-z0-9 .,+/=%()-]| @ )*", re.IGNORECASE)
_LINKS_ITSELF = re.compile(r"://|www\.|@\S", re.IGNORECASE)
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~!&$]")
_BACKTICKS = re.compile(r"`+")
#: What is marked in marked text: a character behind a backslash, and a code span.
_MARKED = re.compile(r"\\([\\`*_{}\[\]<>#|~!&$])|(`+)(.+?)(?<!`)\2(?!`)")
#: Separators and anything that moves, hides or reverses text: controls, formats, surrogates, private and unassigned.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Span(NamedTuple):
    """A piece of running text; ``code``: as a listing shows it."""

    text: str
    code: bool = False


def spans(text: str) -> tuple[Span, ...]:
    """Marked text taken apart, for views other than Markdown."""
    found: list[Span] = []
    end = 0
    for mark in _MARKED.finditer(text):
        escaped, _, held = mark.groups()
        found.append(Span(text[end : mark.start()] + (escaped or "")))
        if held is not None:
            # without the escape of tables and the blanks that part it from its fence
            held = held.replace("\\|", "|")
            is_padded = held.startswith(" ") and held.endswith(" ") and held.strip()
            found.append(Span(held[1:-1] if is_padded else held, code=True))
        end = mark.end()
    return tuple(span for span in (*found, Span(text[end:])) if span.text)


def plain(text: str) -> str:
    return "".join(span.text for span in spans(text))


def visible(text: str, limit: int = 160) -> str:
    """One line of at most ``limit`` characters without controls, bidirectional overrides or lone surrogates."""
    flat = " ".join(text[: 8 * limit].split())
    if not flat.isascii() or not flat.isprintable():
        flat = "".join(_REPLACEMENT if unicodedata.category(char) in _INVISIBLE else char for char in flat)
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def inline(text: str, limit: int = 160) -> str:
    """For running text and table cells: plain where that is harmless, else a code span, where nothing is markup."""
    shown = visible(text, limit)
    return shown if _PLAIN.fullmatch(shown) else code(shown, limit)


def code(text: str, limit: int = 160) -> str:
    """A code span that holds ``text`` whole: fenced by more backticks than it has, its pipes kept from the table."""
    shown = visible(text, limit) or "(empty)"
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    span = f"{fence}{pad}{shown}{pad}{fence}"
    # A backslash right before a pipe would take its escape away, and with it the cell.
    return span.replace("\\|", "\\ |").replace("|", "\\|")


def prose(text: str, limit: int = 400) -> str:
    """A sentence that reads as one: its markup escaped, or a code span where an auto-linker would find something."""
    shown = visible(text, limit)
    return code(shown, limit) if _LINKS_ITSELF.search(shown) else _MARKUP.sub(r"\\\g<0>", shown)


def fenced(lines: Iterable[str], language: str = "") -> str:
    """A fenced block of the lines as they are; the fence is longer than any run of backticks in them."""
    body = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(body)), default=0))
    return f"{fence}{language}\n{body}\n{fence}"


def drawable(text: str, limit: int = 32) -> str:
    """For pictures: printable ASCII, which the bundled font has, and no dollar sign, which would start a formula."""
    shown = visible(text, limit).replace("…", "...")
    return "".join(char if " " <= char <= "~" and char != "$" else "?" for char in shown)
