"""A manifest whose numbers no formula can take: one line, and no other bundle suffers."""

import json
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.manifest_file import parse_manifest
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import verify_all
from suite.report.reading import read_entries
from suite.spec.manifest import manifest_hash, work_hash
from tests.bundle.recorded import TWO_RANKS, put
from tests.synthetic import grpo_workload, make_bundle, synthetic_manifest

HUGE = 10**400
PLACES = [
    (("workload", "critic"), {"layers": HUGE, "hidden": 64, "ffn": 256, "heads": 1}, "workload.critic.layers"),
    (("workload", "optimizer_steps"), HUGE, "workload.optimizer_steps"),
    (("workload", "ppo", "clip_ratio"), 1e300, "workload.ppo.clip_ratio"),
    (("workload", "reward"), {"kind": "token-below", "threshold": HUGE}, "workload.reward.threshold"),
    (("size", "rope_theta"), 1e300, "size.rope_theta"),
    (("measure", "seed"), HUGE, "measure.seed"),
    (("limits", "run_seconds"), 1e300, "limits.run_seconds"),
    (("limits", "silence_seconds"), HUGE, "limits.silence_seconds"),
    (("layout", "nodes"), HUGE, "layout.nodes"),
    (("run", "repeat"), HUGE, "run.repeat"),
]


def changed(body: dict[str, Any], place: tuple[str, ...], value: Any) -> str:
    body = put(body, place, value)
    return json.dumps({**body, "hash": manifest_hash(body)})


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        *((place, value, f"{says} is larger than") for place, value, says in PLACES),
        (("limits", "run_seconds"), 4e8, "run_seconds"),
    ],
)
def test_a_number_beyond_any_machine_and_a_limit_longer_than_any_timer_are_named(place, value, says):
    body = json.loads(synthetic_manifest().model_dump_json(by_alias=True))
    with pytest.raises(DamagedBundle, match=says) as caught:
        parse_manifest(changed(body, place, value), "manifest.json")
    assert len(str(caught.value)) < 200


def test_one_hostile_bundle_stops_neither_verify_nor_report(tmp_path: Path) -> None:
    good = make_bundle(tmp_path, synthetic_manifest())
    for number, (place, value, _) in enumerate(PLACES):
        path = make_bundle(tmp_path, synthetic_manifest(repeat=number + 2))
        body = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(changed(body, place, value))
    checked = verify_all([Bundle(path) for path in tmp_path.iterdir()])
    found = {bundle.path: result.status for bundle, result in checked}
    assert found.pop(good) == "missing record" and set(found.values()) == {"damaged"}
    assert len(read_entries([tmp_path]).entries) == 1


def test_more_uneven_samples_than_a_manifest_can_list_are_refused() -> None:
    with pytest.raises(ValueError, match="samples of uneven lengths are more than the 500000"):
        synthetic_manifest(workload=grpo_workload(rollouts=1 << 23))


@pytest.mark.parametrize(
    ("part", "field", "value", "says"),
    [
        ("size", "layers", 10**18, "layers is larger"),
        ("size", "heads", 3, "heads"),
        ("workload", "prompt_tokens", 10**9, "exceed the"),
        ("run", "id", "../../etc", "cannot be the name of a folder"),
        ("layout", "data", 3, "ranks"),
        ("work", "global_rollouts", 80, "work is not what workload and layout give"),
        ("work", "micro_batch", 3, "work is not what workload and layout give"),
    ],
)
def test_a_manifest_that_hashes_right_but_means_nothing_is_damage(part: str, field: str, value: Any, says: str) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS)
    body = put(json.loads(manifest.model_dump_json(by_alias=True)), (part, field), value)
    size = manifest.size.model_copy(update=body["size"])
    workload = manifest.workload.model_copy(update={"prompt_tokens": body["workload"]["prompt_tokens"]})
    body["work_hash"] = work_hash(size, workload, 2, 0)
    with pytest.raises(DamagedBundle, match=says):
        parse_manifest(json.dumps({**body, "hash": manifest_hash(body)}), "manifest.json")


def test_half_a_character_in_a_plans_name_is_refused_in_a_repeat_of_a_known_manifest_too() -> None:
    text = synthetic_manifest(repeat=7).model_dump_json(by_alias=True)
    parse_manifest(text, "manifest.json")
    with pytest.raises(DamagedBundle):
        parse_manifest(json.dumps(put(json.loads(text), ("run", "plan"), "\ud800")), "manifest.json")
