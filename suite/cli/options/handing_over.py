"""What `suite submit` does with each document, or would do: shown as it happens."""

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from suite.bundle.record import Record
from suite.cli.exits import DONE, RUN_FAILED
from suite.cli.options.check import show_plan, still_to_do, warn
from suite.cli.options.cluster import Nodes
from suite.cli.options.reading import print_json
from suite.cli.options.work import Work
from suite.conduct.cluster.hand_over import ToDo, hand_over, prepare, write_documents
from suite.conduct.cluster.smoke import smoke_root
from suite.conduct.cluster.standing import collect_run, wait_until_over
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.state import states
from suite.launch.cluster.launcher import ClusterLauncher, Document
from suite.launch.cluster.submission import Submission
from suite.launch.outcome import NEXT_STEPS
from suite.report.facts.network import CONVENTION, network_checks
from suite.spec.base import UsageError, printable
from suite.spec.manifest import Manifest
from suite.spec.terminal import note, say, say_lines

#: documents of which a dry run shows every line
_SHOWN = 12


class HandingOver:
    """Documents go to the cluster one after the other; what became of their runs is kept."""

    def __init__(self, launcher: ClusterLauncher, left: ToDo, quiet: bool, to_stderr: bool) -> None:
        """``left``: what of the plan is to be done, and with whom the rest is."""
        self.left = left
        #: a first, short run failed, and nothing else was submitted
        self.is_refused = False
        self._submitted: list[Submission] = []
        self._statuses: dict[str, str] = {}
        #: of the JSON: the first, short runs, where there were any
        self.first: dict[str, Any] = {}
        self._launcher, self._quiet, self._to_stderr = launcher, quiet, to_stderr

    @property
    def code(self) -> int:
        """The exit code."""
        return RUN_FAILED if self.is_refused or not set(self._statuses.values()) <= {"ok", "submitted"} else DONE

    def document(self) -> dict[str, Any]:
        """As `suite submit --json` prints it."""
        sent = self._launcher.submitted_json(self._submitted, self._statuses)
        return {**sent, **self.left.others, **self.first}

    def _taken(self, found: ToDo) -> None:
        """By other drivers since."""
        self.left = self.left.with_others(found)

    def show(self, text: str) -> None:
        """A line for the user."""
        if not self._quiet:
            say(text, err=self._to_stderr)

    def submit(self, document: Document, root: Path, wait: bool) -> None:
        """Hand one over; ``wait``: until each of its runs is over, and collect it. Raises UsageError."""
        for submission in hand_over(self._launcher, document, root, self._taken):
            self._submitted.append(submission)
            self._statuses[submission.run_id] = "submitted"
            self.show(f"{submission.run_id}: {self._launcher.where(submission)}")
            if wait:
                self._statuses[submission.run_id] = self._collected(submission, root).status

    def smoke(self, manifests: Sequence[Manifest], runs: Path) -> bool:
        """Hand the first, short runs over; false where one failed. Where nothing is waited for, the cluster itself
        keeps the others back until these have ended well. Raises UsageError."""
        launcher = self._launcher
        if not (launcher.waits or launcher.chains):
            raise UsageError(
                f"--smoke: {launcher.name} cannot have runs wait for a first one; submit that one by itself"
            )
        root = smoke_root(runs)
        first: list[Submission] = []
        for document in launcher.render(prepare(manifests, launcher), root):
            for submission in hand_over(self._launcher, document, root):
                first.append(submission)
                self.show(f"first a smoke run, {submission.run_id}: {self._launcher.where(submission)}")
                self.first.setdefault("smoke", {})[submission.run_id] = "submitted"
                if self._launcher.waits:
                    record = self._collected(submission, root)
                    self.first["smoke"][submission.run_id] = record.status
                    if record.status != "ok":
                        self._refuse(submission.run_id, record)
                        return False
                    self.first.setdefault("network", {})[submission.run_id] = tell_network(record, self.show)
        if not self._launcher.waits:
            self._launcher.start_after(first)
            self.show(
                "    the others start when it has ended well; "
                f"suite collect --runs {quote(str(root))} makes its bundle, and tells the network that it measured"
            )
        return True

    def _collected(self, submission: Submission, root: Path) -> Record:
        wait_until_over(root, submission, lambda now: self.show(f"    {now.word}: {now.detail}".rstrip(": ")))
        record = collect_run(root, submission)
        self.show(f"    {outcome_line(record)}")
        return record

    def _refuse(self, run_id: str, record: Record) -> None:
        self.is_refused, failure = True, record.failure
        for line in () if failure is None else failure.evidence[:3]:
            warn("smoke run: ", printable(line))
        advice = "" if failure is None else f" {NEXT_STEPS[failure.kind]}"
        warn("error: ", f"the smoke run {run_id} {record.status}, so nothing else was submitted.{advice}")


def submit_all(
    work: Work, nodes: Nodes, launcher: ClusterLauncher, smoke: bool, detach: bool, to_stderr: bool, quiet: bool = False
) -> HandingOver:
    """Submit every run that is still to be done; without ``detach`` wait for each and collect it. Raises UsageError."""
    launcher.connect()
    documents, left = nodes.documents(work, launcher)
    handing = HandingOver(launcher, left, quiet, to_stderr)
    if smoke and documents and not handing.smoke(nodes.smoke(launcher, left.manifests), nodes.runs):
        return handing
    if detach and launcher.waits and len(documents) > 1:
        note("note: detached runs start side by side where there is room, and their timings may interfere")
    for document in documents:
        handing.submit(document, nodes.runs, wait=not detach)
    return handing


def show_submitted(done: HandingOver, nodes: Nodes, uncollected: bool) -> None:
    """What was not submitted and why, and what to do next."""
    for state, run_ids in done.left.others.items():
        if run_ids:
            say(f"{state.replace('_', ' ')}, so not submitted: {', '.join(run_ids)}")
    if uncollected:
        say(f"to make their bundles: suite collect --wait --runs {quote(str(nodes.runs))}")


def write_files(work: Work, nodes: Nodes, launcher: ClusterLauncher, output: Path, as_json: bool) -> int:
    """The files that the scheduler takes, into a folder or printed (``-``). Raises UsageError."""
    documents, found = nodes.documents(work, launcher)
    printed = str(output) == "-"
    paths = [] if printed else write_documents(launcher, documents, output, nodes.runs)
    if as_json:
        rows = [launcher.rendered_json(document) for document in documents]
        print_json({launcher.documents: rows, "files": [str(path) for path in paths], **found.others})
    elif printed:
        print(launcher.separator.join(document.text for document in documents), end="")
    say_lines(launcher.by_hand(paths) if paths and not as_json else ())
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
        if (slow := check.warning()) is not None:
            warn("warning: ", slow)
    return [check.model_dump(mode="json") for check in checks]


def dry(work: Work, nodes: Nodes, launcher: ClusterLauncher, smoke: bool, as_json: bool) -> int:
    """Show the plan and what would be sent for it. No cluster is asked, nothing is written. Raises UsageError."""
    plan, found = nodes.look(work, launcher)
    left = still_to_do(states(plan.manifests, nodes.runs), nodes.retry_failed)
    manifests = [manifest for manifest in plan.manifests if manifest.run.id in left]
    documents = launcher.render(prepare(manifests, launcher), nodes.runs)
    smallest = nodes.smoke(launcher, manifests) if smoke and manifests else ()
    first = launcher.render(prepare(smallest, launcher), smoke_root(nodes.runs))
    sent = [_described(launcher, each) for each in documents]
    sent_first = [_described(launcher, each) for each in first]
    more = {"documents": sent, **({"smoke": sent_first} if smoke else {})}
    code = show_plan(plan, found, nodes.runs, nodes.retry_failed, work, as_json, more=more)
    if as_json:
        return code
    for before, each in [("first a smoke run, ", each) for each in sent_first] + [("", each) for each in sent[:_SHOWN]]:
        runs = f" ({len(each['runs'])} runs)" if len(each["runs"]) > 1 else ""
        say(f"{before}would be sent, {each['name']}{runs}:")
        say_lines(f"    {printable(line)}" for line in each["sent"])
    if len(documents) > _SHOWN:
        say(f"and {len(documents) - _SHOWN} more such; --output DIR writes them whole")
    return code


def _described(launcher: ClusterLauncher, document: Document) -> dict[str, Any]:
    runs = [each.run_id for each in document.submissions]
    return {"name": document.name, "runs": runs, "sent": launcher.sent(document)}
