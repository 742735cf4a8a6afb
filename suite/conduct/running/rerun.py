"""Running a manifest again: the same work and layout, in fresh processes, here; and what a stranger's asks for."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from suite.bundle.files import read_text
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle, find_bundles
from suite.bundle.verify import examined
from suite.conduct.planning.machine import floor_bytes
from suite.conduct.planning.plan import Plan
from suite.conduct.running.provenance import is_from_here
from suite.conduct.running.state import by_repeat, row_of, state_of
from suite.launch.cluster.submission import FOLDER, Submission, read_submission
from suite.report.formatting.numbers import counted, few, gib, span
from suite.spec.base import UsageError, printable
from suite.spec.manifest import Manifest, Stopping
from suite.spec.resolve import run_id
from suite.theory.parameters import parameter_count

#: how many runs a rerun makes where nobody says
FEWEST_RUNS, MOST_RUNS = 3, 10
#: id of the plan of a rerun: its number in the results folder, and how many runs it is to have
_SERIES = re.compile(r"rerun-([1-9]\d{0,8})-(?:of-[1-9]\d{0,8}|by-rule)")


def read_manifest(path: Path) -> Manifest:
    """From its file or its bundle. Raises UsageError when there is none and DamagedBundle for an unusable one."""
    if path.is_dir() and not (path / "manifest.json").exists():
        found = [bundle for bundle in find_bundles([path]) if (bundle.path / "manifest.json").exists()]
        if not found:
            raise UsageError(f"{path} holds no manifest.json and no bundle; name a bundle, or its manifest.json")
        named = ", ".join(few([str(bundle.path) for bundle in found], 3))
        raise UsageError(f"{path} is a results folder with {counted(len(found), 'bundle')}; name one: {named}")
    if path.is_dir():
        return examined(Bundle(path)).manifest
    try:
        manifest = parse_manifest(read_text(path, str(path)), str(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist; name a manifest.json or a bundle") from error
    if path.name == "manifest.json" and (path.parent / "events").is_dir():
        examined(Bundle(path.parent))
    return manifest


def started_with(manifest: Manifest, path: Path) -> tuple[Manifest, ...]:
    """The manifest, and those of the rows that it took turns with by iteration. Raises UsageError where their bundles
    are not beside its own: without its partners it is another measurement."""
    if manifest.measure.turns == "rounds":
        return (manifest,)
    bundle = Bundle(path if path.is_dir() else path.parent)
    turns = examined(bundle).record.turns if (bundle.path / "events").is_dir() else None
    others = [name for name in (turns.rows if turns else ()) if name != manifest.run.id]
    beside = [Bundle(bundle.path.resolve().parent / name) for name in others]
    if not beside or not all((each.path / "manifest.json").exists() for each in beside):
        named = f" ({', '.join(others)})" if others else ""
        raise UsageError(
            f"{manifest.run.id} took turns by iteration with other rows{named}, and alone it would be another "
            "measurement: name its bundle in the results folder that has theirs too"
        )
    return (manifest, *(each.manifest() for each in beside))


def repeats_of(manifest: Manifest, path: Path) -> tuple[list[Record], list[str]]:
    """Records of all runs beside the bundle at ``path`` (or its manifest.json) that its row was measured by, by their
    events, and a line for each that was left out or stores another. A rerun is another row than what it is set against.
    """
    bundle = Bundle(path if path.is_dir() else path.parent)
    if not (bundle.path / "events").is_dir():
        return [], []
    series = _series_of(manifest.run.plan)
    records, told = [], []
    for beside in map(Bundle, by_repeat(bundle.path.resolve().parent, row_of(manifest.run.id)).values()):
        try:
            if beside.running():
                continue
            other = beside.manifest()
            if other.hash != manifest.hash or _series_of(other.run.plan) != series:
                continue
            found = examined(beside)
        except DamagedBundle as error:
            told.append(f"{beside.path}: left out, damaged: {error}")
            continue
        wrong = next((finding for finding in found.findings if finding.leaves_out), None)
        if wrong is not None:
            told.append(f"{beside.path}: left out, {wrong.line()}")
            continue
        records.append(found.record)
        if found.differences:
            told.append(f"{beside.path}: record.json is not what its events give, which are compared (suite verify)")
    return records, told


def rerun_plan(
    manifest: Manifest,
    root: Path,
    runs: int,
    image: str | None = None,
    extend: bool = False,
    manner: Sequence[str] = (),
) -> Plan:
    """So many runs of the manifest under ``root``. Where fewer were done than the last plan's id says, that series is
    continued; else a new one begins, unless the last is to be extended to so many."""
    prefix, latest, begun, following = _last_rerun(manifest, root, image, manner)
    plans = {each.run.plan for each in begun.values()}
    done = sum(state_of(root, each) in ("done", "failed before") for each in begun.values())
    if not begun or not (extend or (done < runs and plans == {f"rerun-{latest}-of-{runs}"})):
        latest, begun = latest + 1, {}
    plan, left = f"rerun-{latest}-of-{runs}", range(following, following + runs - len(begun))
    new = [_repeat(manifest, prefix, repeat, plan) for repeat in left]
    return Plan(id=plan, manifests=(*begun.values(), *new))


def first_by_rule(
    manifest: Manifest, root: Path, rule: Stopping, unfinished: Callable[[Manifest], bool], image: str | None = None
) -> Manifest:
    """The first run of a series that gets runs by ``rule``: of the last one where that is ``unfinished``, else new."""
    prefix, latest, begun, following = _last_rerun(manifest, root, image)
    first = next(iter(begun.values()), None)
    if first is not None and first.run.stopping == rule and unfinished(first):
        return first
    return _repeat(manifest, prefix, following, f"rerun-{latest + 1}-by-rule", rule)


def _repeat(manifest: Manifest, prefix: str, repeat: int, plan: str, rule: Stopping | None = None) -> Manifest:
    changes = {"id": f"{prefix}{repeat}", "plan": plan, "repeat": repeat, "stopping": rule}
    return manifest.model_copy(update={"run": manifest.run.model_copy(update=changes)})


def _last_rerun(
    manifest: Manifest, root: Path, image: str | None, manner: Sequence[str] = ()
) -> tuple[str, int, dict[int, Manifest], int]:
    """What the ids of the row's runs begin with on the host or in that image, the number of its last rerun under
    ``root`` (0: none), that one's runs by their repeat, and the first repeat that is free."""
    name, ranks = manifest.size.name, manifest.layout.ranks
    row = row_of(run_id(manifest.backend.label, name, ranks, manifest.hash, 1, image, manner))
    present: dict[int, Bundle | Submission] = {}
    for repeat, path in by_repeat(root / FOLDER, row, ".json").items():
        with suppress(UsageError):
            present[repeat] = read_submission(path)
    present |= {repeat: Bundle(path) for repeat, path in by_repeat(root, row).items()}
    series: dict[int, dict[int, Manifest]] = {}
    for repeat, each in present.items():
        with suppress(DamagedBundle):
            found = each.manifest() if isinstance(each, Bundle) else each.manifest
            if found.hash == manifest.hash and (number := _series_of(found.run.plan)):
                series.setdefault(number, {})[repeat] = found
    latest = max(series, default=0)
    return row, latest, dict(sorted(series.get(latest, {}).items())), max(present, default=0) + 1


def _series_of(plan: str) -> int:
    """Number of the rerun that a run belongs to; 0 for one that was planned otherwise."""
    match = _SERIES.fullmatch(plan)
    return int(match.group(1)) if match else 0


def default_repeats(before: Sequence[Record]) -> int:
    """As many as there are to compare with, which tells the ratio best; the spread of two is hardly known."""
    measured = sum(record.throughput is not None for record in before)
    return min(max(measured, FEWEST_RUNS), MOST_RUNS)


def require_same_stack(manifest: Manifest, found: Mapping[str, str], code: Mapping[str, str]) -> None:
    """Raises UsageError when the interpreter's packages are not the manifest's: it would be another measurement."""
    other = [
        f"{package} {version} (here {found.get(package, 'missing')})"
        for package, version in manifest.stack.items()
        if found.get(package) != version
    ]
    others = [package for package, own in manifest.stack_code.items() if code and code.get(package) != own]
    other += [f"other code of {package}" for package in others]
    if other:
        raise UsageError(
            f"the manifest was measured with {', '.join(other)}: name an interpreter with that stack (--python), or "
            "for a cluster an image (--image) and its versions (--stack); or measure this one with `suite run`"
        )


def recorded_here(manifest: Manifest, path: Path) -> bool:
    """Whether the bundle at ``path``, or beside a manifest.json there, proves that this user recorded it here."""
    folder = path if path.is_dir() else path.parent
    if folder != path and path.name != "manifest.json":
        return False
    try:
        return is_from_here(manifest, Bundle(folder).environment())
    except DamagedBundle:
        return False


def what_it_asks(manifest: Manifest, runs: str) -> list[str]:
    """A few lines for people: the work, what it needs at the least, and how long it may take."""
    size, layout, measure, limits = manifest.size, manifest.layout, manifest.measure, manifest.limits
    stack = ", ".join(f"{package} {version}" for package, version in sorted(manifest.stack.items()))
    told = {
        "run": f"{manifest.run.id}, {runs}",
        "model": f"{size.name}, {size.architecture}, {parameter_count(size).total / 1e9:,.3f} billion parameters",
        "work": f"{manifest.workload.name}: {counted(manifest.work.global_rollouts, 'sample')} of up to "
        f"{manifest.workload.sequence_tokens} tokens, {measure.warmup} + {manifest.iterations} iterations",
        "ranks": f"{layout.ranks} on {counted(layout.nodes, 'node')} ({layout.label()}), {measure.device}, "
        f"{measure.precision}, {counted(measure.threads_per_rank, 'thread')} each",
        "memory": f"at least {gib(floor_bytes(manifest))} GiB in all",
        "limits": f"{span(limits.run_seconds)} a run, {span(limits.silence_seconds)} without a sign of life",
        "stack": f"{manifest.backend.name} on {stack or 'whatever is here'}",
    }
    return [f"{name + ':':<8} {printable(text[:300])}" for name, text in told.items()]
