"""Phase edges of TRL's PPO trainer, whose ``train`` is one function: at what it calls; the rewards it asks for.

Functions of its module and methods of its objects are wrapped; each runs unchanged inside. Line numbers are those of
``trl/experimental/ppo/ppo_trainer.py`` at 1.12.0.
"""

import gc
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, Optional

import torch
from torch import nn

from suite.worker.asked import scores_of_own
from suite.worker.samples import Samples
from suite.worker.trainers.iteration import IterationState, Piece, after, before

#: what the trainer logs once an iteration, averaged over ranks already
LOGGED = {
    "policy_loss": "loss/policy_avg",
    "value_loss": "loss/value_avg",
    "kl": "objective/kl",
    "reward": "objective/scores",
}


def batches(loader: Any, state: IterationState) -> Iterator[Any]:
    """The trainer's own batches of prompts: to take one (line 671) ends an iteration and begins the next."""
    found = iter(loader)
    while True:
        if state.is_running:
            state.end()
        state.begin()
        yield next(found)


def time_functions(module: Any, trainer: Any, state: IterationState, forward_pass: ExitStack) -> None:
    """Put clocks around what ``module``, TRL's, calls by name. ``forward_pass`` is open until its backward pass."""
    generation = module.unwrap_model_for_generation

    @contextmanager
    def timed_generation(*arguments: Any, **options: Any) -> Iterator[Any]:
        """Lines 683 to 696: under ZeRO-3 weights are gathered before, and dealt out again behind."""
        with state.clock.phase("generate"), generation(*arguments, **options) as model:
            yield model

    def note_samples(generated: Any, model: Any, queries: torch.Tensor, *_: Any, **__: Any) -> None:
        """Line 115, called in 690."""
        samples, prompt_tokens, padding = generated[0], queries.size(1), trainer.processing_class.pad_token_id
        state.tally.add_samples(samples[:, :prompt_tokens], samples[:, prompt_tokens:], padding)

    def forward_is_of(model: Any, tokens: torch.Tensor, *_: Any, **__: Any) -> Optional[Piece]:
        """Line 191: the reference's pass (711), then those of policy and value model in each micro batch (820)."""
        if state.collecting:
            return "reference", True
        state.tally.trained_tokens += tokens.numel()
        forward_pass.enter_context(state.clock.detail("train/forward"))
        return None

    def judgement_is_of(model: Any, *_: Any, **__: Any) -> Piece:
        """The value model's pass (729), then the reward (733)."""
        return "reward" if model is trainer.reward_model else "score", False

    # lines 753 and 919: Python's garbage, twice an iteration
    module.gc = SimpleNamespace(collect=state.detailed(gc.collect, "other/collect-garbage"))
    module.unwrap_model_for_generation = timed_generation
    after(module, "batch_generation", note_samples)
    module.forward = state.placed(module.forward, forward_is_of)
    # lines 703 and 714: the policy's out of generation's logits, then the reference's; in the loss, 823
    module.selective_log_softmax = state.in_turn(module.selective_log_softmax, ("score", True), ("reference", False))
    module.get_reward = state.placed(module.get_reward, judgement_is_of)


def time_methods(trainer: Any, state: IterationState, forward_pass: ExitStack) -> None:
    """Put clocks around what ``train`` does with its accelerator, optimizer and engine."""
    accelerator = trainer.accelerator
    # the optimizer below Accelerate's, which does nothing between steps
    state.time_steps(accelerator, trainer.optimizer.optimizer, trainer.model)

    before(accelerator, "accumulate", state.begin_training)  # line 810: with the first micro batch
    # lines 890 to 904: the first statistic is gathered when training is over
    accelerator.gather_for_metrics = state.detailed(accelerator.gather_for_metrics, "other/statistics")
    before(accelerator, "gather_for_metrics", state.end_training)
    # line 848; DeepSpeed's engine steps inside of it
    before(accelerator, "backward", lambda *_, **__: forward_pass.close())
    before(trainer, "log", lambda logs, *_, **__: state.logged.update(logs))
    trainer.dataloader = batches(trainer.dataloader, state)


class Scores(nn.Module):
    """The scores of this rank's samples, in their order, wherever in a sample TRL looks for one.

    TRL's ``get_reward`` calls what ``base_model_prefix`` names, and gives its last hidden states to ``score``.
    """

    base_model_prefix = "itself"

    def __init__(self, manifest: Dict[str, Any], rank: int, iteration: Callable[[], int]) -> None:
        super().__init__()
        self.config = SimpleNamespace()  # DeepSpeed's preparation asks it for a width, and goes on without one
        self._manifest, self._rank, self._iteration = manifest, rank, iteration
        # an engine without a parameter does not know its device
        self.nothing = nn.Parameter(torch.zeros(1), requires_grad=False)

    @property
    def itself(self) -> "Scores":
        return self

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        """``hidden_states``: [b, T, 1], each sample's score at every token."""
        responses = input_ids[:, self._manifest["workload"]["prompt_tokens"] :]
        scores = scores_of_own(self._manifest, self._iteration(), self._rank, Samples.even(responses, 0))
        return SimpleNamespace(hidden_states=(scores[:, None, None].expand(*input_ids.shape, 1),))

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return states
