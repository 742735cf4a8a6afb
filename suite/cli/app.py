"""The commands, each in a file of its own. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import typer

from suite.cli import (
    backends,
    cancel,
    claims,
    collect,
    compare,
    doctor,
    images,
    plan,
    render,
    report,
    rerun,
    run,
    sizes,
    status,
    submit,
    verify,
)

app = typer.Typer(
    name="suite",
    help="Measure how well distributed training backends carry PPO: throughput, scaling and memory efficiency.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("run", short_help="measure backends x sizes x ranks x layouts")(run.run)
app.command("plan", short_help="predict memory, time and cost before a run")(plan.plan)
app.command("report", short_help="write a Markdown report with plots")(report.report)
app.command("compare", short_help="compare two results folders, with a gate")(compare.compare)
app.command("verify", short_help="derive records again: equal, or what differs")(verify.verify)
app.command("rerun", short_help="run a manifest once more, as it was")(rerun.rerun)
app.add_typer(render.app, name="render", short_help="write what a cluster's engine takes")
app.add_typer(submit.app, name="submit", short_help="hand runs to a cluster: Slurm or Kubernetes")
app.command("status", short_help="say where the runs are that clusters have")(status.status)
app.command("cancel", short_help="end runs that a cluster has")(cancel.cancel)
app.command("collect", short_help="bring the bundles of a cluster's runs home")(collect.collect)
app.command("sizes", short_help="list the model sizes by ladder")(sizes.sizes)
app.command("backends", short_help="list the backends and the versions found")(backends.backends)
app.add_typer(images.app, name="images", short_help="list, build, lock and check the images of the stacks")
app.add_typer(claims.app, name="claims", short_help="check published figures against each other")
app.command("doctor", short_help="say what this machine can run, and why not")(doctor.doctor)
