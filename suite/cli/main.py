"""`suite`: the commands, each in a file of its own. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import typer

from suite.cli import backends, compare, doctor, report, rerun, run, sizes, verify

app = typer.Typer(
    name="suite",
    help="Measure how well distributed training backends carry PPO: throughput, scaling and memory efficiency.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("verify")(verify.verify)
app.command("rerun")(rerun.rerun)
app.command("sizes")(sizes.sizes)
app.command("backends")(backends.backends)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Entry point of the console script."""
    app()
