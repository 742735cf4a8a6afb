"""The side that generates: a policy alone, always one batch ahead of the side that trains."""

from typing import Any, Dict

import torch
import torch.distributed as dist

from suite.worker.asked import Counts, prompts_of, sample_lengths
from suite.worker.events import Progress
from suite.worker.generation.base import Generator
from suite.worker.manifest import asked_iterations
from suite.worker.mismatch import idle_slot_seconds
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.samples import widened
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


class RolloutProducer:
    """Batches for the training side: batch i from the weights of publication i."""

    def __init__(
        self,
        generator: Generator,
        publications: Publications,
        manifest: Dict[str, Any],
        world: World,
        link: Link,
        progress: Progress,
    ) -> None:
        """``generator`` takes a publication in its ``sync``; ``manifest``: this side's."""
        self._generator, self._publications, self._manifest = generator, publications, manifest
        self._link, self._progress = link, progress
        self._device, self._rank = world.device, world.rank
        rows = manifest["work"]["replica_rollouts"]
        self._sample_indices = range(world.rank * rows, (world.rank + 1) * rows)
        prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
        self._longest, self._longest_response = max(map(sum, zip(prompts, responses))), max(responses)

    def run(self, recorder: Recorder) -> None:
        """The first batch, then an iteration for each of the training side: take its weights, generate its next batch.
        What an iteration takes beyond its phases this side waited."""
        for batch in range(asked_iterations(self._manifest) + 1):
            own = recorder if batch else NullRecorder()
            prompts = prompts_of(self._manifest, batch, self._sample_indices, self._device)
            own.begin(batch - 1)
            if batch:
                self._hand_over(batch - 1)
            self._link.wait("publication {}".format(batch), self._progress)
            with own.phase("sync"):
                self._generator.sync()
            with own.phase("generate"):
                self._samples = self._generator.generate(prompts)
            weights_sum, has_logprobs = self._publications.weights_sum, self._generator.logprobs is not None
            word = "batch {} of rank {}".format(batch, self._rank)
            self._link.publish(word, weights_sum=weights_sum, has_logprobs=has_logprobs)
            own.stop()
            own.finish(self._counts(), {"weights_sum": weights_sum}, **self._rollout())
        self._link.publish("rank {} is done".format(self._rank))

    def _hand_over(self, batch: int) -> None:
        self._link.wait("take batch {}".format(batch), self._progress)
        self._link.send(widened(self._samples.tokens, self._longest))
        if self._generator.logprobs is not None:
            self._link.send(widened(self._generator.logprobs, self._longest_response).to(self._device))

    def _counts(self) -> Counts:
        """What the last batch was, over all generation ranks; nothing was trained."""
        samples = self._samples
        responses = samples.responses()[samples.mask()]
        real = int(((responses >= 0) & (responses < self._manifest["size"]["vocab"])).sum())
        own = [len(samples), sum(samples.prompt_lengths), real, responses.numel() - real]
        totals = torch.tensor(own, device=self._device)
        dist.all_reduce(totals)
        counts = dict(zip(("samples", "prompt_tokens", "response_tokens", "padded_tokens"), totals.tolist()))
        counts.update(trained_tokens=0, optimizer_steps=0, trainable_parameters=0)
        counts["total_parameters"] = self._publications.total_parameters
        return counts

    def _rollout(self) -> Dict[str, Any]:
        finish = self._generator.finish_seconds
        return {} if finish is None else {"rollout": {"idle_slot_seconds": idle_slot_seconds(finish)}}
