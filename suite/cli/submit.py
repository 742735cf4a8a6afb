"""`suite submit`: submit runs to a cluster, or write the files for it. A sub-command per launcher."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

import typer

from suite.bundle.record import Record
from suite.cli.command import command, flag, option
from suite.cli.options.cluster import Nodes
from suite.cli.options.fields import option_group
from suite.cli.options.options_file import with_site
from suite.cli.options.work import Work, show_plan, still_to_do
from suite.cli.output import DONE, RUN_FAILED, STANDARD_OUTPUT, answer, is_json, warn
from suite.conduct.cluster.hand_over import ToDo, hand_over, prepare, write_documents
from suite.conduct.cluster.smoke import smoke_root
from suite.conduct.cluster.standing import collect_run, wait_until_over
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.state import states
from suite.launch.cluster.launcher import ClusterLauncher
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.launch.cluster.submission import Submission
from suite.launch.outcome import NEXT_STEPS
from suite.report.facts.network import CONVENTION, network_checks
from suite.spec.manifest import Manifest
from suite.spec.terminal import UsageError, note, printable, say, say_lines

#: documents of which a dry run shows every line
_SHOWN = 12


def submission_of(name: str) -> Callable[..., int]:
    """What the sub-command of a launcher does."""
    kind = find_launcher(name)
    detach = flag("submit all runs at once and return; their timings may interfere; suite collect makes their bundles")
    # one that never waits for its runs has no such option
    waiting = ("detach", bool, detach) if kind.waits else ("detach", ClassVar[bool], True)

    def submit(
        *,
        typed: typer.Context,
        work: Work,
        nodes: Nodes,
        options: Any,
        waiting: Any,
        smoke: bool = flag(
            "first a run of minutes on the same nodes; where it fails, the others are not started", panel="Measuring"
        ),
        dry_run: bool = flag("print the plan, what it should need and what would be sent, and submit nothing"),
        output: Path | None = option(
            "submit nothing: write the files for the scheduler into this folder, or print them (-)",
            None,
            "--output",
            "-o",
            metavar="DIR",
        ),
    ) -> int:
        nodes = with_site(typed, work, nodes)
        launcher = nodes.launcher(kind, options)
        if output is not None:
            if smoke or dry_run:
                raise UsageError(f"--output submits nothing: leave out {'--smoke' if smoke else '--dry-run'}")
            return _write_files(work, nodes, launcher, output)
        if dry_run:
            return _dry(work, nodes, launcher, smoke)
        # where nothing is waited for, the JSON itself comes at once
        is_quiet = is_json() and not kind.waits
        show: Callable[[str], None] = (lambda text: None) if is_quiet else partial(say, err=is_json())
        done = submit_all(work, nodes, launcher, smoke, waiting.detach, show)
        if not done.is_refused:
            answer(done.document(), done.lines(nodes.runs, waiting.detach))
        return done.code

    group = option_group(kind.options, kind.options.HEADING)
    submit.__annotations__.update(options=group, waiting=make_dataclass("Waiting", [waiting], frozen=True))
    submit.__doc__ = kind.submit_help
    return submit


def __getattr__(name: str) -> Callable[..., None]:
    """The sub-command of a registered launcher, as the table of commands asks for it."""
    if name in CLUSTER_LAUNCHERS:
        return command("print the outcome as JSON")(submission_of(name))
    raise AttributeError(name)


class HandingOver:
    """Documents go to the cluster one after the other; what became of their runs is kept, and shown as it happens."""

    def __init__(self, launcher: ClusterLauncher, left: ToDo, show: Callable[[str], None]) -> None:
        """``left``: what of the plan is to be done, and with whom the rest is. ``show``: prints what happens."""
        self.left, self.show = left, show
        #: a first, short run failed, and nothing else was submitted
        self.is_refused = False
        #: of the JSON: the first, short runs, where there were any
        self.first: dict[str, Any] = {}
        self._submitted: list[Submission] = []
        self._statuses: dict[str, str] = {}
        self._launcher = launcher

    @property
    def code(self) -> int:
        return RUN_FAILED if self.is_refused or not set(self._statuses.values()) <= {"ok", "submitted"} else DONE

    def document(self) -> dict[str, Any]:
        sent = self._launcher.submitted_json(self._submitted, self._statuses)
        return {**sent, **self.left.others, **self.first}

    def lines(self, root: Path, uncollected: bool) -> Iterator[str]:
        """What was not submitted and why, and what to do next."""
        for state, run_ids in self.left.others.items():
            if run_ids:
                yield f"{state.replace('_', ' ')}, so not submitted: {', '.join(run_ids)}"
        if uncollected:
            yield f"to make their bundles: suite collect --wait --runs {quote(str(root))}"

    def submit(self, documents: Sequence[Any], root: Path, wait: bool) -> None:
        """Hand them over; ``wait``: until each of a document's runs is over, and collect it. Raises UsageError."""
        for document in documents:
            for submission in hand_over(self._launcher, document, root, self._taken):
                self._submitted.append(submission)
                self._statuses[submission.run_id] = "submitted"
                self.show(f"{submission.run_id}: {self._launcher.where(submission)}")
                if wait:
                    self._statuses[submission.run_id] = self._collected(submission, root).status

    def _taken(self, found: ToDo) -> None:
        self.left = self.left.with_others(found)

    def smoke(self, manifests: Sequence[Manifest], runs: Path) -> bool:
        """Hand the first, short runs over; false where one failed. Where nothing is waited for, the cluster itself
        keeps the others back until these have ended well. Raises UsageError."""
        launcher, root = self._launcher, smoke_root(runs)
        if not (launcher.waits or launcher.chains):
            raise UsageError(f"--smoke: {launcher.name} cannot have runs wait for a first one; submit it by itself")
        first: list[Submission] = []
        for document in launcher.render(prepare(manifests, launcher), root):
            for submission in hand_over(launcher, document, root):
                first.append(submission)
                self.show(f"first a smoke run, {submission.run_id}: {launcher.where(submission)}")
                self.first.setdefault("smoke", {})[submission.run_id] = "submitted"
                if launcher.waits and not self._ended_well(submission, root):
                    self.is_refused = True
                    return False
        if not launcher.waits:
            launcher.start_after(first)
            self.show(
                "    the others start when it has ended well; "
                f"suite collect --runs {quote(str(root))} makes its bundle, and tells the network that it measured"
            )
        return True

    def _ended_well(self, submission: Submission, root: Path) -> bool:
        """Whether a first run, which is waited for, did; with what it measured of the network, or what to do next."""
        run_id, record = submission.run_id, self._collected(submission, root)
        self.first["smoke"][run_id] = record.status
        if record.status == "ok":
            self.first.setdefault("network", {})[run_id] = tell_network(record, self.show)
            return True
        for line in () if record.failure is None else record.failure.evidence[:3]:
            warn("smoke run: ", printable(line))
        advice = "" if record.failure is None else f" {NEXT_STEPS[record.failure.kind]}"
        warn("error: ", f"the smoke run {run_id} {record.status}, so nothing else was submitted.{advice}")
        return False

    def _collected(self, submission: Submission, root: Path) -> Record:
        wait_until_over(root, submission, lambda now: self.show(f"    {now.word}: {now.detail}".rstrip(": ")))
        record = collect_run(root, submission)
        self.show(f"    {outcome_line(record)}")
        return record


def submit_all(
    work: Work, nodes: Nodes, launcher: ClusterLauncher, smoke: bool, detach: bool, show: Callable[[str], None]
) -> HandingOver:
    """Submit every run that is still to be done; without ``detach`` wait for each and collect it. Raises UsageError."""
    launcher.connect()
    documents, left = nodes.documents(work, launcher)
    handing = HandingOver(launcher, left, show)
    if smoke and documents and not handing.smoke(nodes.smoke(launcher, left.manifests), nodes.runs):
        return handing
    if detach and launcher.waits and len(documents) > 1:
        note("note: detached runs start side by side where there is room, and their timings may interfere")
    handing.submit(documents, nodes.runs, wait=not detach)
    return handing


def _write_files(work: Work, nodes: Nodes, launcher: ClusterLauncher, output: Path) -> int:
    """The files that the scheduler takes, into a folder or printed (``-``). Raises UsageError."""
    documents, found = nodes.documents(work, launcher)
    printed = output == STANDARD_OUTPUT
    paths = [] if printed else write_documents(launcher, documents, output, nodes.runs)
    if printed and not is_json():
        print(launcher.separator.join(document.text for document in documents), end="")
    rows = [launcher.rendered_json(document) for document in documents]
    facts = {launcher.documents: rows, "files": [str(path) for path in paths], **found.others}
    answer(facts, launcher.by_hand(paths) if paths else ())
    return DONE


def tell_network(record: Record, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """The network that a smoke run measured, to the user; what is slow of it is a warning. Also for the JSON."""
    checks = network_checks(record)
    if checks:
        show(f"    bus bandwidths: {CONVENTION}")
    elif record.run.ranks > 1 and record.status == "ok":
        warn("warning: ", f"{record.run.id} tells no network that it measured")
    for check in checks:
        show(f"    {check}")
        if check.warning is not None:
            warn("warning: ", check.warning)
    return [check.model_dump(mode="json") for check in checks]


def _dry(work: Work, nodes: Nodes, launcher: ClusterLauncher, smoke: bool) -> int:
    """Show the plan and what would be sent for it. No cluster is asked, nothing is written. Raises UsageError."""
    plan, found = nodes.look(work, launcher)
    left = still_to_do(states(plan.manifests, nodes.runs), nodes.retry_failed)
    manifests = [manifest for manifest in plan.manifests if manifest.run.id in left]
    documents = launcher.render(prepare(manifests, launcher), nodes.runs)
    smallest = nodes.smoke(launcher, manifests) if smoke and manifests else ()
    first = launcher.render(prepare(smallest, launcher), smoke_root(nodes.runs))
    sent, sent_first = (
        [
            {"name": each.name, "runs": [run.run_id for run in each.submissions], "sent": launcher.sent(each)}
            for each in some
        ]
        for some in (documents, first)
    )
    more = {"documents": sent, **({"smoke": sent_first} if smoke else {})}
    show_plan(plan, found, nodes.runs, nodes.retry_failed, work, more=more)
    for number, each in () if is_json() else enumerate([*sent_first, *sent[:_SHOWN]]):
        before = "first a smoke run, " if number < len(sent_first) else ""
        runs = f" ({len(each['runs'])} runs)" if len(each["runs"]) > 1 else ""
        say(f"{before}would be sent, {each['name']}{runs}:")
        say_lines(f"    {printable(line)}" for line in each["sent"])
    if len(documents) > _SHOWN and not is_json():
        say(f"and {len(documents) - _SHOWN} more such; --output DIR writes them whole")
    return DONE
