"""One PPO iteration, written once for every engine."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

import torch

from suite.worker import ppo
from suite.worker.engines.base import Engine
from suite.worker.rank import ConfigError
from suite.worker.recorder import NullRecorder
from suite.worker.replicas import Replicas
from suite.worker.rewards import score_samples

Batch = Dict[str, torch.Tensor]
Counts = Dict[str, int]
Stats = Dict[str, Optional[float]]
TRAIN_STATS = ("loss", "policy_loss", "value_loss", "gradient_norm")
_COUNTED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")
_SEED_STRIDE = 1_000_003  # keeps the streams of neighbouring seeds apart


@dataclass(frozen=True)
class Rollouts:
    """The samples of this replica in one iteration, and the mean score and KL of all replicas (fp64 scalars)."""

    batch: Batch
    mean_score: torch.Tensor
    mean_kl: torch.Tensor


class PPOLoop:
    """Iterations of the manifest's work on an engine; made once, on every rank at the same time."""

    def __init__(self, engine: Engine, manifest: Dict[str, Any]) -> None:
        self._engine = engine
        self._replicas = Replicas(engine)
        self._manifest = manifest
        self._size, self._workload, self._work = manifest["size"], manifest["workload"], manifest["work"]
        self._seed = manifest["measure"]["seed"]
        self._loss = partial(ppo_loss, coefficients=self._workload["ppo"])

    def run_iteration(self, iteration: int, recorder: NullRecorder) -> Tuple[Counts, Stats]:
        """Generate, score, reference, reward, train. Returns what was counted and the training statistics.

        Raises ConfigError when the work done is not the manifest's.
        """
        engine, prompt_tokens = self._engine, self._workload["prompt_tokens"]
        prompts = self._prompts(iteration)
        recorder.begin(iteration)
        with recorder.phase("generate"):
            tokens = engine.generate(prompts, self._workload["new_tokens"])
        self._check_length(prompts, tokens)
        with recorder.phase("score"):
            logprobs, values = engine.score(tokens, prompt_tokens)
        with recorder.phase("reference"):
            reference = engine.reference(tokens, prompt_tokens)
        with recorder.phase("reward"):
            rollouts = self._reward(tokens, logprobs, values, reference)
        with recorder.phase("train"):
            trained_tokens, steps = self._train(rollouts.batch, iteration)
        recorder.stop()
        counts = self._count(prompts, tokens, trained_tokens, len(steps))
        stats = self._statistics(rollouts, steps)
        check_counts(counts, self._workload, self._work)
        recorder.finish(counts, stats, **self._skipped(steps))
        return counts, stats

    def _prompts(self, iteration: int) -> torch.Tensor:
        """This replica's rows of the global prompts: [b, P]."""
        rows = self._work["replica_rollouts"]
        first = self._engine.data_parallel_rank * rows
        return draw_prompts(self._manifest, iteration)[first : first + rows].to(self._engine.device)

    def _reward(
        self, tokens: torch.Tensor, logprobs: torch.Tensor, values: torch.Tensor, reference: torch.Tensor
    ) -> Rollouts:
        """Scores from the main process, KL penalty, advantages whitened over all replicas."""
        coefficients, prompt_tokens = self._workload["ppo"], self._workload["prompt_tokens"]
        gathered = self._replicas.gather(tokens)
        scored = [score_samples(self._workload["reward"], replica[:, prompt_tokens:]) for replica in gathered]
        scores = self._replicas.scatter(scored, torch.empty(tokens.size(0), device=tokens.device))
        rewards = ppo.penalised_rewards(scores, logprobs, reference, coefficients["kl_coefficient"])
        advantages, returns = ppo.advantages_and_returns(
            rewards, values, coefficients["discount"], coefficients["gae_lambda"]
        )
        sums = torch.stack([scores.double().sum(), (logprobs - reference).double().sum()])
        totals = self._replicas.sum(torch.cat([ppo.moments(advantages), sums]))
        batch = {
            "tokens": tokens,
            "logprobs": logprobs,
            "values": values,
            "advantages": ppo.whiten(advantages, totals[:3]),
            "returns": returns,
        }
        return Rollouts(batch, totals[3] * logprobs.size(1) / totals[0], totals[4] / totals[0])

    def _train(self, rollouts: Batch, iteration: int) -> Tuple[int, List[Dict[str, float]]]:
        """Every epoch's optimizer steps over freshly shuffled rows; tokens trained on here, statistics of each step."""
        rows, batch_rows = rollouts["tokens"].size(0), self._work["replica_batch"]
        trained_tokens, steps = 0, []
        for epoch in range(self._workload["ppo_epochs"]):
            generator = torch.Generator().manual_seed((self._seed * _SEED_STRIDE + iteration) * _SEED_STRIDE + epoch)
            order = torch.randperm(rows, generator=generator).to(rollouts["tokens"].device)
            for chosen in order.split(batch_rows):
                batch = {name: tensor[chosen] for name, tensor in rollouts.items()}
                steps.append(self._engine.train(batch, self._workload["prompt_tokens"], self._loss))
                trained_tokens += batch["tokens"].numel()
        return trained_tokens, steps

    def _count(self, prompts: torch.Tensor, tokens: torch.Tensor, trained_tokens: int, steps: int) -> Counts:
        """What was done, from the tensors themselves; ids outside the vocabulary are padding."""
        response = tokens[:, prompts.size(1) :]
        real = int(((response >= 0) & (response < self._size["vocab"])).sum())
        own = [tokens.size(0), prompts.numel(), real, response.numel() - real, trained_tokens]
        totals = self._replicas.sum(torch.tensor(own, device=self._engine.device)).tolist()
        counts = dict(zip(_COUNTED, totals))
        counts["optimizer_steps"] = steps
        counts["trainable_parameters"] = self._engine.trainable_parameters
        counts["total_parameters"] = self._engine.total_parameters
        return counts

    def _statistics(self, rollouts: Rollouts, steps: List[Dict[str, float]]) -> Stats:
        """Means over optimizer steps and replicas; null where the engine reports none or it is not finite."""
        means = [_mean([step.get(name, math.nan) for step in steps]) for name in TRAIN_STATS]
        totals = self._replicas.sum(torch.tensor(means, dtype=torch.float64, device=self._engine.device))
        stats = dict(zip(TRAIN_STATS, (totals / self._engine.data_parallel_size).tolist()))
        stats.update(kl=float(rollouts.mean_kl), reward=float(rollouts.mean_score))
        return {name: value if math.isfinite(value) else None for name, value in stats.items()}

    def _skipped(self, steps: List[Dict[str, float]]) -> Counts:
        """Of fp16 alone: how many of the steps the stack skipped, because its loss scale was too high for them.

        The stacks agree on an overflow over all ranks, so the number is the same everywhere.
        """
        if self._manifest["measure"]["precision"] != "fp16" or not all("skipped_steps" in step for step in steps):
            return {}
        return {"skipped_steps": int(sum(step["skipped_steps"] for step in steps))}

    def _check_length(self, prompts: torch.Tensor, tokens: torch.Tensor) -> None:
        wanted = (prompts.size(0), prompts.size(1) + self._workload["new_tokens"])
        if tuple(tokens.shape) != wanted:
            raise ConfigError("samples x tokens are {} where {} were forced".format(tuple(tokens.shape), wanted))


def draw_prompts(manifest: Dict[str, Any], iteration: int) -> torch.Tensor:
    """Random prompts of all replicas, [global rollouts, P]; equal work has equal prompts, whatever its layout."""
    generator = torch.Generator().manual_seed(manifest["measure"]["seed"] * _SEED_STRIDE + iteration)
    shape = (manifest["work"]["global_rollouts"], manifest["workload"]["prompt_tokens"])
    return torch.randint(manifest["size"]["vocab"], shape, generator=generator)


def expected_counts(workload: Dict[str, Any], work: Dict[str, Any]) -> Counts:
    """The counts of one iteration that the manifest asks for, global."""
    samples, sequence = work["global_rollouts"], workload["prompt_tokens"] + workload["new_tokens"]
    return {
        "samples": samples,
        "prompt_tokens": samples * workload["prompt_tokens"],
        "response_tokens": samples * workload["new_tokens"],
        "padded_tokens": 0,
        "trained_tokens": samples * sequence * workload["ppo_epochs"],
        "optimizer_steps": workload["optimizer_steps"] * workload["ppo_epochs"],
    }


def check_counts(counts: Counts, workload: Dict[str, Any], work: Dict[str, Any]) -> None:
    """Raise ConfigError, with every number, unless the counts are those that the manifest asks for."""
    wrong = [
        "{} {} wanted, {} done".format(name, number, counts[name])
        for name, number in expected_counts(workload, work).items()
        if number != counts[name]
    ]
    if wrong:
        raise ConfigError("the iteration was not the manifest's work: " + "; ".join(wrong))


def ppo_loss(
    logprobs: torch.Tensor, values: torch.Tensor, micro: Batch, coefficients: Dict[str, float]
) -> Tuple[torch.Tensor, Batch]:
    """The loss of one micro batch (1707.06347, equation 9 without entropy bonus) and its parts, detached."""
    policy = ppo.policy_loss(logprobs, micro["logprobs"], micro["advantages"], coefficients["clip_ratio"])
    value = ppo.value_loss(values, micro["values"], micro["returns"], coefficients["clip_value"])
    loss = policy + coefficients["value_coefficient"] * value
    # A copy: Megatron's schedule divides the loss itself, in place, by the number of micro batches.
    return loss, {"loss": loss.detach().clone(), "policy_loss": policy.detach(), "value_loss": value.detach()}


def _mean(numbers: List[float]) -> float:
    return sum(numbers) / len(numbers)
