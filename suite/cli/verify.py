"""`suite verify`: derive records again, and say whether they and all else in the bundles fit together."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from suite.bundle.archive.opening import Opened, archive_facts, archive_lines, opened
from suite.bundle.archive.signature import Signature, check
from suite.bundle.evidence import checked_digest, digest_of_all
from suite.bundle.imported.record import MARK
from suite.bundle.imported.store import ImportFolder, find_all, verify_import
from suite.bundle.store import Bundle
from suite.bundle.verify import Verification, verify_all
from suite.cli.archives import AllowedSigners, indented
from suite.cli.command import argument, command, option
from suite.cli.output import BAD_USAGE, DONE, GATE_NOT_MET, answer, is_json, warn
from suite.spec.terminal import UsageError, say
from suite.tune.check import StudyFile, verify_studies

Run = Bundle | ImportFolder | StudyFile
Checked = tuple[Run, Verification]

#: As many as somebody reads: bundles of a status, lines of each, and bundles of which every one is told.
_BUNDLES, _LINES, _ALL = 5, 4, 5


_WHO_WROTE = (
    "equal: the events give these records. No check can tell whether somebody wrote all of them anew; a digest that "
    "was kept elsewhere (--digest) or a signed archive can"
)


@command("print the outcome of every bundle as JSON")
def verify(
    bundles: list[Path] = argument("bundles, folders with bundles in them, or files of suite pack", metavar="BUNDLE"),
    digest: str | None = option(
        "exit 3 unless this is the digest of the bundle, or of all bundles together", metavar="HEX"
    ),
    allowed_signers: AllowedSigners = None,
) -> int:
    """Derive each record again from the raw events of its bundle, and show what differs or does not fit together.

    Exit 3 when a record differs, a bundle is inconsistent or an archive is not signed as it should be, 2 when a bundle
    or an archive is damaged.
    """
    wanted = None if digest is None else checked_digest(digest)
    with opened(bundles) as places:
        if allowed_signers is not None and not places.archives:
            raise UsageError("--allowed-signers is for files of suite pack; a folder has no signature")
        archives = places.archives
        signatures = {each.name: check(each.index_bytes, each.signature, allowed_signers) for each in archives}
        found, imports = find_all(places.folders)
        if not found and not imports:
            raise UsageError(f"no bundle in {', '.join(str(path) for path in bundles)}")
        checked: list[Checked] = [*verify_all(found, frozenset(places.folders))]
        checked += [(each, verify_import(each)) for each in imports]
        digests = [result.digest for _, result in checked if result.digest is not None]
        # null where one has none
        whole = digest_of_all(digests) if len(digests) == len(checked) else None
        studies = verify_studies(places.folders)
        both = [*checked, *studies]
        told: list[str] = []
        for archive in archives:
            told += archive_lines(archive, signatures[archive.name])
        told += [*_details(both), _summary(checked, "bundle", "bundles")]
        told += [_summary(studies, "study", "studies")] if studies else []
        facts = [_facts(bundle, result, places, signatures) for bundle, result in both] if is_json() else ()
        answer(facts, (indented(places.shown(line)) for line in told))
    statuses = {result.status for _, result in both}
    if not is_json() and "equal" in statuses and wanted is None and not signatures:
        warn("", _WHO_WROTE)
    say(_digest_line(whole, wanted), err=is_json())
    if "damaged" in statuses:
        return BAD_USAGE
    outcomes = {each.outcome for each in signatures.values()}
    is_signed = outcomes <= {"signed"} if allowed_signers is not None else "bad signature" not in outcomes
    return DONE if statuses == {"equal"} and wanted in (None, whole) and is_signed else GATE_NOT_MET


def _facts(bundle: Run, result: Verification, places: Opened, signatures: dict[str, Signature]) -> dict[str, Any]:
    """Of a bundle of an archive with what is known of that."""
    facts = {"bundle": places.shown(str(bundle.path)), **result.model_dump(mode="json")}
    if isinstance(bundle, ImportFolder):
        facts["mark"] = MARK
    archive = places.archive_of(bundle.path)
    if archive is None:
        return facts
    for finding in facts["findings"]:
        finding["text"] = places.shown(finding["text"])
    about = archive_facts(archive, signatures[archive.name])
    own = next((run for run in archive.index.runs if archive.runs / run.path == bundle.path), None)
    return {**facts, "digest_before": own.digest_before if own else None, "archive": about}


def _details(checked: Sequence[Checked]) -> Iterator[str]:
    """Of each status some bundles with what is wrong with them; every bundle where there are few."""
    by_status: dict[str, list[Checked]] = {}
    for pair in checked:
        by_status.setdefault(pair[1].status, []).append(pair)
    if len(checked) > _ALL:
        by_status.pop("equal", None)
    for status, pairs in by_status.items():
        for bundle, result in pairs[:_BUNDLES]:
            mark = f" ({MARK})" if isinstance(bundle, ImportFolder) else ""
            yield f"{bundle.path}: {status}{mark}"
            lines = [*(finding.line() for finding in result.findings), *result.differences]
            yield from (f" {line}" for line in lines[:_LINES])
            if len(lines) > _LINES:
                yield f" and {len(lines) - _LINES} more (--json has them)"
        if len(pairs) > _BUNDLES:
            yield f"and {len(pairs) - _BUNDLES} more bundles: {status} (--json has them)"


def _summary(checked: Sequence[Checked], one: str, several: str) -> str:
    """How many bundles, or studies, of each status, and how often each finding."""
    statuses = Counter(result.status for _, result in checked).most_common()
    names = Counter(finding.name for _, result in checked for finding in result.findings).most_common()
    counts = [", ".join(f"{count} {name}" for name, count in each) for each in (statuses, names)]
    text = f"{len(checked)} {one if len(checked) == 1 else several}: {counts[0]}"
    return f"{text}; findings: {counts[1]}" if names else text


def _digest_line(whole: str | None, wanted: str | None) -> str:
    if whole is None:
        return "digest: none, because a bundle is being run, is too large or holds what is no plain file"
    if wanted not in (None, whole):
        return f"digest: {whole}, not {wanted}: other evidence, or more or less of it"
    return f"digest: {whole}" + (", as expected" if wanted else "")
