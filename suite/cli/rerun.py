"""`suite rerun`: run a manifest again, here or on a cluster, and say whether its rate is reproduced."""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import typer

from suite.bundle.archive.opening import opened
from suite.bundle.store import Bundle
from suite.cli.command import argument, command, flag, option
from suite.cli.main import INTERRUPTED
from suite.cli.options.launchers import Where
from suite.cli.output import DONE, GATE_NOT_MET, RUN_FAILED, answer, confirmed, is_json
from suite.conduct.planning.machine import Machine, require_same_variables
from suite.conduct.planning.plan import Plan
from suite.conduct.running import rerun as again
from suite.conduct.running.display import print_rerun, session_view
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.pursuit import Pursuit, follow
from suite.conduct.running.reproduction import rerun_outcome
from suite.conduct.running.session import Settings, run_plan
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS
from suite.report.formatting.numbers import counted
from suite.spec.manifest import Manifest, Stopping
from suite.spec.terminal import UsageError, note, say
from suite.spec.typed import share

#: runs that --until makes at most, and before its first look
_MOST_RUNS, _LEAST_RUNS = 30, 4


@command("print verdict, differences and new records as JSON")
def rerun(
    *,
    context: typer.Context,
    manifest: Path = argument("a bundle, its manifest.json, or FILE.suite.zip:RUN of suite pack"),
    submit_option: list[str] | None = argument(
        "with --launcher slurm or kubernetes: options of suite submit", None, metavar="[-- OPTION...]"
    ),
    repeats: int | None = option(
        "runs to make [default: as many as there are to compare with, at least 3, at most 10]", min=1, max=1000
    ),
    until: str | None = option(
        "add runs until the 95 % interval of the new rate is that narrow, at most 30", metavar="SHARE%"
    ),
    margin: str = option("how far the rate may be off and still be reproduced, e.g. 3%", "5%"),
    strict: bool = flag("exit 3 too where the runs cannot tell"),
    extend: bool = flag("add to the last rerun until it has --repeats runs"),
    with_suspect: bool = flag("runs that something disturbed count too, as on a shared machine"),
    yes: bool = flag("run it without asking, although you did not record it on this machine"),
    runs: Path = option("results folder for the new runs", Path("runs")),
    where: Where,
    force: bool = flag("allow more CPU ranks than cores", panel="Where it runs"),
) -> int:
    """Run a manifest again, exactly as it was, and say whether its rate is reproduced.

    \b
    suite rerun runs/BUNDLE
    suite rerun runs/BUNDLE --launcher slurm -- --partition gpu

    All repeats beside the named bundle are what the new runs are compared with. A manifest of a plan that asked for a
    precision is repeated until that is reached. Rows that took turns by iteration are run together again, and judged by
    their ratios. A manifest that you did not record on this machine is shown and asked about first. Exit 0: reproduced,
    or it cannot be told; 3: not reproduced; 1: a run failed.
    """
    within = share("--margin", margin)
    places = context.with_resource(opened([manifest]))
    named, manifest = manifest, places.folders[0]
    try:
        wanted = again.read_manifest(manifest)
    except UsageError as error:
        raise UsageError(places.shown(str(error))) from error
    rows, is_on_cluster = again.started_with(wanted, manifest), where.launcher in CLUSTER_LAUNCHERS
    if len(rows) > 1 and (until is not None or is_on_cluster):
        raise UsageError("rows that take turns by iteration are run --repeats times, on this host")
    own = wanted.run.stopping
    with_suspect = with_suspect or (own is not None and own.with_suspect)
    rule = _rule(own, repeats, until, extend, with_suspect) if len(rows) == 1 else None
    before, unread = again.repeats_of(wanted, manifest)
    for line in unread:
        note(line)
    if is_on_cluster and rule is not None:
        raise UsageError("a cluster makes a fixed number of runs: give --repeats, and leave out --until")
    if submit_option and not is_on_cluster:
        raise UsageError(f"{submit_option[0]}: what follows -- is for a cluster; add --launcher slurm or kubernetes")
    count = repeats or again.default_repeats(before)
    asked = counted(count, "run") if rule is None else f"{rule.least} to {rule.most} runs"
    require_consent(wanted, manifest, asked, yes, named)
    folder = (manifest if manifest.is_dir() else manifest.parent).resolve().parent
    for row in rows[1:]:
        require_consent(row, folder / row.run.id, asked, yes)
    others: list[Plan] = []
    if is_on_cluster:
        plan = _on_cluster(where, manifest, count, runs, submit_option or ())
        ended = None
    else:
        machine, launcher = where.open(wanted.measure.device, tuple(dict.fromkeys(row.backend.name for row in rows)))
        image, *images = [_image(row, machine, force) for row in rows]
        where.warn_if_busy(machine, launcher)
        view = session_view(is_json(), is_crowd=len(rows) > 1)
        settings = Settings(root=runs, python=machine.python, pythons=machine.pythons)
        work_on = partial(run_plan, settings=settings, launcher=launcher, view=view)
        if rule is None:
            plan = again.rerun_plan(wanted, runs, count, image, extend)
            own_images = zip(rows[1:], images, strict=True)
            others = [again.rerun_plan(row, runs, count, its, extend) for row, its in own_images]
            if others:
                from suite.conduct.running.at_once import in_turns

                starts = {each.run.id: start for one in (plan, *others) for start, each in enumerate(one.manifests)}
                work_on = partial(work_on, way=partial(in_turns, group=lambda each: starts[each.run.id]))
            together = tuple(each for one in (plan, *others) for each in one.manifests)
            summary = work_on(plan.model_copy(update={"manifests": together}))
        else:
            asks = partial(Pursuit, rule=rule, root=runs, view=view, seats={})
            first = again.first_by_rule(wanted, runs, rule, lambda begun: asks([begun]).is_unfinished(), image)
            plan, summary, _ = follow(asks([first]), Plan(id=first.run.plan, manifests=(first,)), work_on)
        ended = INTERRUPTED if summary.interrupted else RUN_FAILED if summary.failed or summary.failed_before else None
    partners = [
        (again.repeats_of(row, folder / row.run.id)[0], other) for row, other in zip(rows[1:], others, strict=True)
    ]
    outcome = rerun_outcome(before, plan, runs, within, with_suspect, partners)
    if is_on_cluster and any(record.status != "ok" for record in outcome.after):
        ended = RUN_FAILED
    answer(outcome.document(), lambda: print_rerun(outcome, runs))
    missed = ("not reproduced", "cannot tell") if strict else ("not reproduced",)
    return ended or (GATE_NOT_MET if outcome.verdict in missed else DONE)


def _image(wanted: Manifest, machine: Machine, force: bool) -> str | None:
    """What names the image of the runs here, if any. Raises UsageError where host or stack is not what they ask for."""
    require_same_variables(wanted, machine.variables)
    machine.require_room(wanted.layout.ranks, force, wanted.layout.nodes, wanted.measure.threads_per_rank)
    machine.require_memory([wanted])
    backend = wanted.backend
    name = backend.label if backend.label in machine.pythons else backend.name
    code = machine.code([name]).get(name, {}) if wanted.stack_code else {}
    again.require_same_stack(wanted, machine.stacks([name])[name], code)
    return machine.images([name])[name]


def _rule(
    own: Stopping | None, repeats: int | None, until: str | None, extend: bool, with_suspect: bool
) -> Stopping | None:
    """The rule by which runs are added: what was typed, else the manifest's own precision; ``None``: a fixed number."""
    if until is not None:
        if repeats is not None or extend:
            raise UsageError("--until says itself how many runs there are; leave out --repeats and --extend")
        limits = {"precision": share("--until", until), "least": _LEAST_RUNS, "most": _MOST_RUNS, "iterations": "fixed"}
        return Stopping.model_validate({**limits, "with_suspect": with_suspect})
    if repeats is not None or extend or own is None or own.precision is None:
        return None
    return own.model_copy(update={"difference": None, "with_suspect": with_suspect})


def require_consent(manifest: Manifest, path: Path, runs: str, yes: bool, named: Path | None = None) -> None:
    """Show a manifest that this user did not record here, and ask. ``runs``: how many it will be, in words; ``named``:
    how the user named it. Raises UsageError where the answer is no, or where nobody can be asked."""
    if yes or again.recorded_here(manifest, path):
        return
    path = named or path
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{path} is not a bundle that you recorded on this machine: give the same command on a terminal to see "
            "what it asks for, or run it with --yes"
        )
    say(f"{path} is not a bundle that you recorded on this machine. It asks for:", err=True)
    for line in again.what_it_asks(manifest, runs):
        say(f"  {line}", err=True)
    if not confirmed("run it?"):
        raise UsageError("not run: the answer was not yes")


def _on_cluster(where: Where, manifest: Path, count: int, runs: Path, options: Sequence[str]) -> Plan:
    """The runs, of which each has its bundle then: handed over as `suite submit` does with the options of this command
    that it has too and ``options``, or found done or under way. Nothing is submitted twice. Raises UsageError."""
    from suite.cli.app import UsageProblem, submit_command
    from suite.cli.command import in_groups
    from suite.cli.options.options_file import with_site
    from suite.cli.submit import submission_of, submit_all
    from suite.conduct.cluster.standing import chosen, collect_run, note_state, wait_until_over
    from suite.launch.cluster.registry import find_launcher

    words = [f"--manifest={manifest}", f"--repeats={count}", f"--runs={runs}"]
    words += [] if where.image is None else [f"--image={where.image}"]
    words += [f"--{name}={value}" for name in ("env", "python") for value in getattr(where, name) or ()]
    words += ["--require-idle"] if where.require_idle else []
    try:
        typed = submit_command(where.launcher).make_context(f"suite submit {where.launcher}", [*words, *options])
    except UsageProblem as error:
        raise UsageError(f"suite submit {where.launcher}: {error.format_message()}") from error
    # an option that may be repeated and was not given is an empty tuple before the command itself is called
    params = {name: None if value == () else value for name, value in typed.params.items()}
    given = in_groups(submission_of(where.launcher), {**params, "typed": typed})
    if given["smoke"] or given["dry_run"] or given["output"] or given["as_json"]:
        raise UsageError("--smoke, --dry-run, --output and --json are of suite submit alone: leave them out after --")
    nodes = with_site(typed, given["work"], given["nodes"])
    made = nodes.launcher(find_launcher(where.launcher), given["options"])
    done = submit_all(given["work"], nodes, made, False, given["waiting"].detach, partial(say, err=True))
    names = sorted({*chain(*done.left.others.values()), *(each.run.id for each in done.left.manifests)})
    left = [name for name in names if not (runs / name).exists()]
    for submission in chosen(runs, left) if left else ():
        wait_until_over(runs, submission, partial(note_state, submission))
        note(f"{submission.run_id}: {outcome_line(collect_run(runs, submission))}")
    manifests = tuple(Bundle(runs / name).manifest() for name in names)
    return Plan(id=manifests[0].run.plan, manifests=manifests)
