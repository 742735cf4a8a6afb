"""The published JSON Schemas are those of what the suite reads and writes, and every bundle that it ships fits them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from suite.bundle.derive import derive
from suite.bundle.files import DamagedBundle
from suite.bundle.record import text_of
from suite.bundle.store import Bundle, find_bundles
from suite.export.schema import schema, schema_names
from suite.launch.cluster.submission import read_submission, write_submission
from suite.spec.base import UsageError
from suite.spec.version import suite_version
from tests.bundle import released
from tests.bundle.archive.planted import a_submission
from tests.bundle.recorded import TWO_RANKS
from tests.command import refused, suite
from tests.synthetic import grpo_workload, make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = find_bundles([ROOT / "docs/results", ROOT / "tests/bundle/older"])


@cache
def validator(name: str) -> Draft202012Validator:
    body = schema(name)
    Draft202012Validator.check_schema(body)
    return Draft202012Validator(body)


def wrong(name: str, value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(value)]


def events_of(path: Path) -> Iterator[Any]:
    for file in sorted((path / "events").glob("*.jsonl")):
        yield from (json.loads(line) for line in file.read_text().splitlines())


def shape_of(value: Any) -> Any:
    """Names and types, without numbers and texts."""
    if isinstance(value, dict):
        return tuple(sorted((name, shape_of(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return tuple(sorted({repr(shape_of(inner)) for inner in value}))
    return type(value).__name__


def test_a_released_schema_takes_what_it_took_and_has_what_it_had() -> None:
    """``python -m tests.bundle.released`` adds what is new before a release; nothing goes."""
    for name, objects in json.loads(released.FILE.read_text()).items():
        now = released.surface(schema(name))
        for where, fields in objects.items():
            for field, kinds in fields.items():
                assert set(kinds) <= set(now[where][field]), f"{field} of {where} of {name}"
            added = set(now[where]) - set(fields)
            assert not [one for one in added if "required" in now[where][one]], f"new and required in {where} of {name}"


def test_every_bundle_that_is_shipped_fits_them() -> None:
    """Of manifests and events one of each form, of records all that differ in more than figures."""
    found: dict[tuple[str, Any], tuple[str, Any]] = {}
    for bundle in SHIPPED:
        manifest, record = (json.loads((bundle.path / name).read_text()) for name in ("manifest.json", "record.json"))
        for name, value in (("manifest", manifest), ("record", record)):
            found.setdefault((name, shape_of(value)), (bundle.id, value))
        for event in events_of(bundle.path):
            found.setdefault(("events", event["kind"], shape_of(event)), (bundle.id, event))
    assert len(SHIPPED) > 100 and len(found) > 100
    errors = {f"{name[0]} of {run}": wrong(name[0], value) for name, (run, value) in found.items()}
    assert {what: texts for what, texts in errors.items() if texts} == {}


@pytest.mark.parametrize(
    "manifest",
    [
        synthetic_manifest(),
        synthetic_manifest(layout=TWO_RANKS, workload=grpo_workload(), device="cuda", precision="bf16"),
        synthetic_manifest(kind="trainer", backend="trlx"),
    ],
    ids=["plain", "grpo on GPUs", "trainer"],
)
def test_what_is_written_now_fits_them(manifest: Any, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "runs", manifest)
    assert wrong("manifest", json.loads((path / "manifest.json").read_text())) == []
    assert wrong("record", json.loads(text_of(derive(Bundle(path))))) == []
    assert [error for event in events_of(path) for error in wrong("events", event)] == []
    written = write_submission(tmp_path, a_submission(manifest))
    assert wrong("submission", json.loads(written.read_text())) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("phase", {"seconds": -1.0}),
        ("phase", {"phase": "lunch"}),
        ("phase", {"iteration": 1.5}),
        ("iteration", {"counts": {"samples": 0}}),
        ("iteration", {"stats": {"loss": "low"}}),
        ("iteration", {"noise": {"cpu_seconds": -1}}),
        ("start", {"host": None}),
        ("end", {"status": "great"}),
        ("memory", {"peak_reserved_bytes": "7"}),
        ("environment", {"facts": []}),
        ("phase", {"kind": "lunch"}),
        ("phase", {"time": "now"}),
    ],
)
def test_an_event_that_no_reader_takes_fits_none(kind: str, change: dict[str, Any], tmp_path: Path) -> None:
    path = make_bundle(tmp_path, synthetic_manifest())
    event = next(each for each in events_of(path) if each["kind"] == kind and each["rank"] == 0)
    assert wrong("events", event) == []
    assert wrong("events", {**event, **change})
    missing = {name: value for name, value in event.items() if name != next(iter(change))}
    assert wrong("events", missing) or kind == "iteration"


def test_a_later_version_may_add_fields_to_a_record_but_not_to_a_manifest() -> None:
    bundle = SHIPPED[0]
    record, manifest = (json.loads((bundle.path / name).read_text()) for name in ("record.json", "manifest.json"))
    assert wrong("record", {**record, "later": 1}) == [] and wrong("manifest", {**manifest, "later": 1})


def read_as(schema_name: str, newer: str, root: Path) -> None:
    """Read a document of a run that says it is of another schema."""
    if schema_name == "submission":
        path = write_submission(root, a_submission(synthetic_manifest()))
        path.write_text(path.read_text().replace("suite/submission/1", newer))
        read_submission(path)
    path = make_bundle(root, synthetic_manifest())
    file = path / ("manifest.json" if schema_name == "manifest" else "events/rank-0.jsonl")
    file.write_text(file.read_text().replace(f"suite/{schema_name}/1", newer))
    Bundle(path).events()


@pytest.mark.parametrize(
    ("name", "error"),
    [("manifest", DamagedBundle), ("events", DamagedBundle), ("submission", UsageError)],
)
def test_a_newer_form_is_refused_with_its_schema_and_the_version_that_does_not_read_it(name, error, tmp_path):
    with pytest.raises(error) as caught:
        read_as(name, f"suite/{name}/2", tmp_path)
    assert f"suite/{name}/2" in str(caught.value)
    assert f"this version, suite {suite_version()}, reads suite/{name}/1: install a newer one" in str(caught.value)


def test_a_manifest_of_something_else_is_none_that_a_newer_one_would_read(tmp_path: Path) -> None:
    with pytest.raises(DamagedBundle, match=r"reads suite/manifest/1$"):
        read_as("manifest", "other/manifest/2", tmp_path)


def test_the_command_prints_what_is_published() -> None:
    assert json.loads(suite("schema", "record").stdout) == schema("record")
    assert [line.split()[0] for line in suite("schema").stdout.splitlines()] == schema_names()
    listed = json.loads(suite("schema", "--json").stdout)
    assert {each["name"]: each["id"] for each in listed}["events"] == "urn:suite:events:1"
    assert "did you mean 'record'" in refused("schema", "recod")
