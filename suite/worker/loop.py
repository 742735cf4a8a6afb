"""One iteration, written once for every engine and every algorithm."""

import math
from typing import Any, Dict, List, Optional, Tuple

import torch

from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm, Rollouts, Tensors
from suite.worker.asked import Counts, check_counts, prompts_of, sample_lengths, score_samples
from suite.worker.engines.base import Engine
from suite.worker.generation.base import Generator
from suite.worker.manifest import stream_seed
from suite.worker.mismatch import Figures, idle_slot_seconds, mismatch
from suite.worker.rank import ConfigError
from suite.worker.recorder import NullRecorder
from suite.worker.samples import Samples, assign_samples, cut, widened
from suite.worker.world import Replicas

Stats = Dict[str, Optional[float]]
TRAIN_STATS = ("loss", "policy_loss", "value_loss", "gradient_norm")
_COUNTED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")
_NO_STATS = ("trained_tokens", "padded_tokens", "skipped_steps")  # of what is known of an optimizer step


class Loop:
    """Iterations of the manifest's work on an engine; made once, on every rank at the same time."""

    def __init__(self, engine: Engine, manifest: Dict[str, Any], generator: Optional[Generator] = None) -> None:
        """``generator`` generates in the engine's place."""
        self._engine = engine
        self._generator = generator
        self._replicas = Replicas(engine)
        self._manifest = manifest
        self._workload, self._work = manifest["workload"], manifest["work"]
        self._algorithm: Algorithm = build_algorithm(self._workload)
        self._lengths = sample_lengths(self._workload, self._work)
        self._longest = max(map(sum, zip(*self._lengths)))
        self._rows = self._work["replica_rollouts"]
        self._balances = manifest["layout"].get("balance", False) and self._work.get("lengths") is not None
        self._samples_of_replica = self._assign()

    def run_iteration(self, iteration: int, recorder: NullRecorder) -> Tuple[Counts, Stats]:
        """Generate, score, reference, reward, train. Returns what was counted and the training statistics.

        Between generation and scoring, balanced samples change hands; this is in no phase, and so in ``other``.
        Raises ConfigError when the work done is not the manifest's.
        """
        engine, algorithm = self._engine, self._algorithm
        first = engine.data_parallel_rank * self._rows
        prompts = prompts_of(self._manifest, iteration, range(first, first + self._rows), engine.device)
        recorder.begin(iteration)
        generated = self._generate(prompts, recorder)
        self._check_lengths(prompts, generated)
        sampled_logprobs = None if self._generator is None else self._generator.logprobs
        samples, sampled_logprobs = self._exchange(generated, sampled_logprobs)
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
                sample_indices=torch.tensor(self._samples_of_replica[engine.data_parallel_rank], device=engine.device),
                group=self._workload.get("group", 1),
            )
            batch = algorithm.prepare(rollouts, self._replicas.sum)
        with recorder.phase("train"):
            steps = self._train(rollouts, batch, iteration)
        recorder.stop()
        self._check_prompts(prompts, generated)
        counts = self._count(samples, steps)
        stats = self._statistics(rollouts, steps)
        check_counts(counts, self._workload, self._work)
        if self._generator is not None and self._generator.overlaps:
            stats["weights_sum"] = self._generator.weights_sum
        recorder.finish(counts, stats, **self._optional(rollouts, steps, sampled_logprobs))
        return counts, stats

    def _generate(self, prompts: Samples, recorder: NullRecorder) -> Samples:
        """The samples of this iteration: from the engine, or from a generator that is given the weights for it.

        One that works ahead has had them: it hands over what it has, and takes the weights for the next samples.
        """
        generator = self._generator
        if generator is not None and not generator.overlaps:
            with recorder.phase("sync"):
                generator.sync()
        with recorder.phase("generate"):
            samples = (generator or self._engine).generate(prompts)
            if generator is not None:
                recorder.note_memory()
                generator.sleep()
        if generator is not None and generator.overlaps:
            with recorder.phase("sync"):
                generator.sync()
        return samples

    def _assign(self) -> List[List[int]]:
        """Which samples each replica scores and trains; it generates its share of them in their order."""
        if self._balances:
            prompts, responses = self._lengths
            return assign_samples([sum(pair) for pair in zip(prompts, responses)], self._engine.data_parallel_size)
        starts = range(0, self._work["global_rollouts"], self._rows)
        return [list(range(start, start + self._rows)) for start in starts]

    def _exchange(self, samples: Samples, logprobs: Optional[torch.Tensor]) -> Tuple[Samples, Optional[torch.Tensor]]:
        """The samples that this replica scores and trains, with their ``logprobs`` [b, R], of those that all generated.

        Every rank gets all samples and keeps its own: tokens are small beside what a model does with them.
        """
        if not self._balances:
            return samples, logprobs
        prompts, responses = self._lengths
        indices = self._samples_of_replica[self._engine.data_parallel_rank]
        tokens = self._everyones(samples.tokens, self._longest)[indices]
        own = Samples(tokens, [prompts[number] for number in indices], [responses[number] for number in indices])
        if logprobs is not None:
            logprobs = self._everyones(logprobs, max(responses))[indices][:, : own.longest_response]
        return own, logprobs

    def _everyones(self, tensor: torch.Tensor, columns: int) -> torch.Tensor:
        """[N, columns] on every rank: the rows of all replicas, padded with zeros."""
        return torch.cat(self._replicas.all_gather(widened(tensor, columns)))

    def _score(self, samples: Samples, iteration: int) -> torch.Tensor:
        """[N] fp32: scores of all samples, from the main process, where a reward model would run, to every rank."""
        prompts, responses = self._lengths
        gathered = self._replicas.gather(widened(samples.tokens, self._longest))
        scores = torch.empty(len(prompts), device=self._engine.device)
        if gathered:
            in_order = torch.tensor([index for indices in self._samples_of_replica for index in indices]).argsort()
            everyone = Samples(torch.cat(gathered)[in_order.to(self._engine.device)], prompts, responses)
            scores = score_samples(self._workload["reward"], everyone, stream_seed(self._manifest, iteration))
        return self._replicas.broadcast(scores)

    def _train(self, rollouts: Rollouts, batch: Tensors, iteration: int) -> List[Dict[str, float]]:
        """Every epoch's optimizer steps over freshly shuffled rows: what the engine says of each, and its real tokens.

        Balanced samples lie by length; each step takes its own in that order, so that micro batches are of like length.
        The shuffle is the same on every replica, so that steps stay balanced too.
        """
        batch = {**batch, "logprobs": rollouts.logprobs, "mask": rollouts.mask}
        rows, batch_rows = len(rollouts.samples), self._work["replica_batch"]
        steps = []
        for epoch in range(self._workload["ppo_epochs"]):
            generator = torch.Generator().manual_seed(stream_seed(self._manifest, iteration, epoch))
            for chosen in torch.randperm(rows, generator=generator).split(batch_rows):
                if self._balances:
                    chosen = chosen.sort().values
                samples = rollouts.samples.take(chosen.tolist())
                part = {name: tensor[chosen.to(tensor.device)] for name, tensor in batch.items()}
                part = {name: cut(tensor, samples.longest_response) for name, tensor in part.items()}
                part["weight"] = self._loss_weights(part["mask"])
                step = self._engine.train(samples, part, self._algorithm.loss)
                steps.append({**step, "trained_tokens": samples.real_tokens})
        return steps

    def _loss_weights(self, mask: torch.Tensor) -> torch.Tensor:
        """[b, R]: the algorithm's weights, such that the mean over micro batches and replicas of weighted sums is the
        weighted mean over all tokens of the optimizer step."""
        weights = self._algorithm.weights(mask)
        total = weights.double().sum()
        if self._work.get("lengths") is None:
            total = total * self._engine.data_parallel_size  # alike everywhere: nobody needs to be asked
        else:
            total = self._replicas.sum(total)
        parts = mask.size(0) // self._work["micro_batch"] * self._engine.data_parallel_size
        return weights * (parts / total).float()

    def _count(self, samples: Samples, steps: List[Dict[str, float]]) -> Counts:
        """What was done, from the tensors themselves; ids outside the vocabulary are padding."""
        responses = samples.responses()[samples.mask()]
        real = int(((responses >= 0) & (responses < self._manifest["size"]["vocab"])).sum())
        padded = responses.numel() - real + sum(int(step.get("padded_tokens", 0)) for step in steps)
        trained = sum(int(step["trained_tokens"]) for step in steps)
        own = [len(samples), sum(samples.prompt_lengths), real, padded, trained]
        totals = self._replicas.sum(torch.tensor(own, device=self._engine.device)).tolist()
        counts = dict(zip(_COUNTED, totals))
        counts["optimizer_steps"] = len(steps)
        counts["trainable_parameters"] = self._engine.trainable_parameters
        counts["total_parameters"] = self._engine.total_parameters
        return counts

    def _statistics(self, rollouts: Rollouts, steps: List[Dict[str, float]]) -> Stats:
        """Means over optimizer steps and replicas; null where the engine reports none or it is not finite."""
        names = (*TRAIN_STATS, *sorted(set(steps[0]).difference(TRAIN_STATS, _NO_STATS)))
        means = [sum(step.get(name, math.nan) for step in steps) / len(steps) for name in names]
        totals = self._replicas.sum(torch.tensor(means, dtype=torch.float64, device=self._engine.device))
        stats = dict(zip(names, (totals / self._engine.data_parallel_size).tolist()))
        stats["reward"] = float(rollouts.all_scores.double().mean())
        stats["kl"] = math.nan
        if rollouts.reference is not None:
            kl = (rollouts.logprobs - rollouts.reference)[rollouts.mask].double()
            total, tokens = self._replicas.sum(torch.stack([kl.sum(), torch.full_like(kl.sum(), float(kl.numel()))]))
            stats["kl"] = float(total / tokens)
        return {name: value if math.isfinite(value) else None for name, value in stats.items()}

    def _optional(
        self, rollouts: Rollouts, steps: List[Dict[str, float]], sampled: Optional[torch.Tensor]
    ) -> Dict[str, Any]:
        """Fields of the iteration's event that not every run has; ``sampled``: log-probs of who generated.

        ``skipped_steps``: of fp16 alone, those that the stack skipped because its loss scale was too high for them.
        Stacks agree on an overflow over all ranks, so the number is the same everywhere.
        """
        found: Dict[str, Any] = {}
        if self._generator is not None and self._generator.overlaps:
            found["staleness"] = self._generator.staleness
        if self._manifest["measure"]["precision"] == "fp16" and all("skipped_steps" in step for step in steps):
            found["skipped_steps"] = int(sum(step["skipped_steps"] for step in steps))
        finish_seconds = (self._generator or self._engine).finish_seconds
        figures: Figures = {}
        if finish_seconds is not None:
            figures["idle_slot_seconds"] = idle_slot_seconds(finish_seconds)
        if sampled is not None:
            figures.update(mismatch(rollouts.logprobs, sampled, rollouts.mask, self._replicas.sum, self._replicas.max))
        return {**found, "rollout": figures} if figures else found

    def _check_lengths(self, prompts: Samples, samples: Samples) -> None:
        wanted = (prompts.prompt_lengths, prompts.response_lengths)
        if (samples.prompt_lengths, samples.response_lengths) != wanted:
            raise ConfigError("the samples have {} tokens, forced were {}".format(samples.lengths, prompts.lengths))

    def _check_prompts(self, prompts: Samples, samples: Samples) -> None:
        """Not in any timed phase: it waits for the device."""
        lengths = torch.tensor(prompts.prompt_lengths, device=prompts.tokens.device).unsqueeze(1)
        is_prompt = torch.arange(prompts.tokens.size(1), device=lengths.device) < lengths
        differs = (samples.tokens[:, : prompts.tokens.size(1)] != prompts.tokens) & is_prompt
        wrong = int(differs.any(dim=1).sum())
        if wrong:
            raise ConfigError("{} of {} samples do not start with their prompts".format(wrong, len(samples)))
