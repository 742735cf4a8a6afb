"""What a reader must know beside trlx's figures: how its work differs from the suite's, and what it ran on."""

from typing import Any, Dict, Iterator

from suite.worker.deepspeed_json import bucket_notes, uses_deepspeed
from suite.worker.trainers.trlx.source import COMMIT


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where trlx's iteration does other work than the suite's own of the same manifest, one sentence each."""
    workload, work = manifest["workload"], manifest["work"]
    yield "logits, log-probs and values are computed for prompt positions too, in scoring and in training"
    yield "responses are decoded to text and tokenised again, everyone's on the main rank as well"
    if work["replica_rollouts"] > work["micro_batch"]:
        yield "a rank's {} rollouts are scored in one pass, not in micro batches of {}".format(
            work["replica_rollouts"], work["micro_batch"]
        )
    yield "advantages are computed and whitened in each micro batch, with two all-reduces, not once for all rollouts"
    yield from _reference_differences(manifest)
    if workload["trainable_layers"] is not None:
        yield from _training_differences(manifest)
    if not uses_deepspeed(manifest):
        yield "gradients are not clipped: trlx leaves that to DeepSpeed"
        if manifest["measure"]["precision"] != "fp32":
            yield "weights and gradients stay in fp32 and only the forward pass is cast; the reference computes in fp32"


def _reference_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    if manifest["workload"]["reference"] == "hydra":
        if uses_deepspeed(manifest):
            yield "the hydra reference runs the whole policy once more, then its branch, which has its own output head"
        else:
            yield (
                "the reference is a full copy, not hydra: trlx does not see its branch behind DDP, and keeps it unused "
                "in the policy and in the copy"
            )
    elif manifest["layout"]["zero_stage"] == 3:
        yield "the full reference copy is whole on every rank; the deepspeed backend partitions it"


def _training_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    size, layers = manifest["size"], manifest["workload"]["trainable_layers"]
    if size["architecture"] != "llama":
        yield "position embeddings train although layers below are frozen, so gradients go through all layers"
    if layers > 0 and not size["tied_embeddings"]:
        yield "the output head trains although layers below are frozen"


def notes(manifest: Dict[str, Any], attention: str) -> Iterator[str]:
    """What else a reader must know; ``attention`` as transformers names the implementation it chose."""
    yield "trlx {}, files unchanged: a subclass reports where its phases begin and end".format(COMMIT[:8])
    yield "the subclass replaces get_arch (models from a configuration), evaluate and save_pretrained"
    yield "torch.optim.AdamW as trlx makes it (not fused)"
    yield "transformers' {} attention, and its own GELU for GPT-2 shapes".format(attention)
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): trlx compiles nothing, and DeepSpeed would only load it"
    yield "FLOPs are those of the suite's own iteration: what trlx computes beyond them lowers its utilisation"
    if uses_deepspeed(manifest):
        if manifest["workload"]["reference"] == "full":
            yield "a full reference copy was asked for; by itself, trlx shares the trunk (hydra) under DeepSpeed"
        yield from bucket_notes(manifest)
