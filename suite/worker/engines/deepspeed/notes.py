"""What a reader of the DeepSpeed engine's figures must know."""

from typing import Any, Dict, Iterator

from suite.worker.algorithms import build_algorithm
from suite.worker.deepspeed_json import bucket_notes, overlaps
from suite.worker.engines.base import WITHOUT_CUDNN
from suite.worker.engines.deepspeed.families import FAMILIES
from suite.worker.engines.deepspeed.rows import attention_kernel
from suite.worker.hugging_face import head_width
from suite.worker.models import DTYPES, padded_vocab
from suite.worker.world import World


def notes_of(manifest: Dict[str, Any], world: World) -> Iterator[str]:
    layout, stage = manifest["layout"], manifest["layout"]["zero_stage"]
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): torch compiles nothing in this engine"
    precision = manifest["measure"]["precision"]
    rows = padded_vocab(manifest["size"]["vocab"])
    if rows != manifest["size"]["vocab"]:
        yield "vocabulary padded to {} rows: no probability, no gradient, not counted".format(rows)
    if precision != "fp32":
        yield "gradients are accumulated and reduced in {} (DeepSpeed's default)".format(precision)
    if overlaps(manifest):
        yield "gradients are reduced while backward still runs (overlap_comm, as DeepSpeed-Chat sets it)"
    yield from _attention_notes(manifest, world)
    yield "logits are computed for response positions only; log-probs in fp32"
    own_generation = layout.get("generation", "hf") == "hf"
    if own_generation:
        yield from _generation_notes(manifest, world)
    if not build_algorithm(manifest["workload"]).uses_reference:
        yield "no reference policy: the algorithm asks it for nothing"
    elif manifest["workload"]["reference"] == "hydra":
        yield "hydra reference: the trunk's states are kept from the score phase; the frozen output head is shared"
    elif stage == 3:
        yield "the full reference copy is partitioned by ZeRO-3, as DeepSpeed-Chat does"
    else:
        yield "the full reference copy is whole on every rank"
    yield from bucket_notes(manifest)
    if own_generation and layout.get("gather_for_generation"):
        yield "generation under ZeRO-3 gathers all weights once (DeepSpeed's unwrap_model_for_generation, as under TRL)"
    elif own_generation and stage == 3:
        yield "generation under ZeRO-3 gathers every layer's weights anew for each token (no hybrid engine is used)"
    if stage == 3:
        yield "ZeRO-3 keeps parameters below 1e5 elements whole (DeepSpeed's default persistence threshold)"
    if manifest["workload"].get("lora_rank") or manifest["workload"].get("critic"):
        yield from _chat_notes(manifest["workload"])
    if world.device.type == "cpu":
        yield "CPU patch: DeepSpeed's shared-memory all-reduce is not compiled; gloo is used"


def _attention_notes(manifest: Dict[str, Any], world: World) -> Iterator[str]:
    size = manifest["size"]
    yield "attention: PyTorch's scaled dot-product attention"
    if manifest["layout"].get("packing"):
        kernel = attention_kernel(world.device, DTYPES[manifest["measure"]["precision"]], head_width(size))
        yield "packed rows, of a micro batch's samples end to end, in scoring and training: {}".format(kernel)
    if FAMILIES[size["architecture"]].rotary:
        yield "rotary frequencies are kept in fp32 (DeepSpeed would convert them with the weights)"


def _generation_notes(manifest: Dict[str, Any], world: World) -> Iterator[str]:
    yield "generation: one batch per replica, Hugging Face generate with a dynamic key-value cache"
    if world.device.type == "cuda":
        yield WITHOUT_CUDNN
    if manifest["workload"].get("prompt_lengths"):
        yield "generation: prompts are padded in front to the longest of the replica, with a mask"
    if manifest["workload"].get("lengths"):
        yield "generation: a finished sample stays in the batch until the longest ends; what it gets then is cut off"


def _chat_notes(workload: Dict[str, Any]) -> Iterator[str]:
    """How far a workload with adapters or a critic goes as in DeepSpeed-Chat."""
    yield "no hybrid engine: DeepSpeed has none for these models; generation runs on the training weights"
    if workload.get("lora_rank"):
        yield "LoRA adapters stay unfused in generation; query, key and value have one each, on a joint matrix too"
        yield "biases, norms and embeddings train beside the adapters, as in DeepSpeed-Chat's scripts"
    if workload.get("critic"):
        yield "critic: a GPT-2 trunk of its own shape on the policy's vocabulary, never recomputed, in its own engine"
        yield "gradient norm is the policy's; policy and critic are clipped apart"
