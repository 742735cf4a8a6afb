"""`suite render`: the files that a cluster's scheduler takes, without submitting them; a sub-command per launcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from suite.cli.exits import command
from suite.cli.options.cluster import Nodes
from suite.cli.options.groups import takes_groups
from suite.cli.options.work import Work
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.terminal import say


def _render(name: str) -> Callable[..., None]:
    """The sub-command of one launcher."""
    kind = find_launcher(name)

    def render(
        *,
        typed: typer.Context,
        work: Work,
        nodes: Nodes,
        options: Any,
        output: Annotated[
            Path | None,
            typer.Option("--output", "-o", help="folder for the files [default: print them]", rich_help_panel="Output"),
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="print files and runs as JSON", rich_help_panel="Output")
        ] = False,
    ) -> None:
        from suite.cli.options.reading import print_json
        from suite.cli.options.site import with_site
        from suite.conduct.cluster.hand_over import write_documents

        nodes, options = with_site(typed, name, work, nodes, options)
        launcher = nodes.launcher(kind, options)
        documents, found = nodes.documents(work, launcher)
        paths = [] if output is None else write_documents(launcher, documents, output, nodes.runs)
        if as_json:
            rows = [launcher.rendered_json(document) for document in documents]
            others = found.model_dump(mode="json", exclude={"manifests"})
            print_json({launcher.documents: rows, "files": [str(path) for path in paths], **others})
        elif output is None:
            typer.echo(launcher.separator.join(document.text for document in documents), nl=False)
        else:
            for line in launcher.by_hand(paths) if paths else ():
                say(line)

    render.__annotations__["options"] = kind.options
    render.__doc__ = kind.render_help
    return command(takes_groups(render))


def __getattr__(name: str) -> Callable[..., None]:
    """The sub-command of a registered launcher, as the table of commands asks for it."""
    if name in CLUSTER_LAUNCHERS:
        return _render(name)
    raise AttributeError(name)
