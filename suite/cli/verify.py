"""`suite verify`: derive records again, and say whether they and all else in the bundles fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.exits import BAD_USAGE, DONE, GATE_NOT_MET, command
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.bundle.store import Bundle
    from suite.bundle.verify import Verification

#: As many as somebody reads: bundles of a status, lines of each, and bundles of which every one is told.
_BUNDLES, _LINES, _ALL = 5, 4, 5


@command
def verify(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="bundles, or folders with bundles in them")],
    digest: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="exit 3 unless this is the digest of the bundle, or of all bundles together"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome of every bundle as JSON")] = False,
) -> int:
    """Derive each record again from the raw events of its bundle, and show what differs or does not fit together.

    Exit 3 when a record differs or a bundle is inconsistent, 2 when one is damaged.
    """
    from suite.bundle.evidence import checked_digest
    from suite.bundle.store import find_bundles
    from suite.bundle.verify import verify_all
    from suite.cli.options.reading import print_json
    from suite.spec.base import UsageError, printable

    wanted = None if digest is None else checked_digest(digest)
    found = find_bundles(bundles)
    if not found:
        raise UsageError(f"no bundle in {', '.join(str(path) for path in bundles)}")
    checked = verify_all(found, frozenset(bundles))
    if as_json:
        print_json([{"bundle": str(bundle.path), **result.model_dump(mode="json")} for bundle, result in checked])
    else:
        for line in (*_details(checked), _summary([result for _, result in checked])):
            say(printable(line) if not line.startswith(" ") else f"    {printable(line)}")
    whole = _whole([result for _, result in checked])
    say(_digest_line(whole, wanted), err=as_json)
    statuses = {result.status for _, result in checked}
    if "damaged" in statuses:
        return BAD_USAGE
    return DONE if statuses == {"equal"} and wanted in (None, whole) else GATE_NOT_MET


def _details(checked: Sequence[tuple[Bundle, Verification]]) -> Iterator[str]:
    """Of each status some bundles with what is wrong with them; every bundle where there are few."""
    by_status: dict[str, list[tuple[Bundle, Verification]]] = {}
    for pair in checked:
        by_status.setdefault(pair[1].status, []).append(pair)
    for status, pairs in by_status.items():
        if status == "equal" and len(checked) > _ALL:
            continue
        for bundle, result in pairs[:_BUNDLES]:
            yield f"{bundle.path}: {status}"
            lines = [*(finding.line() for finding in result.findings), *result.differences]
            yield from (f" {line}" for line in lines[:_LINES])
            if len(lines) > _LINES:
                yield f" and {len(lines) - _LINES} more (--json has them)"
        if len(pairs) > _BUNDLES:
            yield f"and {len(pairs) - _BUNDLES} more bundles: {status} (--json has them)"


def _summary(results: Sequence[Verification]) -> str:
    """How many bundles of each status, and how often each finding."""
    statuses = Counter(result.status for result in results).most_common()
    names = Counter(finding.name for result in results for finding in result.findings).most_common()
    text = f"{len(results)} bundle{'s' * (len(results) != 1)}: {_counts(statuses)}"
    return f"{text}; findings: {_counts(names)}" if names else text


def _counts(counted: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted)


def _whole(results: Sequence[Verification]) -> str | None:
    """The digest of all bundles together; null where one has none."""
    from suite.bundle.evidence import digest_of_all

    digests = [result.digest for result in results if result.digest is not None]
    return digest_of_all(digests) if len(digests) == len(results) else None


def _digest_line(whole: str | None, wanted: str | None) -> str:
    if whole is None:
        return "digest: none, because a bundle is being run or holds what is no plain file"
    if wanted not in (None, whole):
        return f"digest: {whole}, not {wanted}: other evidence, or more or less of it"
    return f"digest: {whole}" + (", as expected" if wanted else "")
