"""What the published schemas have and take, field by field, kept in ``released-1.json``.

``python -m tests.bundle.released`` writes it anew: before a release, with what was added since the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suite.bundle.schemas import SCHEMAS
from suite.export.schema import schema

FILE = Path(__file__).with_name("released-1.json")
#: By object and field: kinds of values, and ``required``.
Surface = dict[str, dict[str, list[str]]]


def surface(body: dict[str, Any]) -> Surface:
    """Of each object in a schema: those that are defined by their names, and kinds of events by theirs."""
    found: Surface = {}
    for where, one in _objects(body):
        required = one.get("required", ())
        fields = {
            name: sorted({*_kinds(value), *(("required",) if name in required else ())})
            for name, value in one.get("properties", {}).items()
        }
        if fields:
            found[where] = fields
    return dict(sorted(found.items()))


def _objects(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", body
    yield from body.get("$defs", {}).items()
    for case in body.get("allOf", ()):
        told = case["if"]["properties"]
        yield f"{told['kind']['const']} of {'driver' if told['rank']['type'] == 'null' else 'rank'}", case["then"]


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


def kept() -> dict[str, Surface]:
    found: dict[str, Surface] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    lines = []
    for name in SCHEMAS:
        objects = [f"  {json.dumps(where)}: {json.dumps(fields)}" for where, fields in surface(schema(name)).items()]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(objects) + "\n}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
