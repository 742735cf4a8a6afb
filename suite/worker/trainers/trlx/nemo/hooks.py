"""Phase edges at the methods of trlx's NeMo PPO trainer, without changing any of them.

One iteration is a call of ``make_experience`` and the optimizer steps that follow, all of it on every rank. Lines are
those of ``trlx/trainer/nemo_ppo_trainer.py`` (TP) and ``trlx/models/modeling_nemo_ppo.py`` (MP).
"""

import itertools
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.iteration import IterationState, after, before


class TimedNeMoPPO:
    """Stands before trlx's trainer in the order of inheritance; ``steps`` of its optimizer end an iteration."""

    def __init__(self, state: IterationState, steps: int, on_setup: Callable[[], None], **options: Any) -> None:
        self.iteration_state, self.steps = state, steps
        self._on_setup = on_setup
        super().__init__(**options)
        # TP:196; the evaluation at the end (TP:440) asks for samples and scores too and belongs to no iteration
        self.reward_fn = state.in_turn(self.reward_fn, ("reward",))
        self._time_model()

    def make_experience(self, *arguments: Any, **options: Any) -> Tuple[List[Any], Dict[str, Any]]:
        """TP:149; the optimizer was made just before (TP:367), so the first call times it too."""
        state = self.iteration_state
        self.check_closed()
        if state.iteration < 0:
            self._on_setup()
            self._time_optimizer()
        state.begin()
        rollouts, statistics = super().make_experience(*arguments, **options)
        state.logged.update(statistics)
        self._count(rollouts)
        return rollouts, statistics

    def check_closed(self) -> None:
        """Raise ConfigError where the iteration before has had fewer optimizer steps than it should."""
        if self.iteration_state.is_running:
            done = self.iteration_state.tally.optimizer_steps
            raise ConfigError("trlx made {} optimizer steps in an iteration of {}".format(done, self.steps))

    def _count(self, rollouts: List[Any]) -> None:
        """TP:257 appends an end token to each response, which is no token of the sample."""
        lengths = {(element.query_tensor.numel(), element.response_tensor.numel() - 1) for element in rollouts}
        if len(lengths) != 1:
            raise ConfigError("samples of different lengths (prompt, response) came back: {}".format(sorted(lengths)))
        prompts = torch.stack([element.query_tensor for element in rollouts])
        responses = torch.stack([element.response_tensor[:-1] for element in rollouts])
        self.iteration_state.tally.add_samples(prompts, responses, self.tokenizer.pad_token_id)

    def _time_model(self) -> None:
        model, state = self.model, self.iteration_state
        model.generate = state.in_turn(model.generate, ("generate",))  # MP:1158, all samples of this replica at once
        model.infer_logprobs_and_values = self._timed_inference(model.infer_logprobs_and_values)
        # MP:934, called in TP:399: the policy back to the device; behind it the training begins
        swap = state.detailed(model.offload_reference_model, "reference/swap")
        model.offload_reference_model = state.phased(swap, "reference")
        after(model, "offload_reference_model", state.begin_training)
        model.training_step = state.detailed(model.training_step, "train/forward-backward")
        before(model, "training_step", self._count_trained)
        after(model, "training_step", lambda loss, *_, **__: state.values["loss"].append(loss))
        heads = getattr(model.model, "module", model.model)  # apart from Float16Module, which wraps it under O2
        # MP:237, in the first micro batch of the reference: the policy to the host, the reference to the device
        heads.offload_policy_model = state.detailed(heads.offload_policy_model, "reference/swap")

    def _timed_inference(self, infer: Callable[..., Any]) -> Callable[..., Any]:
        """MP:1095: in it Megatron's schedule runs for the policy, then for the reference (MP:1129, 1138), whose phase
        goes on until the policy is back on the device (TP:399)."""
        get, state = self.model._get_fwd_bwd_function, self.iteration_state
        phases = itertools.cycle((("score", False), ("reference", True)))

        def get_timed(*given: Any) -> Any:
            return state.placed(get(*given), lambda *_, **__: next(phases))

        def timed(*arguments: Any, **options: Any) -> Any:
            with mock.patch.object(self.model, "_get_fwd_bwd_function", get_timed):
                return infer(*arguments, **options)

        return timed

    def _count_trained(self, batch: List[torch.Tensor], *_: Any, **__: Any) -> None:
        """MP:652: forward and backward passes of one batch; its first two tensors are prompts and responses."""
        padding = self.tokenizer.pad_token_id
        self.iteration_state.tally.trained_tokens += sum(int(tensor.ne(padding).sum()) for tensor in batch[:2])

    def _time_optimizer(self) -> None:
        """TP:406; the last step of an iteration ends it."""
        optimizer, state = self.model._optimizer, self.iteration_state

        def count(*_: Any, **__: Any) -> None:
            if not state.is_running:
                raise ConfigError("trlx made more than {} optimizer steps in an iteration".format(self.steps))
            state.tally.optimizer_steps += 1
            if state.tally.optimizer_steps == self.steps:
                state.end()

        optimizer.step = state.detailed(optimizer.step, "train/optimizer")
        after(optimizer, "step", count)
