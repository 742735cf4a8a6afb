"""What real engines compute in each phase is what the theory counts: the proof that their work is equal.

torch's own counter over one iteration on the CPU, attention as plain matrix products. Run as a script this file is the
rank: ``python -m tests.worker.engines.test_flops BACKEND`` prints one JSON object, case -> phase -> FLOPs.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from suite.spec.manifest import Manifest
from suite.theory.flops import iteration_flops
from tests.worker.tiny import be_rank, tiny_manifest, told_by_ranks

LLAMA = {"architecture": "llama", "kv_heads": 2, "ffn": 80, "tied_embeddings": False}
UNEVEN = {"lengths": "lognormal:mean=5,sigma=0.6,cap=8", "prompt_lengths": "lognormal:mean=5,sigma=0.6,cap=8"}
PHASES = ("generate", "score", "reference", "train")
#: name -> what differs from training everything in micro batches, all rollouts in one optimizer step
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "two epochs of two steps": {"workload": {"ppo_epochs": 2, "optimizer_steps": 2, "micro_batch": 1}},
    "recompute": {"layout": {"recompute": "full"}},
    "last layer": {"workload": {"trainable_layers": 1}},
    "llama": {"shape": LLAMA},
    "qwen3": {"shape": {**LLAMA, "architecture": "qwen3", "head_width": 12, "tied_embeddings": True}},
}
OWN_CASES: dict[str, dict[str, dict[str, Any]]] = {
    "deepspeed": {
        "hydra": {"workload": {"trainable_layers": 1, "reference": "hydra"}},
        "zero 3": {"layout": {"zero_stage": 3}},
        "adapters": {"workload": {"lora_rank": 2}},
        "critic": {"workload": {"critic": {"layers": 1, "hidden": 16, "ffn": 64, "heads": 2}}},
        "packed": {"shape": LLAMA, "workload": UNEVEN, "layout": {"packing": True}},
        "packed in groups": {
            "shape": LLAMA,
            "workload": {**UNEVEN, "algorithm": "grpo", "group": 2},
            "layout": {"packing": True},
        },
    },
    "megatron": {
        "distributed optimizer": {"layout": {"distributed_optimizer": True}},
        "packed": {"shape": LLAMA, "workload": UNEVEN, "layout": {"packing": True}},
        "mixtral": {"shape": {**LLAMA, "architecture": "mixtral", "experts": {"count": 4, "per_token": 2}}},
    },
}


def cases_of(backend: str) -> dict[str, Manifest]:
    asked = {**CASES, **OWN_CASES[backend]}
    # Megatron pads its vocabulary to a multiple of 128, which this shape is.
    base = {"layers": 3, "vocab": 256}
    return {
        name: tiny_manifest(stack={}, **{**each, "shape": {**base, **each.get("shape", {})}})
        for name, each in asked.items()
    }


# --- the program of one rank -----------------------------------------------------------------------------------------


def count(backend: str, manifest: dict[str, Any], world: Any) -> dict[str, Any]:
    """FLOPs of each phase of the first iteration, how often a model ran in it, and where cuDNN's attention was set."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from suite.worker.loop import Loop
    from suite.worker.recorder import NullRecorder
    from suite.worker.registry import backend_class
    from tests.worker.engines.host_reads import host_reads

    found: dict[str, Any] = {}

    class Counter(NullRecorder):
        @contextmanager
        def phase(self, name: str) -> Iterator[None]:
            before = len(calls)
            with (
                host_reads(lambda: len(calls)) as sites,
                FlopCounterMode(display=False) as counter,
                sdpa_kernel(SDPBackend.MATH),
                mock.patch.object(torch.backends.cuda, "enable_cudnn_sdp") as cudnn,
            ):
                yield
            found[f"cuDNN in {name}"] = [call.args[0] for call in cudnn.call_args_list]
            found[name], found[f"calls to {name}"] = counter.get_total_flops(), len(calls) - before
            waits = {site for site, moments in sites.items() if any(before < one < len(calls) for one in moments)}
            found[f"waits in {name}"] = sorted(waits)

    engine, calls = backend_class(backend, "cpu")(manifest, world), []
    for model in engine.models:  # as a recorder watches them
        model.register_forward_hook(lambda *_: calls.append(1))
    Loop(engine, manifest).run_iteration(0, Counter())
    return found


def rank_program(world: Any) -> None:
    backend, counts = sys.argv[1], {}
    for name, manifest in cases_of(backend).items():
        counts[name] = count(backend, manifest.model_dump(mode="json", by_alias=True), world)
        if backend == "megatron":
            from suite.worker.engines.megatron.stack import parallel_state

            parallel_state.destroy_model_parallel()
    print(json.dumps(counts))


# --- the tests -------------------------------------------------------------------------------------------------------

pytestmark = [pytest.mark.ranks, pytest.mark.ci, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=["deepspeed", "megatron"])
def counted(request, tmp_path_factory) -> tuple[str, dict[str, dict[str, int]]]:
    """A backend and what its engine computed."""
    folder = tmp_path_factory.mktemp("flops")
    (found,) = told_by_ranks(["tests.worker.engines.test_flops", request.param], 1, folder)
    return request.param, found


def expected(backend: str, manifest: Manifest) -> dict[str, int]:
    size, samples, recompute = manifest.size, manifest.work.global_rollouts, manifest.layout.recompute == "full"
    flops = iteration_flops(size, manifest.workload, samples, recompute=recompute, lengths=manifest.work.lengths)
    again = flops.recompute
    if recompute and backend == "deepspeed":
        # PyTorch's checkpoint stops once it has what backward needs: before each block's last product.
        again -= samples * manifest.workload.sequence_tokens * size.layers * 2 * size.hidden * size.ffn
    wanted = {"score": flops.score, "reference": flops.reference, "train": flops.train + again}
    if manifest.work.lengths is None:  # Hugging Face pads prompts and goes on with samples that have their length
        wanted["generate"] = flops.generate
    return wanted


def test_every_phase_computes_what_the_theory_counts(counted: tuple[str, dict[str, dict[str, int]]]) -> None:
    backend, found = counted
    wanted = {name: expected(backend, manifest) for name, manifest in cases_of(backend).items()}
    assert {name: {phase: found[name].get(phase, 0) for phase in phases} for name, phases in wanted.items()} == wanted


def test_every_token_and_every_micro_batch_is_a_sign_of_life(counted: tuple[str, dict[str, dict[str, int]]]) -> None:
    backend, found = counted
    for name, manifest in cases_of(backend).items():
        longest = 8 if manifest.work.lengths is None else max(manifest.work.lengths.response)
        assert found[name]["calls to generate"] >= longest, name
        assert found[name]["calls to score"] > 0 < found[name]["calls to train"], name


def test_cudnns_attention_is_left_out_of_generation_alone(counted: tuple[str, dict[str, dict[str, Any]]]) -> None:
    for name, told in counted[1].items():
        assert {phase for phase in PHASES if told.get(f"cuDNN in {phase}")} == {"generate"}, name
        assert told["cuDNN in generate"][0] is False and len(told["cuDNN in generate"]) == 2


def test_in_the_midst_of_a_phase_the_host_waits_for_the_device_only_where_the_table_says(counted):
    """Between the first and the last micro batch, or token: nothing of the suite's own waits there."""
    backend, found = counted
    table = Path("docs/results/checks.md").read_text()
    for name, manifest in cases_of(backend).items():
        if manifest.workload.optimizer_steps * manifest.workload.ppo_epochs == 1:
            waits = {site for phase in PHASES for site in found[name].get(f"waits in {phase}", ())}
            assert [site for site in sorted(waits) if f"`{site}`" not in table] == [], name


if __name__ == "__main__":
    be_rank(rank_program)
