"""`suite site`: the history of many results folders, as pages for any web server or none."""

from pathlib import Path

from suite.cli.command import argument, command, option
from suite.cli.output import answer, is_json, without_collector
from suite.report.site.output import checked_url, write_site
from suite.spec.terminal import note


@command("print every series and its changes as JSON")
def site(
    folder: Path = argument("folder of the site, made where it is not there", metavar="DIR"),
    results: list[Path] | None = option(
        "results folder, searched with all below it, or archive; can be given several times "
        "[default: those of the last time]",
        None,
        "--from",
        metavar="FOLDER",
    ),
    title: str | None = option("heading of the site", metavar="TEXT"),
    url: str | None = option("where the site will be, for the links of its feed", metavar="URL"),
) -> None:
    """Write a static site: each configuration's rate over time, where it changed, and a feed of regressions.

    The same command again adds what is new.
    """
    address = None if url is None else checked_url(url)
    with without_collector():
        done = write_site(folder, results or [], title, address)
    answer(done.as_json(), done.lines())
    for line in () if is_json() else done.warnings():
        note(line)
