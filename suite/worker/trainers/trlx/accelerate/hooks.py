"""Phase edges at the methods of trlx's PPO trainer on Accelerate, without changing any of them.

One iteration is a call of ``make_experience`` and what follows until the next one. Line numbers are those of
``trlx/trainer/accelerate_ppo_trainer.py`` and, as "base", ``accelerate_base_trainer.py``.
"""

from typing import Any, Dict, Optional

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.iteration import after

_LOSSES = {"loss": "losses/total_loss", "policy_loss": "losses/policy_loss", "value_loss": "losses/value_loss"}


class TimedPPO:
    """Stands before trlx's trainer in the order of inheritance; ``owner`` is the suite's."""

    def __init__(self, config: Any, owner: Any, **options: Any) -> None:
        self.iteration_state, self._owner = owner.state, owner
        super().__init__(config, **options)
        self.time_calls()

    def get_arch(self, config: Any) -> Any:
        """Line 108, from a configuration; asked once more where the reference is a full copy."""
        return self._owner.build_reference() if hasattr(self, "model") else self._owner.build_policy()

    def setup_model(self) -> Any:
        """Base 148."""
        model = super().setup_model()
        self._owner.accept(self.accelerator, model)
        return model

    def time_calls(self) -> None:
        """Put clocks around what trlx calls on other objects than its trainer."""
        state = self.iteration_state
        self.reward_fn = state.phased(self.reward_fn, "reward", alone=True)
        after(self, "reward_fn", lambda scores, *_, **__: state.values["scores"].append(sum(scores)))
        # the forward passes of lines 420 to 437: the policy's, then the reference's by either way
        self.model.forward = state.in_turn(self.model.forward, ("score", True))
        if hasattr(self, "ref_model"):
            self.ref_model.forward = state.in_turn(self.ref_model.forward, ("reference", True))
        else:
            policy = self.accelerator.unwrap_model(self.model)
            policy.forward_hydra = state.phased(policy.forward_hydra, "reference", more=True)
        self.decode = state.detailed(self.decode, "other/decode")  # 304 and 343: everyone's, then this rank's
        state.time_steps(self.accelerator, self.opt, self.model)  # base 574 and 585
        kind = type(self.tokenizer)
        call = state.detailed(kind.__call__, "other/tokenise")  # line 346
        self.tokenizer.__class__ = type("TimedTokenizer", (kind,), {"__call__": call})

    def make_experience(self, *arguments: Any, **options: Any) -> None:
        """Line 251. The iteration before ends here, and this one's samples are collected."""
        state = self.iteration_state
        if state.is_running:
            self.end_iteration()
        state.begin()
        super().make_experience(*arguments, **options)
        state.begin_training()

    def end_iteration(self) -> None:
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

    def loss(self, batch: Any) -> Any:
        """Line 127: the forward pass of a micro batch, with its advantages and its loss."""
        self.iteration_state.tally.trained_tokens += batch.query_tensors.numel() + batch.response_tensors.numel()
        with self.iteration_state.clock.detail("train/forward"):
            loss, stats = super().loss(batch)
        for name, key in _LOSSES.items():
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

    def save_pretrained(self, directory: Optional[str] = None, **options: Any) -> None:
        """Base 284: nothing is saved."""
