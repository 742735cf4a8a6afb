"""The ranks' side of the trainer on Ray."""

from __future__ import annotations

import os
from typing import Any

import torch

from suite.worker.__main__ import leave_process, main
from suite.worker.asked import draw_prompts, expected_counts
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import Tally
from suite.worker.trainers.led import LedTrainer


class Roller:
    """What an actor does on a device: random responses."""

    def pid(self) -> int:
        return os.getpid()

    def generate(self, prompts: torch.Tensor, tokens: int, vocab: int) -> torch.Tensor:
        return torch.randint(vocab, (prompts.size(0), tokens))


class RayTrainer(LedTrainer):
    """One actor for each device; rank 0 is the controller."""

    def check(self) -> None:
        if self.manifest["work"].get("lengths"):
            raise ValueError("the toy forces one length on all samples")

    def build(self) -> None:
        ray = self.cluster.connect()
        remote = ray.remote(num_gpus=1)(Roller)
        self._ray, self._actors = ray, [remote.remote() for _ in range(self.world.world_size)]
        ray.get([actor.pid.remote() for actor in self._actors])
        self.notes += ("a toy: its figures say nothing of any stack",)
        self.work_differences = ("nothing is scored and nothing is trained",)

    def lead(self, clock: NullClock, iterations: int) -> None:
        workload, size = self.manifest["workload"], self.manifest["size"]
        tally = Tally(self.manifest, self.world)
        for iteration in range(iterations):
            tally.clear()
            prompts = draw_prompts(self.manifest, iteration)
            clock.begin(iteration)
            with clock.phase("generate"):
                parts = prompts.chunk(len(self._actors))
                asked = [
                    actor.generate.remote(part, workload["new_tokens"], size["vocab"])
                    for actor, part in zip(self._actors, parts, strict=True)
                ]
                responses = torch.cat(self._ray.get(asked))
            with clock.phase("train"):
                wanted = expected_counts(workload, self.manifest["work"])
            clock.stop()
            tally.add_samples(prompts, responses, size["vocab"])
            tally.trained_tokens = wanted["trained_tokens"]
            tally.optimizer_steps = wanted["optimizer_steps"]
            clock.finish(tally.own_counts(trainable_parameters=1, total_parameters=1), {"loss": None})


def find_trainer(manifest: dict[str, Any]) -> type[Any]:
    return RayTrainer


if __name__ == "__main__":
    leave_process(main(find_build=find_trainer))
