"""A record is what its bundle gives, also of every bundle that the repository ships, of whatever version."""

import json
import math
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.facts import derivation
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import differences, verify, verify_all
from tests.synthetic import make_bundle, synthetic_manifest


@pytest.fixture
def bundle(tmp_path):
    bundle = Bundle(make_bundle(tmp_path, seconds=[1.0, 1.0, 1.1, 0.9, 1.3]))
    bundle.write_record(derive(bundle))
    return bundle


def change(bundle, edit):
    path = bundle.path / "record.json"
    body = json.loads(path.read_text())
    edit(body)
    path.write_text(json.dumps(body))


def test_a_changed_figure_is_named_with_both_values(bundle):
    change(bundle, lambda body: body["throughput"]["samples_per_second"].update(value=1e6))
    result = verify(bundle)
    assert result.status == "differs"
    (line,) = result.differences
    assert line.startswith("throughput.samples_per_second.value: stored 1000000.0, derived ")


def test_the_last_digit_of_a_float_counts(bundle):
    change(bundle, lambda body: body["iterations"]["seconds"].__setitem__(0, math.nextafter(1.0, 2)))
    assert verify(bundle).differences == ("iterations.seconds[0]: stored 1.0000000000000002, derived 1.0",)


def test_a_changed_event_is_seen_in_the_record(bundle):
    path = bundle.path / "events" / "rank-0.jsonl"
    path.write_text(path.read_text().replace('"seconds": 1.3', '"seconds": 1.4'))
    result = verify(bundle)
    assert result.status == "differs"
    assert any(line.startswith("throughput.tokens_per_second.value") for line in result.differences)


def test_missing_and_added_fields_are_named_also_where_a_field_that_every_version_writes_is_null(bundle):
    def edit(body):
        del body["status"], body["compute"]["mfu"]
        body["extra"] = 1

    change(bundle, edit)
    assert verify(bundle).differences == (
        'status: stored absent, derived "ok"',
        "compute.mfu: stored absent, derived null",
        "extra: stored 1, derived absent",
    )


@pytest.mark.parametrize(
    "name", ["details", "algorithm", "lengths", "padding", "rollout", "staleness", "compute.hfu_causal"]
)
def test_a_field_that_an_older_version_did_not_know_is_no_difference_while_it_is_null(bundle, name):
    *part, field = name.split(".")
    change(bundle, lambda body: (body[part[0]] if part else body).pop(field))
    assert verify(bundle).status == "equal"
    assert list(differences({"compute": {}}, {"compute": {"hfu_causal": 0.4}})) == [
        "compute.hfu_causal: stored absent, derived 0.4"
    ]


def test_another_schema_is_told_as_that_alone(bundle):
    change(bundle, lambda body: body.update(schema="suite/record/0", status="fine"))
    assert verify(bundle).differences == ('schema: stored "suite/record/0", this version derives "suite/record/1"',)


def test_a_prediction_is_no_difference_where_there_can_be_one(bundle, tmp_path):
    gpus = Bundle(make_bundle(tmp_path, synthetic_manifest(device="cuda", precision="bf16")))
    gpus.write_record(derive(gpus))
    assert gpus.record() == derive(gpus)
    for each in (gpus, bundle):
        change(each, lambda body: body.update(predicted={"samples_per_second": 3.0}))
    assert verify(gpus).status == "equal"
    assert verify(bundle).differences == ('predicted: stored {"samples_per_second": 3.0}, derived null',)


def test_a_missing_record_is_said_and_of_a_run_that_goes_on_why(bundle, tmp_path):
    (bundle.path / "record.json").unlink()
    assert verify(bundle).status == "missing record"
    going_on = Bundle(make_bundle(tmp_path / "now", status=None, completed=3))
    with going_on.hold():
        result = verify(going_on)
    assert result.status == "missing record" and "still going on" in result.differences[0]


def test_many_differences_are_cut(bundle):
    change(bundle, lambda body: body["memory"]["by_phase"].update({f"x{n}": None for n in range(80)}))
    result = verify(bundle)
    assert len(result.differences) == 51
    assert result.differences[-1] == "and 30 more"
    (line,) = differences({"x" * 10_000: {"a": 1}}, {"x" * 10_000: {"a": 2}})
    assert len(line) < 400


@pytest.mark.parametrize(("stored", "derived"), [(1, 1.0), (0, False), (None, 0), ([1], [1, 2]), ({}, [])])
def test_values_of_different_types_or_lengths_differ(stored, derived):
    assert len(list(differences({"a": stored}, {"a": derived}))) == 1


ROOT = Path(__file__).resolve().parents[2]
OLDER = ROOT / "tests/bundle/older"
RESULTS = sorted((ROOT / "docs/results").glob("*/runs"))
#: By which rules the workers of earlier versions asked to be derived; the first is of the first version that published.
RULES = {
    "deepspeed-1M-n1-08b37050-r1": 1,
    "deepspeed-1M-n2-e4ae0202-r1": 1,
    "megatron-8M-n1-870c15b0-r1": 1,
    "megatron-1M-n2-3eb382ec-r1": 2,
    "deepspeed-8M-llama-n1-e6416f31-r1": 2,
    # of backends that there are no more
    "skyrl-1M-llama-n2-b94711a5-r1": 4,
    "areal-1M-llama-n2-873fe6a4-r1": 4,
}


@pytest.mark.parametrize("folder", [*RESULTS, OLDER], ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_shipped_bundle_verifies_and_nothing_is_found_in_it_or_beside_it(folder: Path) -> None:
    checked = {bundle.path: found for bundle, found in verify_all(find_bundles([folder]))}
    assert checked.keys() == {path.parent for path in folder.rglob("record.json")} and checked
    bad = {path.name: found for path, found in checked.items() if found.status != "equal" or found.findings}
    assert bad == {}


def test_all_shipped_bundles_are_verified_and_earlier_versions_are_among_them() -> None:
    shipped = {path.parent.parent for path in ROOT.joinpath("docs").rglob("record.json")}
    assert shipped == set(RESULTS) and len(RESULTS) >= 3
    assert {path.name: derivation(Bundle(path).events()) for path in OLDER.iterdir()} == RULES
