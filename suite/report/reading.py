"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.evidence import digest_of, digest_of_all
from suite.bundle.store import Bundle, DamagedBundle, find_bundles
from suite.bundle.verify import examined
from suite.report.facts.evidence import ReadFrom
from suite.report.facts.model import Entry
from suite.report.formatting.escape import visible
from suite.report.trust import Checked, few, trusted
from suite.spec.base import UsageError

#: Records are derived from their events where those of all bundles are at most this long together: a second or two.
DERIVED_BYTES = 16 << 20


@dataclass(frozen=True)
class Found:
    """The runs of some folders.

    ``damaged``: one line for each bundle that was left out for it. ``caveats``: what else was left out or does not fit
    together, and records that are not what their events give.
    """

    entries: list[Entry]
    damaged: list[str]
    caveats: list[str]
    read_from: ReadFrom

    def warnings(self) -> list[str]:
        """What a reader needs of it, a line each that a terminal can show."""
        damaged = few([f"left out, damaged: {line}" for line in self.damaged], "damaged")
        return [visible(line, 400) for line in (*damaged, *self.caveats)]


def read_entries(paths: Sequence[Path]) -> Found:
    """Every readable bundle, once, with its record; runs that are under way or inconsistent are left out.

    Records are derived from their events, and are taken as they are stored only where there are too many events. Raises
    UsageError when nothing can be reported.
    """
    bundles = find_bundles(paths)
    size = sum(bundle.events_bytes() for bundle in bundles)
    checked: list[Checked] = []
    damaged: list[str] = []
    caveats: list[str] = []
    digests: list[str | None] = []
    for bundle in bundles:
        try:
            if bundle.running():
                raise StillRunning
            digests.append(_digest(bundle))
            one = _checked(bundle, digests[-1]) if size <= DERIVED_BYTES else _stored(bundle, digests[-1])
            _require_same_run(one.entry)
        except StillRunning:
            caveats.append(f"{bundle.path}: left out, because it is still being run")
        except DamagedBundle as error:
            damaged.append(f"{bundle.path}: {error}")
        else:
            checked.append(one)
    entries, told = trusted(checked, bundles, paths)
    caveats += told
    known = [digest for digest in digests if digest is not None]
    whole = digest_of_all(known) if known and len(known) == len(digests) else None
    found = Found(entries, damaged, caveats, ReadFrom(tuple(path.as_posix() for path in paths), whole))
    if not entries:
        detail = f"; {found.warnings()[0]}" if found.warnings() else ""
        raise UsageError(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}")
    if size > DERIVED_BYTES:
        caveats.append(
            f"{len(entries)} records were taken as they are stored, because their events are {size >> 20} MiB; "
            "suite verify derives them again"
        )
    caveats += _versions(entries)
    return found


def _digest(bundle: Bundle) -> str | None:
    try:
        return digest_of(bundle)
    except DamagedBundle:
        return None


def _checked(bundle: Bundle, digest: str | None) -> Checked:
    """With the record that the events give. Raises DamagedBundle and StillRunning."""
    found = examined(bundle)
    difference = ""
    if found.differences:
        more = f" and {len(found.differences) - 1} more" if len(found.differences) > 1 else ""
        difference = f"{found.differences[0]}{more}"
    return Checked(Entry(found.manifest, found.record, bundle.path.as_posix(), digest), found.findings, difference)


def _stored(bundle: Bundle, digest: str | None) -> Checked:
    return Checked(Entry(bundle.manifest(), record_of(bundle), bundle.path.as_posix(), digest), ())


def _versions(entries: Sequence[Entry]) -> list[str]:
    """A caveat where runs are of more than one version of the suite, whose clocks and probes may not be alike."""
    stated = [(entry.record.environment.driver or {}).get("suite_version") for entry in entries]
    counts = sorted(Counter(version for version in stated if isinstance(version, str)).items())
    if len(counts) <= 1:
        return []
    return [f"runs of different versions of the suite: {', '.join(f'{runs} of {name}' for name, runs in counts)}"]


def _require_same_run(entry: Entry) -> None:
    """Raises DamagedBundle where a record that was taken as it is stored is not of the manifest's run."""
    run, manifest = entry.record.run, entry.manifest
    if (run.id, run.manifest_hash) != (manifest.run.id, manifest.hash):
        raise DamagedBundle(f"record.json is of run {ascii(run.id)[:80]}, not of {manifest.run.id}")
