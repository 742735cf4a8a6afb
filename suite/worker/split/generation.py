"""The side that generates: a policy alone, always one batch ahead of the side that trains."""

from typing import Any, Dict

import torch
import torch.distributed as dist

from suite.worker.asked import Counts, prompts_of, sample_lengths
from suite.worker.generation.base import Generator
from suite.worker.manifest import asked_iterations
from suite.worker.mismatch import idle_slot_seconds
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.samples import Samples, widened
from suite.worker.split.link import Link
from suite.worker.split.weights import Publications
from suite.worker.world import World

#: What the generation side's layout has of the training side's: everything but how that shards and trains.
_PLAIN: Dict[str, Any] = {
    **dict.fromkeys(("tensor", "pipeline", "expert"), 1),
    **dict.fromkeys(("sequence_parallel", "distributed_optimizer", "gather_for_generation"), False),
    **dict.fromkeys(("offload_optimizer", "offload_parameters"), False),
    "zero_stage": 0,
    "recompute": "none",
}


def generation_manifest(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """What an engine of the generation side is built from: ``generates_only``, a replica on each rank."""
    ranks = manifest["layout"]["generation_ranks"]
    workload = {name: value for name, value in manifest["workload"].items() if name != "critic"}
    return {
        **manifest,
        "generates_only": True,
        "layout": {**manifest["layout"], **_PLAIN, "data": ranks},
        "workload": {**workload, "reference": "full"},
        "work": {**manifest["work"], "replica_rollouts": manifest["work"]["global_rollouts"] // ranks},
    }


def produce_rollouts(
    generator: Generator,
    publications: Publications,
    manifest: Dict[str, Any],
    world: World,
    link: Link,
    recorder: Recorder,
) -> None:
    """Batch i for the training side from the weights of publication i, which ``generator`` takes in its ``sync``: the
    first, then in an iteration for each of that side's its next. What an iteration takes beyond its phases this side
    waited. ``manifest``: this side's."""
    rows = manifest["work"]["replica_rollouts"]
    own_rows = range(world.rank * rows, (world.rank + 1) * rows)
    prompt_lengths, responses = sample_lengths(manifest["workload"], manifest["work"])
    longest = max(map(sum, zip(prompt_lengths, responses)))
    samples: Any = None
    for batch in range(asked_iterations(manifest) + 1):
        own = recorder if batch else NullRecorder()
        prompts = prompts_of(manifest, batch, own_rows, world.device)
        own.begin(batch - 1)
        if batch:
            link.wait("take batch {}".format(batch - 1))
            link.send(widened(samples.tokens, longest))
            if generator.logprobs is not None:
                link.send(widened(generator.logprobs, max(responses)).to(world.device))
        link.wait("publication {}".format(batch))
        with own.phase("sync"):
            generator.sync()
        with own.phase("generate"):
            samples = generator.generate(prompts)
        facts = {"weights_sum": publications.weights_sum, "has_logprobs": generator.logprobs is not None}
        link.publish("batch {} of rank {}".format(batch, world.rank), **facts)
        own.stop()
        counts = _counts(samples, manifest["size"]["vocab"], world.device)
        counts["total_parameters"] = publications.total_parameters
        finish = generator.finish_seconds
        rollout = {} if finish is None else {"rollout": {"idle_slot_seconds": idle_slot_seconds(finish)}}
        own.finish(counts, {"weights_sum": publications.weights_sum}, **rollout)
    link.publish("rank {} is done".format(world.rank))


def _counts(samples: Samples, vocab: int, device: torch.device) -> Counts:
    """What a batch is, over all generation ranks; nothing was trained. Collective."""
    responses = samples.responses()[samples.mask()]
    real = int(((responses >= 0) & (responses < vocab)).sum())
    totals = torch.tensor([len(samples), sum(samples.prompt_lengths), real, responses.numel() - real], device=device)
    dist.all_reduce(totals)
    counts = dict(zip(("samples", "prompt_tokens", "response_tokens", "padded_tokens"), totals.tolist()))
    return {**counts, **dict.fromkeys(("trained_tokens", "optimizer_steps", "trainable_parameters"), 0)}
