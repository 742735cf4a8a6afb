"""`suite runs`: list the runs of results folders, tag them, remove them."""

import sys
import time
from pathlib import Path

from suite.bundle.imported.store import is_run
from suite.bundle.removing import removable
from suite.bundle.removing import remove as remove_bundle
from suite.bundle.tags import change_tags, check_tags, tags_of
from suite.cli.command import argument, command, flag, option, runs_of_any_kind
from suite.cli.output import agreed, answer, is_json, print_json, without_collector
from suite.report.formatting.numbers import counted
from suite.report.listing import STATUSES, Wanted, ordered, read_listing
from suite.spec.names import SAFE_ID, nearest
from suite.spec.terminal import UsageError, note, printable, say
from suite.spec.typed import moment_of

#: Runs that a terminal shows unless told otherwise.
_ON_A_TERMINAL = 40


@command("print as JSON")
def list_runs(
    folders: list[Path] | None = argument(
        "results folders, bundles, or files of suite pack [default: runs]", None, metavar="FOLDER"
    ),
    size: list[str] | None = option("only of this model size; can be repeated"),
    backend: list[str] | None = option("only of this backend; can be repeated"),
    device: list[str] | None = option("cpu, cuda, or a part of the device's name; can be repeated", metavar="DEVICE"),
    algorithm: list[str] | None = option("only of this algorithm; can be repeated", metavar="NAME"),
    status: list[str] | None = option(
        "ok, failed, interrupted, running, damaged or imported; can be repeated", metavar="STATUS"
    ),
    valid: bool | None = option("only runs whose figures stand, or only the others", None, "--valid/--no-valid"),
    tag: list[str] | None = option("only with this tag; repeated: with all of them"),
    since: str | None = option("started from then on: 2026-11-01, 2026-11-01T18:00, or 24h ago as 24h", metavar="WHEN"),
    until: str | None = option("started before then", metavar="WHEN"),
    sort: str = option(
        "started, ended, run, path, state, size, backend, device, ranks or samples-per-second; times and "
        "figures begin with the most",
        "started",
        metavar="FACT",
    ),
    reverse: bool = flag("begin at the other end"),
    limit: int | None = option(f"show so many, 0: all [default: {_ON_A_TERMINAL} on a terminal, else all]", min=0),
) -> None:
    """List runs with their state: also those that failed, are being run, or cannot be read.

    Times are UTC. What is shown is derived from the bundles, once, and kept; `suite verify` reads them anew.
    """
    for word in status or []:
        if word not in STATUSES:
            raise UsageError(f"--status is one of {', '.join(STATUSES)}, not {word!r}{nearest(word, STATUSES)}")
    now = time.time()
    wanted = Wanted(
        size=size or (),
        backend=backend or (),
        device=device or (),
        algorithm=algorithm or (),
        status=status or (),
        tags=tag or (),
        since=None if since is None else moment_of("--since", since, now),
        until=None if until is None else moment_of("--until", until, now),
        valid=valid,
    )
    ordered([], sort)  # a name that is none is told before anything is read
    with without_collector():
        found, problems = read_listing(folders or [Path("runs")], _tell if sys.stderr.isatty() else None)
        fitting = ordered([one for one in found if wanted.fits(one)], sort, reverse)
        most = limit if limit is not None else _ON_A_TERMINAL if sys.stdout.isatty() and not is_json() else 0
        shown = fitting[:most] if most else fitting
        if is_json():
            facts = {"fitting": len(fitting), "found": len(found), "problems": problems}
            print_json({"runs": shown, **facts})
            return
        if shown:
            from suite.report.text.runs import print_runs

            print_runs(shown)
    more = f", {len(shown):,} of them shown (--limit 0 shows all)" if len(shown) < len(fitting) else ""
    note(f"{len(fitting):,} of {len(found):,} runs{more}" if fitting or found else "no runs")
    for line in problems:
        note(printable(line))


@command("print as JSON")
def tag(
    run: list[str] = argument("run ids, or bundles' folders", metavar="RUN", autocompletion=runs_of_any_kind),
    add: list[str] | None = option("give it; can be repeated", metavar="TAG"),
    remove: list[str] | None = option("take it; can be repeated", metavar="TAG"),
    runs: Path = option("results folder in which runs are looked for by their ids", Path("runs")),
) -> None:
    """Give runs tags, take tags from them, or show the tags they have.

    Tags are kept beside the bundles, in .tags, so that neither a bundle nor its digest changes.
    """
    adding, removing = check_tags(add or ()), check_tags(remove or ())
    for both in sorted(set(adding) & set(removing)):
        raise UsageError(f"{both} is to be given and taken at once")
    bundles = [_bundle(runs, each) for each in run]
    change = bool(adding or removing)
    found = {path.name: change_tags(path, adding, removing) if change else tags_of(path) for path in bundles}
    facts = [{"run": name, "tags": list(tags)} for name, tags in found.items()]
    answer(facts, [printable(f"{name}: {' '.join(tags) or 'no tags'}") for name, tags in found.items()])


@command("print as JSON; removes only with --yes")
def remove(
    run: list[str] = argument("run ids, or bundles' folders", metavar="RUN", autocompletion=runs_of_any_kind),
    runs: Path = option("results folder in which runs are looked for by their ids", Path("runs")),
    yes: bool = flag("do not ask", "--yes", "-y"),
) -> None:
    """Remove runs for good, with their tags. A run that is going on, or that was submitted to a cluster, is refused.

    Nothing is removed unless all of the runs can be. A report tells of repeats that are not there.
    """
    found = [removable(path) for path in dict.fromkeys(_bundle(runs, each) for each in run)]
    total = sum(one.bytes for one in found)
    for one in () if is_json() else found:
        say(printable(f"{one.bundle.path}: {counted(one.files, 'file')}, {one.bytes / 2**20:.1f} MiB"))
    removed = agreed(f"remove {counted(len(found), 'run')}, {total / 2**20:.1f} MiB, for good?", yes)
    for one in found if removed else ():
        remove_bundle(one)
    facts = [
        {"path": str(one.bundle.path), "run": one.bundle.id, "files": one.files, "bytes": one.bytes} for one in found
    ]
    answer({"runs": facts, "bytes": total, "removed": removed}, [f"removed {counted(len(found), 'run')}"])


def _tell(done: int, total: int) -> None:
    note(f"{done:,} of {total:,} runs read; what they give is kept, so that the next list is quick")


def _bundle(root: Path, named: str) -> Path:
    """The bundle that somebody named: by its folder, or by the id of a run in the results folder."""
    for path in (root / named if SAFE_ID.fullmatch(named) else None, Path(named)):
        if path is not None and path.is_dir() and is_run(path):
            return path
    raise UsageError(f"no run {printable(named)} in {root}, and no bundle of that path")
