"""Phase edges at the methods of trlx's PPO trainer on Accelerate, without changing any of them.

One iteration is a call of ``make_experience`` and what follows until the next one. Line numbers are those of
``trlx/trainer/accelerate_ppo_trainer.py`` and, as "base", ``accelerate_base_trainer.py``.
"""

from typing import Any, Callable, Dict, List, Optional

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.iteration import IterationState, Piece

_LOSSES = {"loss": "losses/total_loss", "policy_loss": "losses/policy_loss", "value_loss": "losses/value_loss"}
#: log-probs are computed twice in an iteration: the policy's, then the reference's (445, 446)
_LOGPROBS_PHASES = ("score", "reference")


class TimedPPO:
    """Stands before trlx's trainer in the order of inheritance; ``state`` comes by way of ``trainer_kwargs``."""

    def __init__(self, config: Any, state: IterationState, **options: Any) -> None:
        self.iteration_state = state
        self._generated = torch.empty(0)
        self._logprobs_calls = 0
        super().__init__(config, **options)
        self.reward_fn = self._timed_reward(self.reward_fn)
        self._time_model()
        norm = getattr(self.model, "get_global_grad_norm", None)  # base 574 and 585
        state.time_steps(self.accelerator, *((self.opt,) if norm is None else (self.model, norm)))
        self.tokenizer.__class__ = _timed_tokenizer(type(self.tokenizer), state)

    def make_experience(self, *arguments: Any, **options: Any) -> None:
        """Line 251. The iteration before ends here, and this one's samples are collected."""
        state = self.iteration_state
        if state.iteration >= 0:
            self.end_iteration()
        self._logprobs_calls = 0
        state.begin()
        super().make_experience(*arguments, **options)
        state.collecting = False
        state.clock.open("train")

    def end_iteration(self) -> None:
        self.iteration_state.clock.close()
        self.iteration_state.end()

    def generate(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Base 256, called in line 285."""
        with self.iteration_state.clock.phase("generate"):
            self._generated = super().generate(*arguments, **options)
        if not self.accelerator.is_main_process:
            # the reward function runs in the main process alone
            with self.iteration_state.clock.phase("reward", alone=True):
                pass
        return self._generated

    def decode(self, *arguments: Any, **options: Any) -> Any:
        """Base 203, called in lines 304 and 343: token by token to text, everyone's and then this rank's."""
        with self.iteration_state.clock.detail("other/decode"):
            return super().decode(*arguments, **options)

    def loss(self, batch: Any) -> Any:
        """Line 127: the forward pass of a micro batch, with its advantages and its loss."""
        self.iteration_state.tally.trained_tokens += batch.query_tensors.numel() + batch.response_tensors.numel()
        with self.iteration_state.clock.detail("train/forward"):
            loss, stats = super().loss(batch)
        for name, key in _LOSSES.items():
            if key in stats:
                self.iteration_state.values[name].append(stats[key])
        return loss, stats

    def push_to_store(self, data: Any) -> None:
        """The samples as they will be trained on: counted, and held to what was generated."""
        prompts = torch.stack([element.query_tensor for element in data])
        responses = torch.stack([element.response_tensor for element in data])
        self.iteration_state.tally.add_samples(prompts, responses, self.tokenizer.pad_token_id)
        if not torch.equal(responses, self._generated[:, prompts.size(1) :].cpu()):
            raise ConfigError("decoding and re-tokenising changed what was generated")
        self.iteration_state.values["rewards"].append(sum(element.rewards.sum() for element in data))
        super().push_to_store(data)

    def evaluate(self) -> Dict[str, float]:
        """Base 339: nothing is evaluated."""
        return {}

    def save(self, directory: Optional[str] = None, **options: Any) -> None:
        """Base 309, and 284: nothing is saved."""

    save_pretrained = save

    def timed_logprobs(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """``logprobs_of_labels`` as the trainer's module calls it; in the loss it is part of the forward pass."""

        def where(*_: Any, **__: Any) -> Optional[Piece]:
            if not self.iteration_state.collecting:
                return None
            self._logprobs_calls += 1
            return _LOGPROBS_PHASES[self._logprobs_calls - 1], False

        return self.iteration_state.placed(function, where)

    def _timed_reward(self, function: Callable[..., List[float]]) -> Callable[..., List[float]]:
        def timed(*arguments: Any, **options: Any) -> List[float]:
            with self.iteration_state.clock.phase("reward", alone=True):
                scores = function(*arguments, **options)
            self.iteration_state.values["scores"].append(sum(scores))
            return scores

        return timed

    def _time_model(self) -> None:
        """The forward passes of lines 420 to 437: the policy's, then the reference's by either way."""
        self._time_forward(self.model, "score")
        if hasattr(self, "ref_model"):
            self._time_forward(self.ref_model, "reference")
            return
        policy = self.accelerator.unwrap_model(self.model)
        policy.forward_hydra = self.iteration_state.phased(policy.forward_hydra, "reference", more=True)

    def _time_forward(self, model: Any, phase: str) -> None:
        state = self.iteration_state
        model.forward = state.placed(model.forward, lambda *_, **__: (phase, True) if state.collecting else None)


def _timed_tokenizer(kind: type, state: IterationState) -> type:
    """The tokenizer's class with a clock around being called, as in line 346."""

    class TimedTokenizer(kind):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            with state.clock.detail("other/tokenise"):
                return super().__call__(*arguments, **options)

    return TimedTokenizer
