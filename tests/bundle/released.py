"""What the published schemas have and take; run as a program it keeps that of a release in ``released-1.json``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suite.bundle.schemas import SCHEMAS
from suite.export.schema import schema

FILE = Path(__file__).with_name("released-1.json")


def surface(body: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """By object and field of a schema the kinds of values, and ``required``; kinds of events are objects too."""
    cases = {str(one["if"]["properties"]).replace("}, ", "} "): one["then"] for one in body.get("allOf", ())}
    return {
        where: {
            name: sorted({*_kinds(value), *(("required",) if name in one.get("required", ()) else ())})
            for name, value in one["properties"].items()
        }
        for where, one in {"": body, **body.get("$defs", {}), **cases}.items()
        if "properties" in one
    }


def _kinds(value: dict[str, Any]) -> Iterator[str]:
    for part in value.get("anyOf", ()):
        yield from _kinds(part)
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2]
    for word in (*value.get("enum", ()), *((value["const"],) if "const" in value else ())):
        yield f"= {word}"
    types = value.get("type", ())
    for one in (types,) if isinstance(types, str) else types:
        inner = value.get({"array": "items", "object": "additionalProperties"}.get(one, ""))
        yield from (f"{one} of {kind}" for kind in _kinds(inner)) if isinstance(inner, dict) and inner else (one,)


if __name__ == "__main__":
    text = json.dumps({name: surface(schema(name)) for name in SCHEMAS}, sort_keys=True)
    FILE.write_text(text.replace("}, ", "},\n") + "\n", encoding="utf-8")
