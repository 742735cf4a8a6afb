"""One iteration, written once for every engine and every algorithm."""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm, Rollouts, Tensors
from suite.worker.engines.base import Engine
from suite.worker.generation.base import Generator
from suite.worker.rank import ConfigError
from suite.worker.recorder import NullRecorder
from suite.worker.replicas import Replicas
from suite.worker.rewards import score_samples
from suite.worker.samples import Samples

Counts = Dict[str, int]
Stats = Dict[str, Optional[float]]
TRAIN_STATS = ("loss", "policy_loss", "value_loss", "gradient_norm")
_COUNTED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")
_SEED_STRIDE = 1_000_003  # keeps the streams of neighbouring seeds apart


@dataclass(frozen=True)
class _Trained:
    """What training amounted to: real tokens and padding through it here, and the statistics of each step."""

    tokens: int
    padded_tokens: int
    steps: List[Dict[str, float]]


class Loop:
    """Iterations of the manifest's work on an engine; made once, on every rank at the same time."""

    def __init__(self, engine: Engine, manifest: Dict[str, Any], generator: Optional[Generator] = None) -> None:
        """``generator`` generates in the engine's place."""
        self._engine = engine
        self._generator = generator
        self._replicas = Replicas(engine)
        self._manifest = manifest
        self._workload, self._work = manifest["workload"], manifest["work"]
        self._seed = manifest["measure"]["seed"]
        self._algorithm: Algorithm = build_algorithm(self._workload)
        self._lengths = sample_lengths(self._workload, self._work)

    def run_iteration(self, iteration: int, recorder: NullRecorder) -> Tuple[Counts, Stats]:
        """Generate, score, reference, reward, train. Returns what was counted and the training statistics.

        Raises ConfigError when the work done is not the manifest's.
        """
        engine, algorithm = self._engine, self._algorithm
        rows = self._work["replica_rollouts"]
        numbers = list(range(engine.data_parallel_rank * rows, (engine.data_parallel_rank + 1) * rows))
        prompts = self._prompts(iteration, numbers)
        recorder.begin(iteration)
        generator = self._generator
        if generator is not None and not generator.overlaps:
            with recorder.phase("sync"):
                generator.sync()
        with recorder.phase("generate"):
            samples = (generator or engine).generate(prompts)
            if generator is not None:
                generator.sleep()
        if generator is not None and generator.overlaps:
            with recorder.phase("sync"):
                generator.sync()
        self._check_lengths(prompts, samples)
        with recorder.phase("score"):
            logprobs, values = engine.score(samples)
        reference = None
        if algorithm.uses_reference:
            with recorder.phase("reference"):
                reference = engine.reference(samples)
        with recorder.phase("reward"):
            rollouts = Rollouts(
                samples=samples,
                mask=samples.mask(),
                logprobs=logprobs,
                values=values,
                reference=reference,
                all_scores=self._score(samples, iteration),
                numbers=torch.tensor(numbers, device=engine.device),
                group=self._workload.get("group", 1),
            )
            batch = algorithm.prepare(rollouts, self._replicas.sum)
        with recorder.phase("train"):
            trained = self._train(rollouts, batch, iteration)
        recorder.stop()
        counts = self._count(samples, trained)
        stats = self._statistics(rollouts, trained.steps)
        check_counts(counts, self._workload, self._work)
        recorder.finish(counts, stats, **self._skipped(trained.steps))
        return counts, stats

    def _prompts(self, iteration: int, numbers: Sequence[int]) -> Samples:
        """This replica's prompts, with the response lengths that are to be forced."""
        return prompts_of(self._manifest, iteration, numbers, self._engine.device)

    def _score(self, samples: Samples, iteration: int) -> torch.Tensor:
        """[N] fp32: scores of all samples, from the main process, where a reward model would run, to every rank."""
        prompts, responses = self._lengths
        longest = max(prompt + response for prompt, response in zip(prompts, responses))
        padded = torch.nn.functional.pad(samples.tokens, (0, longest - samples.tokens.size(1)))
        gathered = self._replicas.gather(padded)
        scores = torch.empty(len(prompts), device=self._engine.device)
        if gathered:
            everyone = Samples(torch.cat(gathered), prompts, responses)
            scores = score_samples(self._workload["reward"], everyone, self._seed * _SEED_STRIDE + iteration)
        return self._replicas.broadcast(scores)

    def _train(self, rollouts: Rollouts, batch: Tensors, iteration: int) -> _Trained:
        """Every epoch's optimizer steps over freshly shuffled rows."""
        batch = {**batch, "logprobs": rollouts.logprobs, "mask": rollouts.mask}
        rows, batch_rows = len(rollouts.samples), self._work["replica_batch"]
        tokens, padded, steps = 0, 0, []
        for epoch in range(self._workload["ppo_epochs"]):
            generator = torch.Generator().manual_seed((self._seed * _SEED_STRIDE + iteration) * _SEED_STRIDE + epoch)
            for chosen in torch.randperm(rows, generator=generator).split(batch_rows):
                samples = rollouts.samples.take(chosen.tolist())
                part = {name: tensor[chosen.to(tensor.device)] for name, tensor in batch.items()}
                part["weight"] = self._loss_weights(part["mask"])
                step = self._engine.train(samples, part, self._algorithm.loss)
                padded += int(step.get("padded_tokens", 0))
                tokens += samples.real_tokens
                steps.append(step)
        return _Trained(tokens, padded, steps)

    def _loss_weights(self, mask: torch.Tensor) -> torch.Tensor:
        """[b, R]: the algorithm's weights, such that the mean over micro batches and replicas of weighted sums is the
        weighted mean over all tokens of the optimizer step."""
        weights = self._algorithm.weights(mask)
        parts = mask.size(0) // self._work["micro_batch"] * self._engine.data_parallel_size
        return weights * (parts / self._replicas.sum(weights.double().sum())).float()

    def _count(self, samples: Samples, trained: _Trained) -> Counts:
        """What was done, from the tensors themselves; ids outside the vocabulary are padding."""
        responses = samples.responses()[samples.mask()]
        real = int(((responses >= 0) & (responses < self._manifest["size"]["vocab"])).sum())
        padded = responses.numel() - real + trained.padded_tokens
        own = [len(samples), sum(samples.prompt_lengths), real, padded, trained.tokens]
        totals = self._replicas.sum(torch.tensor(own, device=self._engine.device)).tolist()
        counts = dict(zip(_COUNTED, totals))
        counts["optimizer_steps"] = len(trained.steps)
        counts["trainable_parameters"] = self._engine.trainable_parameters
        counts["total_parameters"] = self._engine.total_parameters
        return counts

    def _statistics(self, rollouts: Rollouts, steps: List[Dict[str, float]]) -> Stats:
        """Means over optimizer steps and replicas; null where the engine reports none or it is not finite."""
        means = [_mean([step.get(name, math.nan) for step in steps]) for name in TRAIN_STATS]
        totals = self._replicas.sum(torch.tensor(means, dtype=torch.float64, device=self._engine.device))
        stats = dict(zip(TRAIN_STATS, (totals / self._engine.data_parallel_size).tolist()))
        stats["reward"] = float(rollouts.all_scores.double().mean())
        stats["kl"] = math.nan
        if rollouts.reference is not None:
            kl = (rollouts.logprobs - rollouts.reference)[rollouts.mask].double().sum()
            stats["kl"] = float(self._replicas.sum(kl)) / self._work["global_rollouts"]
        return {name: value if math.isfinite(value) else None for name, value in stats.items()}

    def _skipped(self, steps: List[Dict[str, float]]) -> Counts:
        """Of fp16 alone: how many of the steps the stack skipped, because its loss scale was too high for them.

        The stacks agree on an overflow over all ranks, so the number is the same everywhere.
        """
        if self._manifest["measure"]["precision"] != "fp16" or not all("skipped_steps" in step for step in steps):
            return {}
        return {"skipped_steps": int(sum(step["skipped_steps"] for step in steps))}

    def _check_lengths(self, prompts: Samples, samples: Samples) -> None:
        wanted = (prompts.prompt_lengths, prompts.response_lengths)
        if (samples.prompt_lengths, samples.response_lengths) != wanted:
            raise ConfigError(
                "the samples have {} tokens where {} were forced".format(samples.lengths, prompts.lengths)
            )


def sample_lengths(workload: Dict[str, Any], work: Dict[str, Any]) -> Tuple[List[int], List[int]]:
    """Tokens of the prompt and of the response of every sample, in their order."""
    uneven = work.get("lengths")
    if uneven is not None:
        return list(uneven["prompt"]), list(uneven["response"])
    samples = work["global_rollouts"]
    return [workload["prompt_tokens"]] * samples, [workload["new_tokens"]] * samples


def draw_prompts(manifest: Dict[str, Any], iteration: int) -> torch.Tensor:
    """Random prompts of all samples, [N, longest prompt]; equal work has equal prompts, whatever its layout.

    The samples of a group have one prompt. Of a shorter prompt the first tokens count.
    """
    generator = torch.Generator().manual_seed(manifest["measure"]["seed"] * _SEED_STRIDE + iteration)
    group = manifest["workload"].get("group", 1)
    shape = (manifest["work"]["global_rollouts"] // group, manifest["workload"]["prompt_tokens"])
    return torch.randint(manifest["size"]["vocab"], shape, generator=generator).repeat_interleave(group, dim=0)


def prompts_of(manifest: Dict[str, Any], iteration: int, numbers: Sequence[int], device: torch.device) -> Samples:
    """The prompts of these samples, with the response lengths that are to be forced."""
    prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
    rows = draw_prompts(manifest, iteration)[list(numbers)].to(device)
    own = [prompts[number] for number in numbers]
    rows = rows[:, : max(own)]
    columns = torch.arange(rows.size(1), device=rows.device)
    rows = rows * (columns < torch.tensor(own, device=rows.device).unsqueeze(1))
    return Samples(rows, own, [responses[number] for number in numbers])


def expected_counts(workload: Dict[str, Any], work: Dict[str, Any]) -> Counts:
    """The counts of one iteration that the manifest asks for, global; of uneven samples padding is left open."""
    prompts, responses = sample_lengths(workload, work)
    counts = {
        "samples": len(prompts),
        "prompt_tokens": sum(prompts),
        "response_tokens": sum(responses),
        "trained_tokens": (sum(prompts) + sum(responses)) * workload["ppo_epochs"],
        "optimizer_steps": workload["optimizer_steps"] * workload["ppo_epochs"],
    }
    return counts if work.get("lengths") else {**counts, "padded_tokens": 0}


def check_counts(counts: Counts, workload: Dict[str, Any], work: Dict[str, Any]) -> None:
    """Raise ConfigError, with every number, unless the counts are those that the manifest asks for."""
    wrong = [
        "{} {} wanted, {} done".format(name, number, counts[name])
        for name, number in expected_counts(workload, work).items()
        if number != counts[name]
    ]
    if wrong:
        raise ConfigError("the iteration was not the manifest's work: " + "; ".join(wrong))


def _mean(numbers: List[float]) -> float:
    return sum(numbers) / len(numbers)
