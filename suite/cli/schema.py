"""`suite schema`: the forms of the files that the suite writes, for other programs."""

from suite.cli.command import argument, command
from suite.cli.output import answer, print_json
from suite.export.schema import schema as parsed
from suite.export.schema import schema_names


@command("print the list as JSON; a schema is JSON anyway")
def schema(name: str | None = argument("manifest, record, events ...; without one, all are listed", None)) -> None:
    """Print the JSON Schema of a file that the suite writes.

    \b
    suite schema record > record.schema.json
    """
    if name is not None:
        print_json(parsed(name))
        return
    found = {each: parsed(each) for each in schema_names()}
    facts = [{"name": each, "id": body.get("$id"), "title": body.get("title")} for each, body in found.items()]
    answer(facts, [f"{each:<12} {body.get('title', '')}" for each, body in found.items()])
