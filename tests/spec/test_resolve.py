"""A layout multiplies to its world; with a workload it gives a replica's work, and a manifest whose hashes hold."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.spec.base import UsageError, canonical_json
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Work, manifest_hash, work_hash
from suite.spec.resolve import layout_errors, make_manifest, resolve_work
from suite.spec.workload import Workload
from tests.synthetic import synthetic_manifest


def workload(**changes):
    body = {"name": "w", "prompt_tokens": 16, "new_tokens": 16, "rollouts": 4, "micro_batch": 4}
    return Workload(**{**body, **changes})


def manifest(zero_stage=2, **changes):
    return synthetic_manifest(layout=Layout(devices_per_node=2, data=2, zero_stage=zero_stage), **changes)


@given(
    rollouts=st.integers(1, 64), data=st.integers(1, 8), tensor=st.sampled_from([1, 2, 4]), steps=st.integers(1, 4),
    micro=st.integers(1, 16), scaling=st.sampled_from(["weak", "strong"]),
)  # fmt: skip
def test_the_work_of_all_replicas_is_the_workload(rollouts, data, tensor, steps, micro, scaling):
    load = workload(rollouts=rollouts, optimizer_steps=steps, micro_batch=micro, scaling=scaling)
    layout = Layout(devices_per_node=tensor * data, tensor=tensor, data=data)
    assume(not layout_errors(find_size("1M"), load, layout))
    work = resolve_work(find_size("1M"), load, layout)
    assert work.global_rollouts == rollouts * (tensor * data if scaling == "weak" else 1)
    assert work.replica_rollouts * data == work.global_rollouts
    assert work.replica_batch * steps == work.replica_rollouts
    assert work.replica_batch % work.micro_batch == 0
    assert work.micro_batch <= micro


@pytest.mark.parametrize(
    ("size", "changes", "layout", "reason"),
    [
        ("3M", {}, {"tensor": 4}, "3M has 6 heads (6 key-value), not divisible by tensor parallel 4: choose a divisor"),
        ("8M", {}, {"pipeline": 3}, "8M has 8 layers, not divisible by pipeline parallel 3"),
        ("1M", {"new_tokens": 113}, {}, "129 tokens per sample exceed the 128 positions of 1M"),
        ("1M", {"trainable_layers": 3}, {}, "3 trainable layers exceed the 2 of 1M: fewer --trainable-layers"),
        ("1M", {"rollouts": 3, "scaling": "strong"}, {"data": 2}, "3 rollouts are not divisible by data parallel 2"),
        ("1M", {"new_tokens": 15}, {"tensor": 2, "sequence_parallel": True}, "31 tokens per sample are not divisible"),
    ],
)
def test_what_does_not_divide_is_refused_with_its_values(size, changes, layout, reason):
    degrees = {"tensor": 1, "pipeline": 1, "data": 1, **layout}
    ranks = degrees["tensor"] * degrees["pipeline"] * degrees["data"]
    with pytest.raises(UsageError) as caught:
        resolve_work(find_size(size), workload(**changes), Layout(devices_per_node=ranks, **degrees))
    assert reason in str(caught.value)


def test_every_reason_is_given_at_once():
    load = workload(new_tokens=200, trainable_layers=9)
    assert len(layout_errors(find_size("3M"), load, Layout(devices_per_node=4, tensor=4, data=1))) == 3


def test_a_manifest_survives_its_json_and_refuses_a_changed_one():
    made = manifest()
    body = made.model_dump(mode="json", by_alias=True)
    assert Manifest.model_validate(body) == made
    with pytest.raises(ValidationError, match="changed after it was made"):
        Manifest.model_validate({**body, "measure": {**body["measure"], "iterations": 9}})
    with pytest.raises(ValidationError, match="work hash"):
        Manifest.model_validate({**body, "work_hash": "0" * 64})


def test_the_run_is_outside_the_hash_and_inside_the_run_id():
    first, second = manifest(), manifest(plan="q", repeat=2)
    assert first.hash == second.hash
    assert first.run.id == f"deepspeed-1M-n2-{first.hash[:8]}-r1"
    assert second.run.id.endswith("-r2")
    fields = ("backend", "size", "workload", "layout", "measure", "limits", "stack")
    same = {name: getattr(first, name) for name in fields}
    images = ("sha256:1", "sha256:1", "sha256:2")
    there, again, other = (make_manifest(plan="plan", repeat=1, image=image, **same) for image in images)
    assert first.hash == there.hash == other.hash, "an image is no part of it"
    assert there.run.id == again.run.id and len({first.run.id, there.run.id, other.run.id}) == 3


def test_equal_work_does_not_depend_on_names_or_on_the_word_for_its_scaling():
    size, load = find_size("1M"), workload(rollouts=2)
    renamed = size.model_copy(update={"name": "other", "note": None, "source": None})
    strong = load.model_copy(update={"name": "s", "rollouts": 8, "scaling": "strong"})
    assert work_hash(size, load, 4, 0) == work_hash(renamed, strong, 4, 0)
    assert work_hash(size, load, 4, 0) != work_hash(size, load, 2, 0)
    assert work_hash(size, load, 4, 0) != work_hash(size, load.model_copy(update={"ppo_epochs": 2}), 4, 0)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)))
def test_canonical_json_does_not_depend_on_the_order_of_keys_and_has_no_nan(data):
    assert canonical_json(dict(reversed(data.items()))) == canonical_json(data)
    with pytest.raises(ValueError):
        canonical_json({**data, "a": float("nan")})


EVEN = {"global_rollouts": 2, "replica_rollouts": 2, "replica_batch": 2, "micro_batch": 1}


@pytest.mark.parametrize(("prompt", "response"), [([1], [1, 2]), ([1, 2], [1, 2, 3]), ([1, 2], [1, 0]), ([], [])])
def test_lengths_of_other_samples_or_of_nothing_are_refused(prompt, response):
    assert Work.model_validate({**EVEN, "lengths": {"prompt": [1, 2], "response": [3, 4]}})
    with pytest.raises(ValidationError, match="lengths are those of 2 samples"):
        Work.model_validate({**EVEN, "lengths": {"prompt": prompt, "response": response}})


@pytest.mark.parametrize("uneven", [True, False])
def test_a_manifest_has_lengths_where_its_workload_is_uneven_and_nowhere_else(uneven):
    load = find_workload("cpu").changed({"lengths": "lognormal:mean=16,sigma=0.6,cap=32"} if uneven else {})
    made = synthetic_manifest(size=find_size("1M"), workload=load)
    body = made.model_dump(mode="json", by_alias=True)
    samples = body["work"]["global_rollouts"]
    assert Manifest.model_validate(body) == made
    body["work"]["lengths"] = None if uneven else {"prompt": [1] * samples, "response": [1] * samples}
    with pytest.raises(ValidationError, match="the work of an uneven workload, and of no other"):
        Manifest.model_validate({**body, "hash": manifest_hash(body)})


degrees = st.sampled_from([1, 2, 4, 8])


@given(tensor=degrees, pipeline=degrees, data=degrees, nodes=degrees)
def test_a_layout_stands_only_if_its_degrees_multiply_to_the_ranks(tensor, pipeline, data, nodes):
    def make(devices):
        return Layout(nodes=nodes, devices_per_node=devices, tensor=tensor, pipeline=pipeline, data=data)

    world = tensor * pipeline * data
    if world % nodes == 0:
        assert make(world // nodes).ranks == world
    with pytest.raises(ValidationError, match="but there are"):
        make(world + 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sequence_parallel": True}, "tensor parallel of at least 2"),
        ({"offload_parameters": True, "zero_stage": 2}, "stage 3 only"),
        ({"offload_optimizer": True}, "stages 1 to 3 only"),
        ({"zero_stage": 4}, "less than or equal to 3"),
        ({"engine": "ddp", "zero_stage": 2}, "DDP shards nothing: ZeRO stage 2 is DeepSpeed's"),
        ({"engine": "fsdp2"}, "FSDP2 shards everything, as ZeRO stage 3 does"),
        ({"engine": "fsdp2", "zero_stage": 3, "gather_for_generation": True}, "gathers nothing once"),
        ({"tensor": 0}, "greater than 0"),
        ({"tensor_parallel": 2}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        Layout(devices_per_node=2, data=2, **fields)
