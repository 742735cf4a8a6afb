"""What a reader of the DeepSpeed engine's figures must know."""

from typing import Any, Dict, Iterator

from suite.worker.deepspeed_json import bucket_notes, overlaps
from suite.worker.engines.base import WITHOUT_CUDNN
from suite.worker.engines.deepspeed.families import FAMILIES
from suite.worker.engines.deepspeed.rows import attention_kernel
from suite.worker.hugging_face import head_width
from suite.worker.models import DTYPES, padded_vocab
from suite.worker.world import World


def notes_of(manifest: Dict[str, Any], world: World, uses_reference: bool) -> Iterator[str]:
    size, layout, workload = manifest["size"], manifest["layout"], manifest["workload"]
    precision, stage, rows = manifest["measure"]["precision"], layout["zero_stage"], padded_vocab(size["vocab"])
    generates, gathers = layout.get("generation", "hf") == "hf", layout.get("gather_for_generation")
    adapters, critic = workload.get("lora_rank"), workload.get("critic")
    kernel = attention_kernel(world.device, DTYPES[precision], head_width(size))
    told = [
        "torch.compile is off (TORCHDYNAMO_DISABLE): torch compiles nothing in this engine",
        rows != size["vocab"] and "vocabulary padded to {} rows: no probability, no gradient, not counted".format(rows),
        precision != "fp32" and "gradients are accumulated and reduced in {} (DeepSpeed's default)".format(precision),
        overlaps(manifest) and "gradients are reduced while backward still runs (overlap_comm, as in DeepSpeed-Chat)",
        "attention: PyTorch's scaled dot-product attention",
        layout.get("packing") and "packed rows, a micro batch's samples end to end, in all but generation: " + kernel,
        FAMILIES[size["architecture"]].rotary and "rotary frequencies are kept in fp32 (DeepSpeed would convert them)",
        "logits are computed for response positions only; log-probs in fp32",
        generates and "generation: one batch per replica, Hugging Face generate with a dynamic key-value cache",
        generates and world.device.type == "cuda" and WITHOUT_CUDNN,
        generates and workload.get("prompt_lengths") and "generation: prompts are padded in front, with a mask",
        generates and workload.get("lengths") and "generation: a sample stays in the batch until the longest ends",
        generates and gathers and "generation under ZeRO-3 gathers all weights once (unwrap_model_for_generation)",
        generates
        and stage == 3
        and not gathers
        and "generation under ZeRO-3 gathers each layer's weights for each token",
        stage == 3 and "ZeRO-3 keeps parameters below 1e5 elements whole (DeepSpeed's default persistence threshold)",
        (adapters or critic) and "no hybrid engine: DeepSpeed has none for these models, which generate as they train",
        adapters and "LoRA adapters stay unfused in generation; query, key and value have one each, on a joint matrix",
        adapters and "biases, norms and embeddings train beside the adapters, as in DeepSpeed-Chat's scripts",
        critic
        and "critic: a GPT-2 trunk of its own shape on the policy's vocabulary, in its own engine, not recomputed",
        critic and "gradient norm is the policy's; policy and critic are clipped apart",
        world.device.type == "cpu" and "CPU patch: DeepSpeed's shared-memory all-reduce is not compiled; gloo is used",
    ]
    yield from filter(None, told)
    yield from bucket_notes(manifest)
    if not uses_reference:
        yield "no reference policy: the algorithm asks it for nothing"
    elif workload["reference"] == "hydra":
        yield "hydra reference: the trunk's states are kept from the score phase; the frozen output head is shared"
    else:
        where = "partitioned by ZeRO-3, as in DeepSpeed-Chat" if stage == 3 else "whole on every rank"
        yield "the full reference copy is {}".format(where)
