"""The side that generates: a policy alone, always one batch ahead of the side that trains."""

from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from suite.worker.asked import Counts, prompts_of, sample_lengths
from suite.worker.events import Progress
from suite.worker.generation.base import Generator
from suite.worker.manifest import asked_iterations
from suite.worker.mismatch import idle_slot_seconds
from suite.worker.recorder import Recorder
from suite.worker.samples import Samples, widened
from suite.worker.split.link import Link
from suite.worker.split.weights import Publications
from suite.worker.world import World

#: What the generation side's layout has of the training side's: everything but how that shards and trains.
_PLAIN: Dict[str, Any] = {
    "tensor": 1,
    "pipeline": 1,
    "expert": 1,
    "zero_stage": 0,
    "recompute": "none",
    **dict.fromkeys(("sequence_parallel", "distributed_optimizer", "gather_for_generation"), False),
    **dict.fromkeys(("offload_optimizer", "offload_parameters"), False),
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
        self._batches, self._updates = 0, 0
        self._samples: Optional[Samples] = None

    def run(self, recorder: Recorder) -> None:
        """The first batch, then an iteration for each of the training side: take its weights, generate its next batch.

        What an iteration takes beyond its phases this side waited.
        """
        self._await_publication()
        self._generator.sync()
        self._draw_prompts()
        self._samples = self._generator.generate(self._prompts)
        self._announce()
        for iteration in range(asked_iterations(self._manifest)):
            self._draw_prompts()
            recorder.begin(iteration)
            self._await_publication()
            with recorder.phase("sync"):
                self._generator.sync()
            with recorder.phase("generate"):
                self._samples = self._generator.generate(self._prompts)
            self._announce()
            recorder.stop()
            recorder.finish(self._counts(), {"weights_sum": self._publications.weights_sum}, **self._rollout())
        self._link.publish("rank {} is done".format(self._rank))

    def _await_publication(self) -> None:
        """Hand over the batch that the other side asks for, then wait until it publishes."""
        if self._samples is not None:
            self._link.wait("take batch {}".format(self._batches - 1), self._progress)
            self._link.send(widened(self._samples.tokens, self._longest))
            if self._generator.logprobs is not None:
                self._link.send(widened(self._generator.logprobs, self._longest_response).to(self._device))
        self._updates = self._link.wait("publication {}".format(self._batches), self._progress)["updates"]

    def _draw_prompts(self) -> None:
        """Those of the next batch, in no phase."""
        self._prompts = prompts_of(self._manifest, self._batches, self._sample_indices, self._device)

    def _announce(self) -> None:
        """Tell the training side that the batch is there, in no phase."""
        self._link.publish(
            "batch {} of rank {}".format(self._batches, self._rank),
            publication=self._batches,
            updates=self._updates,
            weights_sum=self._publications.weights_sum,
            has_logprobs=self._generator.logprobs is not None,
        )
        self._batches += 1

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
