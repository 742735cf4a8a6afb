"""Phase edges at the methods of trlx's PPO trainer on Accelerate, without changing any of them.

One iteration is a call of ``make_experience`` and what follows until the next one. Line numbers are those of
``trlx/trainer/accelerate_ppo_trainer.py`` and, as "base", ``accelerate_base_trainer.py``.
"""

import math
from typing import Any, Callable, Dict, List, Optional

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.tally import Tally

_LOSSES = {"loss": "losses/total_loss", "policy_loss": "losses/policy_loss", "value_loss": "losses/value_loss"}
#: log-probs are computed twice in an iteration: the policy's, then the reference's (445, 446)
_LOGPROBS_PHASES = ("score", "reference")


class Sheet:
    """What the hooks note on this rank between the beginning and the end of an iteration."""

    def __init__(self, tally: Tally) -> None:
        self.clock = NullClock()
        self.tally = tally
        self.iteration = 0
        self.collecting = False
        self.step_stats: List[Dict[str, float]] = []
        self.gradient_norms: List[Any] = []  # numbers, or tensors still being computed
        self.scores = 0.0
        self.rewards = 0.0
        self.logprobs_calls = 0

    def clear(self) -> None:
        """Another iteration begins."""
        self.tally.clear()
        self.step_stats.clear()
        self.gradient_norms.clear()
        self.scores = self.rewards = 0.0
        self.logprobs_calls = 0

    def means(self) -> Dict[str, float]:
        """Means of the losses over micro batches, and of the gradient norm over steps; NaN where none was reported."""
        found = {name: [stats[key] for stats in self.step_stats if key in stats] for name, key in _LOSSES.items()}
        found["gradient_norm"] = self.gradient_norms
        return {name: sum(map(float, values)) / len(values) if values else math.nan for name, values in found.items()}


class TimedPPO:
    """Stands before trlx's trainer in the order of inheritance; ``sheet`` comes by way of ``trainer_kwargs``."""

    def __init__(self, config: Any, sheet: Sheet, on_iteration_end: Callable[[], None], **options: Any) -> None:
        self.sheet = sheet
        self._on_iteration_end = on_iteration_end
        self._generated = torch.empty(0)
        super().__init__(config, **options)
        self.reward_fn = self._timed_reward(self.reward_fn)
        self._time_model()
        self._time_steps()
        self.tokenizer.__class__ = _timed_tokenizer(type(self.tokenizer), sheet)

    def make_experience(self, *arguments: Any, **options: Any) -> None:
        """Line 251. The iteration before ends here, and this one's samples are collected."""
        sheet = self.sheet
        if sheet.iteration:
            self.end_iteration()
        sheet.clear()
        sheet.clock.begin(sheet.iteration)
        sheet.iteration += 1
        sheet.collecting = True
        super().make_experience(*arguments, **options)
        sheet.collecting = False
        sheet.clock.open("train")

    def end_iteration(self) -> None:
        """All optimizer steps of the iteration are done."""
        self.sheet.clock.close()
        self.sheet.clock.stop()
        self._on_iteration_end()

    def generate(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Base 256, called in line 285."""
        with self.sheet.clock.phase("generate"):
            self._generated = super().generate(*arguments, **options)
        if not self.accelerator.is_main_process:
            # the reward function runs in the main process alone
            with self.sheet.clock.phase("reward", alone=True):
                pass
        return self._generated

    def decode(self, *arguments: Any, **options: Any) -> Any:
        """Base 203, called in lines 304 and 343: token by token to text, everyone's and then this rank's."""
        with self.sheet.clock.detail("other/decode"):
            return super().decode(*arguments, **options)

    def loss(self, batch: Any) -> Any:
        """Line 127: the forward pass of a micro batch, with its advantages and its loss."""
        self.sheet.tally.trained_tokens += batch.query_tensors.numel() + batch.response_tensors.numel()
        with self.sheet.clock.detail("train/forward"):
            loss, stats = super().loss(batch)
        self.sheet.step_stats.append(stats)
        return loss, stats

    def push_to_store(self, data: Any) -> None:
        """The samples as they will be trained on: counted, and held to what was generated."""
        prompts = torch.stack([element.query_tensor for element in data])
        responses = torch.stack([element.response_tensor for element in data])
        self.sheet.tally.add_samples(prompts, responses, self.tokenizer.pad_token_id)
        if not torch.equal(responses, self._generated[:, prompts.size(1) :].cpu()):
            raise ConfigError("decoding and re-tokenising changed what was generated")
        self.sheet.rewards += float(sum(element.rewards.sum() for element in data))
        super().push_to_store(data)

    def evaluate(self) -> Dict[str, float]:
        """Base 339: nothing is evaluated."""
        return {}

    def save(self, directory: Optional[str] = None, **options: Any) -> None:
        """Base 309: nothing is saved."""

    def save_pretrained(self, directory: Optional[str] = None, **options: Any) -> None:
        """Base 284: nothing is saved."""

    def timed_logprobs(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """``logprobs_of_labels`` as the trainer's module calls it; in the loss it is part of the forward pass."""

        def timed(*arguments: Any, **options: Any) -> torch.Tensor:
            if not self.sheet.collecting:
                return function(*arguments, **options)
            phase = _LOGPROBS_PHASES[self.sheet.logprobs_calls]
            self.sheet.logprobs_calls += 1
            with self.sheet.clock.phase(phase):
                return function(*arguments, **options)

        return timed

    def _timed_reward(self, function: Callable[..., List[float]]) -> Callable[..., List[float]]:
        def timed(*arguments: Any, **options: Any) -> List[float]:
            with self.sheet.clock.phase("reward", alone=True):
                scores = function(*arguments, **options)
            self.sheet.scores += float(sum(scores))
            return scores

        return timed

    def _time_model(self) -> None:
        """The forward passes of lines 420 to 437: the policy's, then the reference's by either way."""
        self._time_forward(self.model, "score")
        if hasattr(self, "ref_model"):
            self._time_forward(self.ref_model, "reference")
            return
        policy = self.accelerator.unwrap_model(self.model)
        branch = policy.forward_hydra

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.sheet.clock.phase("reference", more=True):
                return branch(*arguments, **options)

        policy.forward_hydra = timed

    def _time_forward(self, model: Any, phase: str) -> None:
        forward = model.forward

        def timed(*arguments: Any, **options: Any) -> Any:
            if not self.sheet.collecting:
                return forward(*arguments, **options)
            with self.sheet.clock.phase(phase, more=True):
                return forward(*arguments, **options)

        model.forward = timed

    def _time_steps(self) -> None:
        """Base 574 and 585; DeepSpeed's engine steps inside of Accelerate's backward."""
        backward = self.accelerator.backward

        def timed_backward(*arguments: Any, **options: Any) -> None:
            with self.sheet.clock.detail("train/backward"):
                backward(*arguments, **options)

        self.accelerator.backward = timed_backward
        stepper = self.model if hasattr(self.model, "get_global_grad_norm") else self.opt
        step = stepper.step

        def timed_step(*arguments: Any, **options: Any) -> None:
            with self.sheet.clock.detail("train/optimizer"):
                step(*arguments, **options)
            self.sheet.tally.optimizer_steps += 1
            norm = stepper.get_global_grad_norm() if stepper is self.model else None
            if norm is not None:
                self.sheet.gradient_norms.append(float(norm))

        stepper.step = timed_step


def _timed_tokenizer(kind: type, sheet: Sheet) -> type:
    """The tokenizer's class with a clock around being called, as in line 346."""

    class TimedTokenizer(kind):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            with sheet.clock.detail("other/tokenise"):
                return super().__call__(*arguments, **options)

    return TimedTokenizer
