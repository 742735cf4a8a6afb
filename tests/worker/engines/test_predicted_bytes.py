"""What the planner predicts of weights, gradients and optimizer states is at least what the engines' own tensors take.

Real bf16 ranks on the CPU build each layout in turn, take some optimizer steps, and count: bytes of all live tensors
between phases, the peak of a step by the allocations in it, and what a step sends. On a CPU memory is of device and
host together, so what is offloaded is compared with the sum of the two predictions. ``HybridDeviceOptimizer``, which
offloads Megatron's states, moves nothing where parameters are on the CPU already: its layout is counted by its class.
Run as a script this file is one rank: ``python -m tests.worker.engines.test_predicted_bytes MANIFESTS``.
"""

import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from suite.planner.ask import Question
from suite.planner.hardware import hardware_of
from suite.planner.memory import MEGATRON_LEAVES, OPTIMIZER_BYTES, host_memory, standing_bytes, training_phases
from suite.planner.parameters import load_parameters
from suite.planner.predict_manifest import one_layout
from suite.planner.profiles import PROFILES
from suite.planner.training import local_parameters, step_parts
from suite.spec.catalogue import devices
from suite.spec.manifest import Manifest
from tests.worker.engines.batches import even_batch, loss_of
from tests.worker.engines.cases import asked_for, cases_of
from tests.worker.tiny import be_rank, tiny_manifest, told_by_ranks

#: Its matrices have more than 1e5 elements each: smaller parameters stay whole under ZeRO-3.
SHAPE = {"layers": 2, "hidden": 320, "ffn": 1280, "heads": 4, "kv_heads": 4, "vocab": 2000, "positions": 64}
WORK = {"rollouts": 4, "micro_batch": 2}
HYDRA = {"trainable_layers": 1, "reference": "hydra"}
CHAT = {"lora_rank": 320, "critic": {"layers": 1, "hidden": 320, "ffn": 1280, "heads": 4}}
HOST, ALL_HOST = {"offload_optimizer": True}, {"offload_optimizer": True, "offload_parameters": True}
SHARDED = {"distributed_optimizer": True}
#: backend, layout, workload; two ranks
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{f"zero{stage}": ("deepspeed", {"zero_stage": stage}, {}) for stage in range(4)},
    **{f"zero{stage} hydra": ("deepspeed", {"zero_stage": stage}, HYDRA) for stage in (2, 3)},
    **{f"zero{stage} lora critic": ("deepspeed", {"zero_stage": stage}, CHAT) for stage in (2, 3)},
    **{f"zero{stage} offload": ("deepspeed", {"zero_stage": stage, **HOST}, {}) for stage in (1, 2, 3)},
    "zero3 all offload": ("deepspeed", {"zero_stage": 3, **ALL_HOST}, {}),
    "megatron dp2": ("megatron", {}, {}),
    "megatron dp2 dist-opt": ("megatron", SHARDED, {}),
    "megatron dp2 dist-opt frozen": ("megatron", SHARDED, {"trainable_layers": 1}),
    "megatron tp2": ("megatron", {"tensor": 2, "data": 1, **SHARDED}, {}),
    "megatron tp2 sp": ("megatron", {"tensor": 2, "data": 1, "sequence_parallel": True, **SHARDED}, {}),
    "megatron pp2": ("megatron", {"pipeline": 2, "data": 1, **SHARDED}, {}),
}
#: One of each kind of sharding and offload; the others are tried by `make test-nightly`.
IN_EVERY_ROUND = ("zero0", "zero2 lora critic", "zero3 all offload", "megatron dp2 dist-opt frozen", "megatron tp2 sp")
#: What fragmentation adds is fitted: of so small a model it may miss a few blocks of the allocator.
LEAST = 0.995
#: States are predicted at most this much above what is counted.
MOST_ABOVE = 1.15
STATES = ("weights", "reference", "optimizer states", "gradients")


def manifest_of(case: str) -> Manifest:
    _backend, layout, work = CASES[case]
    measure = {"precision": "bf16"}
    return tiny_manifest(2, shape=SHAPE, layout=layout, workload={**WORK, **work}, measure=measure, stack={})


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(world: Any) -> None:
    """Each case's bytes that this rank ``held`` between and in a ``step``, and ``sent``, and parameters, as JSON."""
    found = {}
    for case, (backend, manifest) in json.loads(Path(sys.argv[1]).read_text()).items():
        found[case] = count_bytes(backend, manifest, world)
        gc.collect()
    print(json.dumps(found))


def count_bytes(backend: str, manifest: dict[str, Any], world: Any) -> dict[str, float]:
    from suite.worker.registry import backend_class
    from tests.worker.engines.messages import Messages

    build = backend_class(backend, "cpu")
    gc.collect()
    gc.freeze()  # what is there already is not looked at again
    engine = build(manifest, world)
    train_once(engine, manifest, None)  # the moments of Adam come with the first step
    with Messages() as messages:
        train_once(engine, manifest, None)
    # A step does the same each time; now and then the profiler lays a copy of gloo's threads to it.
    steps: list[list[int]] = [[], [], []]
    for peaks in steps:
        train_once(engine, manifest, peaks)
    gc.collect()
    found = {"held": live_bytes(), "step": min(map(max, steps))}
    found |= {"sent": sum(messages.bytes.values()), "total": engine.total_parameters}
    if backend == "megatron":
        from suite.worker.engines.megatron.stack import parallel_state

        parallel_state.destroy_model_parallel()
    return found


def train_once(engine: Any, manifest: dict[str, Any], peaks: list[int] | None) -> None:
    """One optimizer step on random numbers; the peak of each model's step is added to ``peaks``, if given."""
    import torch

    from suite.worker.samples import Samples

    rows, prompt, new = manifest["work"]["replica_batch"], 8, 8
    samples = Samples.even(torch.randint(SHAPE["vocab"], (rows, prompt + new)), prompt)
    if manifest["workload"]["reference"] == "hydra":
        engine.score(samples)
    engine.reference(samples)
    batch = {name: torch.randn(rows, new) for name in ("logprobs", "values", "advantages", "returns")}
    wrapped = [] if peaks is None else [optimizer for optimizer in optimizers_of(engine) if optimizer is not None]
    for optimizer in wrapped:
        optimizer.step = partial(measured, optimizer.step, peaks)
    engine.train(samples, even_batch(manifest, **batch), loss_of(manifest))
    for optimizer in wrapped:
        del optimizer.step


def optimizers_of(engine: Any) -> Iterator[Any]:
    """The stacks' own, which wrap torch's."""
    if hasattr(engine, "_engine"):
        yield engine._engine.optimizer
        yield engine._critic and engine._critic.optimizer
    else:
        yield engine._optimizer


def measured(step: Any, peaks: list[int], *args: Any, **options: Any) -> Any:
    """A step; what is held before it and its peak of allocations beside that are added up in ``peaks``."""
    import torch

    gc.collect()
    start = live_bytes()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = step(*args, **options)
    changes: list[int] = []
    own: set[int] = set()
    for event in sorted(
        stacks_own(profiler.profiler.kineto_results.experimental_event_tree()), key=lambda one: one.start_time_ns
    ):
        name, detail = event.typed
        if name == torch._C._profiler._EventType.Allocation and (detail.alloc_size > 0 or detail.ptr in own):
            own.add(detail.ptr)
            changes.append(detail.alloc_size)
    peaks.append(start + int(np.cumsum(changes).max(initial=0)))
    return result


def stacks_own(events: Any) -> Iterator[Any]:
    """All events but those inside of gloo's collectives, which copy what NCCL does not."""
    for event in events:
        if not event.name.startswith(("c10d::", "gloo:")):
            yield event
            yield from stacks_own(event.children)


def live_bytes() -> int:
    """Bytes of the storages of all tensors that Python reaches since ``gc.freeze``, gradients of leaves in."""
    import torch

    storages = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.device.type == "cpu":
            for tensor in (one, one.grad if one.is_leaf else None):
                if tensor is not None:
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


# --- the tests -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Of the rank that needs more, by case, for the cases that are asked for."""
    folder = tmp_path_factory.mktemp("bytes")
    cases = asked_for(request, CASES)
    bodies = {case: (CASES[case][0], manifest_of(case).model_dump(mode="json", by_alias=True)) for case in cases}
    (folder / "manifests.json").write_text(json.dumps(bodies))
    each = told_by_ranks(["tests.worker.engines.test_predicted_bytes", str(folder / "manifests.json")], 2, folder)
    return {case: {name: max(one[case][name] for one in each) for name in each[0][case]} for case in cases}


def planned(case: str) -> Any:
    """The work of a case as the planner counts it."""
    manifest, hardware = manifest_of(case), next(filter(None, map(hardware_of, devices().values())))
    asked = Question(manifest.size, manifest.workload, hardware, PROFILES[CASES[case][0]], load_parameters())
    return one_layout(asked, manifest.work, manifest.layout).work


def predicted(case: str) -> dict[str, float]:
    """Bytes of states on device and host, between phases and in an optimizer step, with what fragmentation adds."""
    work, known = planned(case), load_parameters()
    moments = {"held": standing_bytes(work, known.values), "step": training_phases(work, known.values)["step"]}
    host = float(host_memory(work)[0]) / manifest_of(case).layout.ranks
    more = 1 + known.values["fragmentation"]
    return {name: more * sum(float(parts[part][0]) for part in STATES) + host for name, parts in moments.items()}


@pytest.mark.ranks
@pytest.mark.ci
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", cases_of(CASES, IN_EVERY_ROUND))
def test_predicted_states_are_at_least_what_the_engine_holds_and_little_more(case, counted):
    for moment, expected in predicted(case).items():
        share = expected / counted[case][moment]
        assert LEAST <= share <= MOST_ABOVE, f"{moment}: {share:.3f} of what is held"


@pytest.mark.ranks
@pytest.mark.ci
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", cases_of([f"zero{stage}" for stage in range(4)], IN_EVERY_ROUND))
def test_zero_sends_what_the_planner_counts_of_a_parameter(case: str, counted: dict[str, dict[str, float]]) -> None:
    """Its seconds over links of a byte per second, behind which little hides."""
    work = planned(case)
    one = np.ones(len(work))
    slow = replace(work, jobs=replace(work.jobs, link=one, network=one))
    hidden = {"data_exposed": 1.0, "data_last": 0.0, "gather_exposed": 0.0, "gather_bandwidth": 1.0}
    parts = step_parts(slow, {**load_parameters().values, **hidden})
    seconds = float((parts["parameter gathers"] + parts["gradient reduction"])[0])
    expected = seconds / float(local_parameters(slow.jobs)[0])
    assert expected == pytest.approx(counted[case]["sent"] / counted[case]["total"], rel=0.03)


@pytest.mark.slow
def test_megatrons_offload_leaves_fp32_weights_on_the_device_and_sixteen_bytes_a_parameter_on_the_host(monkeypatch):
    """megatron-core's own class takes a step on tensors that say they are on a GPU and hold no memory.

    Replaced are CUDA's streams, pinning, and the copy of the new weights back to the device, which allocates nothing.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from suite.worker.engines.megatron import stack

    hybrid = sys.modules[stack.get_megatron_optimizer.__module__].HybridDeviceOptimizer
    make_empty, adam = torch.empty, torch.optim.AdamW
    for name in ("current_stream", "Stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, mock.MagicMock())
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **options: make_empty(*size, **options))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(hybrid, "_register_param_copy_back_gpu_hook", lambda _optimizer: None)
    elements = 1013
    with FakeTensorMode():
        shard = make_empty(elements, device="cuda")
        optimizer = hybrid(
            [{"params": [shard]}],
            offload_fraction=1.0,
            cpu_optimizer_cls=adam,
            gpu_optimizer_cls=adam,
            param_update_in_fp32=True,
            lr=1e-3,
            fused=True,
        )
        gradient = shard.grad = make_empty(elements, device="cuda")
        optimizer.step()
        tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor) and one.numel() == elements]
        held = {kind: [one for one in tensors if one.device.type == kind] for kind in ("cuda", "cpu")}
    beside = sum(one.nbytes for one in held["cuda"] if one is not gradient)
    assert beside == MEGATRON_LEAVES * elements, "the gradient is a view of Megatron's buffer"
    assert sum(one.nbytes for one in held["cpu"]) == OPTIMIZER_BYTES * elements


if __name__ == "__main__":
    be_rank(rank_program)
