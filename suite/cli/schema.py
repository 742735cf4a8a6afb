"""`suite schema`: the forms of the files that the suite writes, for other programs."""

from suite.cli.command import answer, argument, command, flag, print_json


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
    facts = [{"name": each, "id": body.get("$id"), "title": body.get("title")} for each, body in found.items()]
    answer(as_json, facts, [f"{each:<12} {body.get('title', '')}" for each, body in found.items()])
