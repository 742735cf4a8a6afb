"""What a reader must know beside the figures of TRL's PPO: how its work differs, and what it ran on."""

from typing import Any, Dict, Iterator

from suite.worker.deepspeed_json import bucket_notes, uses_deepspeed
from suite.worker.manifest import installed_version


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where TRL's iteration does other work than the suite's own of the same manifest, one sentence each."""
    workload, work, layout = (manifest[name] for name in ("workload", "work", "layout"))
    if workload.get("critic") is None:
        yield (
            "values come from a second model of the policy's shape, trained beside it, in the place of a value head: it"
            " is in the counts of parameters, in score, in train and in memory"
        )
    yield "the policy has no scoring pass: its log-probs come from generation's logits, which are kept for all samples"
    yield "every pass of policy, reference and value model gives all hidden states; logits are of prompt positions too"
    if work["replica_rollouts"] > work["micro_batch"]:
        yield (
            "a rank's {} rollouts go through value model and reference in one pass, not in micro batches of {}".format(
                work["replica_rollouts"], work["micro_batch"]
            )
        )
    yield "values of prompt positions are computed too, in score and in train"
    yield "rewards are given on every rank for its own samples, not on the main one for all"
    if layout["data"] > 1:
        yield "advantages are whitened over a rank's own samples, not over all of them"
    yield "entropy and other statistics are computed in every micro batch and gathered one by one at the end"
    yield "Python's garbage is collected twice in every iteration"
    if not uses_deepspeed(manifest):
        yield "gradients are not clipped: TRL's PPO leaves that to DeepSpeed"
        if manifest["measure"]["precision"] != "fp32":
            yield "weights and gradients stay in fp32 and only the forward pass is cast; the reference computes in fp32"
    elif layout["zero_stage"] < 3:
        yield "the full reference copy is whole on every rank, in an engine of its own"


def notes(manifest: Dict[str, Any]) -> Iterator[str]:
    yield "TRL {}, files unchanged: what its train calls is wrapped in the process and reports its phase edges".format(
        installed_version("trl")
    )
    if manifest["workload"]["optimizer_steps"] > 1:
        yield (
            "Accelerate steps after each mini batch, because its variable for gradient accumulation says so; by TRL's "
            "arguments alone it would step once an epoch"
        )
    yield "transformers' sdpa attention; torch's fused AdamW as transformers makes it"
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): TRL compiles nothing, and DeepSpeed would only load it"
    yield "FLOPs are those of the suite's own iteration: what TRL computes beyond them lowers its utilisation"
    yield from bucket_notes(manifest)
