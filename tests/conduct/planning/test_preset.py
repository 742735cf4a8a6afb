"""From a preset and the options beside it to requests and to one plan."""

from pathlib import Path
from typing import Any

import pytest

from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.request import GivenOptions, replaced, requests_of
from suite.spec.base import UsageError
from suite.spec.catalogue import Preset, find_preset

LADDER = find_preset("ladder")
STACKS = {"deepspeed": {"torch": "2"}, "megatron": {"torch": "2"}, "trlx-nemo": {"torch": "1.14"}}


def planned(preset: Preset, *backends: str, given: GivenOptions | None = None, **changes: Any) -> Plan:
    return make_joint_plan(requests_of(preset, given or GivenOptions(), common(*backends, **changes)), STACKS)


def common(*backends: str, **changes: Any) -> dict[str, Any]:
    layout = {"zero_stage": (), "tensor": (), "recompute": "none", **changes}
    measure = {"device": "cuda", "iterations": 3}
    return {"backends": backends, "layout": layout, "measure": measure, "repeats": 1}


def test_the_ladder_gives_every_backend_the_same_work_at_every_size() -> None:
    plan = planned(LADDER, "deepspeed", "megatron", "trlx-nemo")
    assert len(plan.manifests) == 18 and not plan.skipped
    for point in LADDER.points:
        rows = [m for m in plan.manifests if m.size.name == point.size]
        assert len({m.work_hash for m in rows}) == 1
        assert {m.workload.optimizer_steps for m in rows} == {1} and {m.track for m in rows} == {"equal-config"}
    changed = [note for note in plan.notes if "in the place of the preset's" in note]
    assert "tensor does not apply to deepspeed and was left out there" in plan.notes
    assert len(changed) == len(plan.notes) - 1
    assert any(note.startswith("megatron 66B: ") for note in changed), "80 GB are assumed, where tp8 dp4 does not fit"


def test_options_override_a_preset_and_each_that_does_has_its_line() -> None:
    work = {"trainable_layers": 4}
    given = GivenOptions(sizes=("66B", "13B"), ranks=(8,), work=work, track="tuned", precision="fp16")
    fields = common("megatron", tensor=(4,))
    plan = make_joint_plan(requests_of(LADDER, given, fields), STACKS)
    rows = [(m.size.name, m.layout.ranks, m.layout.tensor, m.layout.nodes) for m in plan.manifests]
    assert rows == [("66B", 8, 4, 1), ("13B", 8, 4, 1)]
    found = {(m.workload.trainable_layers, m.track, m.measure.precision) for m in plan.manifests}
    assert found == {(4, "tuned", "fp16")}
    assert list(replaced(LADDER, given, fields)) == [
        "preset ladder: --size 66B, 13B replaces 1.3B, 6.7B, 13B, 20B, 33B, 66B",
        "preset ladder: --ranks 8 replaces 32, 8",
        "preset ladder: --trainable-layers 4 replaces all",
        "preset ladder: --track tuned replaces equal-config",
        "preset ladder: --dtype fp16 replaces bf16",
        "preset ladder: --tp 4 replaces 8, 2",
    ]
    assert list(replaced(LADDER, GivenOptions(), common("megatron"))) == []
    given = GivenOptions(sizes=("1.3B-trlx",), workload="smoke")
    (request,) = requests_of(find_preset("trlx-ds-chat"), given, common("trlx-nemo"))
    assert (request.workload.name, request.workload.rollouts) == ("smoke", 4), "another workload takes its place"


@pytest.mark.parametrize(
    ("preset", "backend", "given", "words"),
    [
        ("ladder", "megatron", {"sizes": ("67B",)}, "no size of preset ladder '67B', did you mean"),
        ("ladder", "megatron", {"ladder": "cpu"}, "has its own sizes"),
        ("ladder", "megatron", {"shape_files": (Path("a.yaml"),)}, "has its own sizes"),
        *(
            ("ds-chat-step3", name, {"sizes": ("13B",)}, f"the {name} backend has no LoRA adapters.*no separate critic")
            for name in ("megatron", "trlx-nemo")
        ),
    ],
)
def test_what_a_preset_or_a_backend_does_not_have_is_refused_and_not_left_out(preset, backend, given, words) -> None:
    with pytest.raises(UsageError, match=words):
        planned(find_preset(preset), backend, given=GivenOptions(**given))


def test_generation_that_is_asked_for_replaces_a_presets_engine_and_its_sleep() -> None:
    asked = {"engine_sleep": None, "generation": (), "packing": False}
    for changes, expected in (
        ({}, (("vllm",), True, True)),
        ({"generation": ("hf",)}, (("hf",), None, True)),
        ({"engine_sleep": False}, (("vllm",), False, True)),
    ):
        fields = common("deepspeed", **{**asked, **changes})
        (made,) = requests_of(find_preset("grpo-8b"), GivenOptions(), fields)
        assert (made.layout.generation, made.layout.engine_sleep, made.layout.packing) == expected


@pytest.mark.parametrize("name", ["grpo-8b", "grpo-30b-moe", "reasoning-7b", "ppo-critic-7b"])
def test_a_twin_has_its_presets_algorithm_groups_and_spread_of_lengths(name: str) -> None:
    big, twin = find_preset(name), find_preset(f"{name}-cpu")
    work, small = (preset.work_of(preset.points[0]) for preset in (big, twin))
    assert (small.algorithm, small.group, small.ppo) == (work.algorithm, work.group, work.ppo)
    assert (small.lengths.sigma, small.lengths.at_cap) == (work.lengths.sigma, work.lengths.at_cap)
    assert work.new_tokens / small.new_tokens == pytest.approx(16 if name == "ppo-critic-7b" else 32, rel=0.01)
    assert (small.critic is None) == (work.critic is None) and big.note and big.source
