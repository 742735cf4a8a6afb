"""What each backend refuses before anything runs: each reason is one line, and names the way out."""

from typing import Any

import pytest

from suite.backends.base import unknown_work
from suite.backends.registry import backends, find_backend
from suite.spec.catalogue import find_preset, find_size
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.resolve import layout_errors
from suite.spec.shape import Experts
from tests.backends.asked import CPU, CUDA, layout_of, refusals, work_of

TRLX = ("trlx-deepspeed", "trlx-ddp")
SPLIT = {"placement": "split", "generation_ranks": 1}
HYDRA = {"trainable_layers": 1, "reference": "hydra"}
OPT = {"architecture": "opt", "kv_heads": 4, "heads": 4}
FP16 = {"precision": "fp16"}
ALL_UNEVEN = dict.fromkeys(("lengths", "prompt_lengths"), "lognormal:mean=4,sigma=0.6,cap=8")
THREE = {"devices_per_node": 3, "tensor": 3, "data": 1, "sequence_parallel": True}
TOKEN_BELOW = {"reward": {"kind": "token-below", "threshold": 5}}
CRITIC = {"critic": {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}}
ONE_EXPERT = Experts(count=4, per_token=1)
#: backend, what it is asked for, and words of the reason
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("deepspeed", {"layout": {"tensor": 2, "data": 1}}, "data parallel only"),
    ("deepspeed", {"measure": FP16}, "fp16"),
    ("deepspeed", {"size": {"name": "1M-moe"}}, "family: --backend megatron measures it"),
    ("deepspeed", {"size": OPT}, "--backend trlx-deepspeed measures it, and `suite plan --shape` predicts it"),
    ("deepspeed", {"size": {"hidden": 66, "head_width": 16}}, "hidden 66 to be divisible by its"),
    ("deepspeed", {"size": {"architecture": "gpt2"}}, "as many key-value heads as heads"),
    ("deepspeed", {"ranks": 4, "nodes": 2, **SPLIT}, "one node"),
    ("deepspeed", {"ranks": 3, "zero_stage": 3, "gather_for_generation": True, **SPLIT}, "--gather-for-generation"),
    ("megatron", {"ranks": 3, "tensor": 2, **SPLIT}, "tensor, pipeline and expert parallel must be 1"),
    ("megatron", {"layout": {"distributed_optimizer": True, "offload_optimizer": True}}, "on GPUs"),
    ("megatron", {"work": HYDRA}, "--reference full"),
    ("megatron", {"size": {"architecture": "gpt2"}}, "as many key-value heads as heads"),
    ("megatron", {"size": {"name": "1M-moe"}, "layout": {"tensor": 2, "data": 1}}, "with --ep and leave --tp at 1"),
    ("megatron", {"size": {"name": "1M-moe"}, "layout": {"kernels": "native"}}, "models without experts"),
    ("megatron", {"size": {"name": "1M-moe", "experts": ONE_EXPERT}}, "no router that gives the one expert"),
    ("megatron", {"layout": {"kernels": "native", "packing": True}}, "use --kernels torch"),
    ("megatron", {"kernels": "native"}, "on CUDA devices alone"),
    ("megatron", {"kernels": "native", "measure": {"device": "cuda"}}, "in bf16 and fp16"),
    ("megatron", {"bucket_elements": 5}, "in backward, on GPUs: no --bucket-elements"),
    ("openrlhf", {"zero_stage": 1}, "ZeRO stages 2, 3, not 1"),
    ("openrlhf", {"generation": "hf"}, "with vLLM alone"),
    ("openrlhf", SPLIT, "critic has devices of its own"),
    ("openrlhf", {"work": {"trainable_layers": 1}}, "trains all layers"),
    ("openrlhf", {"work": {"lora_rank": 2}}, "no LoRA adapters"),
    ("openrlhf", {"offload_optimizer": True}, "nothing to offload"),
    ("openrlhf", {"measure": FP16}, "--dtype bf16"),
    ("trl-grpo", {"work": {"algorithm": "rloo"}}, "runs grpo, and workload cpu asks for rloo: --algorithm grpo"),
    ("trl-grpo", {"work": ALL_UNEVEN}, "the trl-grpo backend has no prompts of uneven length, which workload cpu asks"),
    ("trl-grpo", {"layout": {"zero_stage": 1}}, "ZeRO stages 0, 2, 3, not 1"),
    ("trl-grpo", {"layout": {"tensor": 2, "data": 1}}, "data parallel only"),
    ("trl-grpo", {"measure": {"device": "cuda", **FP16}}, "measures fp32 and bf16, not fp16"),
    ("trl-rloo", {"size": OPT}, "builds gpt2, llama, qwen2, qwen3 models, and 1M-llama is of the opt family"),
    ("trl-ppo", {"work": {"rollouts": 1, "new_tokens": 1}}, "a rank's own tokens, and there is one"),
    ("trl-ppo", {"work": {"algorithm": "grpo", "group": 2}}, "algorithm grpo"),
    ("trlx-deepspeed", {"measure": FP16}, "fp16 is not trained on a CPU"),
    ("trlx-deepspeed", {"work": {"trainable_layers": 0, "reference": "hydra"}}, "train at least one layer"),
    ("trlx-deepspeed", {"size": {"kv_heads": 1}}, "key-value heads"),
    ("trlx-ddp", {"size": {"vocab": 3}}, "3 tokens for itself"),
    *((backend, {"size": {"name": "8M-qwen2"}}, "8M-qwen2 is of the qwen2 family") for backend in TRLX),
    *((backend, {"size": {"name": "Llama-3.1-8B"}}, "norm_epsilon, rope_theta, rope_scaling") for backend in TRLX),
    ("trlx-nemo", {"work": {"prompt_tokens": 256, "new_tokens": 256}, "layout": THREE}, "--no-sequence-parallel"),
    ("trlx-nemo", {"work": {"trainable_layers": 0}}, "--trainable-layers 1"),
    ("trlx-nemo", {"work": {"new_tokens": 1}}, "ask for 2 or more"),
    ("trlx-nemo", {"work": HYDRA}, "--reference full"),
    ("trlx-nemo", {"work": TOKEN_BELOW}, "token-below"),
    ("trlx-nemo", {"work": {"prompt_tokens": 256, "new_tokens": 1792}}, "2056 positions, more than the 2048"),
    ("trlx-nemo", {"measure": {"device": "cpu"}}, "--device cuda"),
    ("trlx-nemo", {"measure": FP16}, "--dtype bf16"),
    ("trlx-nemo", {"size": {"architecture": "llama"}}, "llama family"),
    ("trlx-nemo", {"size": {"tied_embeddings": False}}, "not tied"),
    ("trlx-nemo", {"size": {"kv_heads": 4}}, "has 4"),
    ("verl", {"work": {"algorithm": "rloo", "group": 2}}, "runs ppo and grpo"),
    ("verl", {"generation": "hf"}, "with vLLM alone"),
    ("verl", {"work": HYDRA}, "a full copy as its reference: --reference full"),
    ("verl", {"work": TOKEN_BELOW}, "a constant or pseudo reward"),
    ("verl", {"work": {"algorithm": "grpo", "group": 8, "rollouts": 8, "optimizer_steps": 4}}, "do not divide into 4"),
    ("nemo-rl", {"work": {"ppo_epochs": 2}}, "once, not 2 times"),
    ("nemo-rl", {"work": TOKEN_BELOW}, "not token-below"),
    ("nemo-rl", {"work": {"rollouts": 8, "optimizer_steps": 3}}, "8 prompts do not divide into 3 optimizer steps"),
    ("nemo-rl", {"measure": {"device": "cpu"}}, "use --device cuda"),
    ("nemo-rl", {"measure": {"precision": "fp32"}}, "measures bf16, not fp32: --dtype bf16"),
    ("nemo-rl", {"layout": {"nodes": 2, "devices_per_node": 1}}, "use --nodes 1"),
]


@pytest.mark.parametrize(("backend", "asked", "words"), REFUSED)
def test_what_a_stack_cannot_do_is_said_in_one_line_with_the_way_out(backend, asked, words):
    found = refusals(backend, **asked)
    assert any(words in reason for reason in found), found
    assert not any("\n" in reason for reason in found)


@pytest.mark.parametrize(
    ("backend", "asked"),
    [
        *((backend, {}) for backend in sorted(backends())),
        *((engine, {"work": {**ALL_UNEVEN, "algorithm": "grpo", "group": 2}}) for engine in ("deepspeed", "megatron")),
        *(("deepspeed", {"size": {"architecture": family}}) for family in ("qwen2", "qwen3")),
        ("deepspeed", {"work": HYDRA}),
        ("deepspeed", SPLIT),
        ("megatron", {"kernels": "native", "measure": {"device": "cuda", "precision": "bf16"}}),
        ("megatron", SPLIT),
        ("trlx-deepspeed", {"size": {**OPT, "heads": 4}}),
        ("trlx-deepspeed", {"size": {"name": "deepseek-llm-7b"}, "measure": {"device": "cuda", "precision": "bf16"}}),
        ("trlx-ddp", {"size": {"vocab": 4}}),
        ("trl-ppo", {"work": CRITIC}),
        *(("openrlhf", {"work": {"algorithm": name}}) for name in ("grpo", "rloo", "reinforce++")),
        ("openrlhf", {"work": {**ALL_UNEVEN, **CRITIC}}),
        ("openrlhf", {**SPLIT, "staleness": 1}),
        ("openrlhf", {"measure": {"precision": "bf16"}}),
        ("verl", {"work": {"algorithm": "grpo", "group": 4}}),
        ("nemo-rl", {"size": {"architecture": "qwen2"}}),
    ],
)
def test_what_it_can_do_is_not_refused(backend: str, asked: dict[str, Any]) -> None:
    assert refusals(backend, **asked) == []


@pytest.mark.parametrize(
    ("backend", "asked", "words"),
    [
        ("deepspeed", {"zero_stage": 2, "gather_for_generation": True}, "under ZeRO stage 3 only"),
        ("trlx-deepspeed", {"zero_stage": 0, "bucket_elements": 5}, "buckets from stage 1 on"),
        ("trl-grpo", {"engine": "ddp", "bucket_elements": 5}, "--bucket-elements: DeepSpeed's"),
        ("trl-grpo", {"engine": "ddp", "zero_stage": 2}, "--zero: DeepSpeed's, so not for --engine ddp"),
        ("trl-grpo", {"engine": "fsdp2", "offload_optimizer": True}, "--offload-optimizer: DeepSpeed's"),
        ("trl-ppo", {"engine": "fsdp2"}, "deepspeed or ddp"),
        ("trl-ppo", {"engine": "ddp", "zero_stage": 2}, "DeepSpeed's"),
        ("megatron", {"size": find_size("1M-moe"), "ranks": 4, "expert": 3}, "not divisible by 3"),
        ("trlx-nemo", {"ranks": 8, "tensor": 3}, "8 ranks do not divide into tensor parallel 3"),
        *((engine, {"placement": "split"}, "belong together") for engine in ("deepspeed", "megatron")),
        ("deepspeed", {"generation_ranks": 1}, "--placement split and --generation-ranks belong together"),
        ("openrlhf", {"staleness": 1}, "--staleness needs --placement split"),
        ("deepspeed", {"ranks": 1, **SPLIT}, "none is left to train"),
    ],
)
def test_a_layout_that_an_engine_does_not_have_is_refused(backend: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        layout_of(backend, **asked)


def test_more_trainable_layers_than_layers_and_heads_that_do_not_divide_are_told_by_the_rules_for_all() -> None:
    split = Layout(devices_per_node=3, tensor=3, data=1)
    errors = layout_errors(find_size("13B"), work_of("trlx-nemo", trainable_layers=41), split)
    assert any("40 heads" in error for error in errors) and any("41 trainable layers" in error for error in errors)


@pytest.mark.parametrize("preset", ["trainers-ppo", "trainers-ppo-critic", "trainers-ppo-1.3b"])
def test_every_backend_of_the_comparison_can_do_its_work(preset: str) -> None:
    found = find_preset(preset)
    (point,) = found.points
    size, work, measure = find_size(point.size), found.work_of(point), CUDA if found.precision == "bf16" else CPU
    for name in set(found.backends).intersection(backends()):
        driver = find_backend(name)
        made = driver.layout(size, work, LayoutRequest(devices_per_node=point.devices_per_node))
        assert driver.errors(size, work, made, measure) + unknown_work(driver, work) == []
        assert layout_errors(size, work, made) == []
