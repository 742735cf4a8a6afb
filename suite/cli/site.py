"""`suite site`: the history of many results folders, as pages for any web server or none."""

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import command
from suite.cli.options.reading import print_json, without_collector
from suite.spec.terminal import note, say


@command
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder of the site, made where it is not there")],
    results: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="results folder, searched with all below it, or archive; can be given several times "
            "[default: those of the last time]",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="heading of the site")] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="where the site will be, for the links of its feed")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print every series and its changes as JSON")] = False,
) -> None:
    """Write a static site: each configuration's rate over time, where it changed, and a feed of regressions.

    The same command again adds what is new.
    """
    from suite.report.site.output import checked_url, write_site

    address = None if url is None else checked_url(url)
    with without_collector():
        done = write_site(folder, results or [], title, address)
    if as_json:
        print_json(done.as_json())
        return
    for line in done.lines():
        say(line)
    for line in done.warnings():
        note(line)
