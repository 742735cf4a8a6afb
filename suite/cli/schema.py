"""`suite schema`: the forms of the files that the suite writes, for other programs."""

from suite.cli.exits import command
from suite.cli.options.declare import argument, flag
from suite.cli.options.reading import print_json
from suite.spec.terminal import say


@command
def schema(
    name: str | None = argument("manifest, record, events ...; without one, all are listed", None),
    as_json: bool = flag("print the list as JSON; a schema is JSON anyway", "--json"),
) -> None:
    """Print the JSON Schema of a file that the suite writes.

    \b
    suite schema record > record.schema.json
    """
    from suite.export.schema import schema as parsed
    from suite.export.schema import schema_names

    if name is not None:
        print_json(parsed(name))
        return
    found = {each: parsed(each) for each in schema_names()}
    if as_json:
        print_json([{"name": each, "id": body.get("$id"), "title": body.get("title")} for each, body in found.items()])
        return
    for each, body in found.items():
        say(f"{each:<12} {body.get('title', '')}")
