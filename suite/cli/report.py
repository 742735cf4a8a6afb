"""`suite report`: a view of what was measured."""

from pathlib import Path
from typing import Any

import typer

from suite.bundle.archive.opening import opened
from suite.bundle.walk import find_studies
from suite.cli.command import argument, command, flag, option
from suite.cli.output import STANDARD_OUTPUT, is_json, print_json, warn, without_collector
from suite.report.facts.model import build
from suite.report.plots import can_draw
from suite.report.reading import read_entries
from suite.report.terminal import print_answer, print_headline, print_imported
from suite.report.text.markdown import as_json as figures
from suite.report.text.markdown import brief, render, write
from suite.spec.terminal import UsageError, printable, say, say_lines
from suite.spec.width import terminal_columns, wrapped


@command("print the report's figures as JSON, write no file")
def report(
    context: typer.Context,
    runs: list[Path] = argument("results folders, single bundles, or files of suite pack"),
    output: Path | None = option(
        "Markdown file to write, plots into a folder beside it (-: print it, without plots)", None, "--output", "-o"
    ),
    html: Path | None = option("one HTML file to write, with pictures to explore; it needs no network"),
    title: str | None = option("heading of the report", metavar="TEXT"),
    with_suspect: bool = flag("pool and rank runs that something disturbed like the others"),
    is_brief: bool = flag("print the answer alone, as Markdown: for a comment of a pull request", "--brief"),
) -> None:
    """Print who is faster, how sure that is, and each row; write a Markdown report (--output) or a page (--html)."""
    if output and output == html:
        raise UsageError(f"--output and --html are both {output}: the page and the Markdown are two files")
    given = {"--json": is_json(), "--brief": is_brief, "--output": output, "--html": html}
    named = [name for name, value in given.items() if value]
    if (is_json() or is_brief) and len(named) > 1:
        raise UsageError(f"{named[0]} prints one answer alone: leave out {named[1]}")
    places = context.with_resource(opened(runs))  # so that whoever writes a view of them still finds their events
    with without_collector():
        found = read_entries(runs, with_imported=True)
        studies, left_out, first, lines = list[Any](), list[str](), list[Any](), list[str]()
        if find_studies(places.folders):
            from suite.tune import check, show

            studies, left_out = check.answers_below(places.folders)
            first, lines = show.sections(studies), [line for one in studies for line in show.verdict_lines(one)]
        told = [*found.warnings(), *map(places.shown, left_out)]
        model = build(found.entries, title, told, found.read_from, with_suspect, found.imported)
        if is_json():
            answers = [study.model_dump(mode="json", by_alias=True) for study in studies]
            print_json({**figures(model), "damaged": found.damaged, "studies": answers})
            return
        if is_brief or output == STANDARD_OUTPUT:
            say((brief(model) if is_brief else render(model, {}, first=first)).rstrip())
            return
        written = write(model, output, first) if output else ()
        size = None
        if html:
            from suite.report.page.output import write_page

            size = write_page(model, html, first)
    print_answer(model)
    print_headline(model)
    say_lines(map(printable, lines))
    print_imported(model)
    for line in model.caveats:
        warn("note: ", line)
    if written and not can_draw():
        warn("note: ", "the report has no plots: pip install 'rlhf-suite[plots]' brings what draws them")
    if written:
        say(printable(f"wrote {', '.join(str(path) for path in written)}"))
    if html:
        say(printable(f"wrote {html} ({size})"))
    if not written and not html:
        hint = "add -o report.md to write the whole report, with plots, or --html report.html for a page to explore"
        say_lines(wrapped(hint, terminal_columns(), rest="  "))
