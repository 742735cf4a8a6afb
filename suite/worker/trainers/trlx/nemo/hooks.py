"""Phase edges at the methods of trlx's NeMo PPO trainer, without changing any of them.

One iteration is a call of ``make_experience`` and the optimizer steps that follow. All of it happens on every rank:
trlx calls the reward function on each too. Lines are of CarperAI/trlx at 3340c2f3: TP is
``trlx/trainer/nemo_ppo_trainer.py``, MP is ``trlx/models/modeling_nemo_ppo.py``.
"""

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.tally import Tally

#: MP:1095 runs Megatron's schedule twice: the policy with its value head, then the reference
_SCHEDULES = ("score", "reference")


class Sheet:
    """What the hooks note on this rank; ``steps`` is how many optimizer steps end an iteration."""

    def __init__(self, tally: Tally, steps: int) -> None:
        self.clock = NullClock()
        self.tally = tally
        self.steps = steps
        self.iteration = 0
        self.is_open = False
        self.losses: List[torch.Tensor] = []
        self.rollouts: Dict[str, Any] = {}


class TimedNeMoPPO:
    """Stands before trlx's trainer in the order of inheritance.

    ``on_setup()`` is called when model, groups and optimizer stand, ``on_iteration_end()`` after an iteration's last
    optimizer step.
    """

    def __init__(
        self, sheet: Sheet, on_setup: Callable[[], None], on_iteration_end: Callable[[], None], **options: Any
    ) -> None:
        self.sheet = sheet
        self._on_setup = on_setup
        self._on_iteration_end = on_iteration_end
        self._schedule: Optional[Iterator[str]] = None
        super().__init__(**options)
        self.reward_fn = self._timed_reward(self.reward_fn)
        self._time_model()

    def make_experience(self, *arguments: Any, **options: Any) -> Tuple[List[Any], Dict[str, Any]]:
        """TP:149; the optimizer was made just before (TP:367), so the first call times it too."""
        sheet = self.sheet
        self.check_closed()
        if sheet.iteration == 0:
            self._on_setup()
            self._time_optimizer()
        sheet.tally.clear()
        sheet.losses.clear()
        sheet.clock.begin(sheet.iteration)
        sheet.iteration += 1
        sheet.is_open = True
        rollouts, statistics = super().make_experience(*arguments, **options)
        sheet.rollouts = statistics
        self._count(rollouts)
        return rollouts, statistics

    def check_closed(self) -> None:
        """Raise ConfigError where the iteration before has had fewer optimizer steps than it should."""
        if self.sheet.is_open:
            raise ConfigError(
                "trlx made {} optimizer steps in an iteration of {}".format(
                    self.sheet.tally.optimizer_steps, self.sheet.steps
                )
            )

    def _count(self, rollouts: List[Any]) -> None:
        """TP:257 appends an end token to each response, which is no token of the sample."""
        lengths = {(element.query_tensor.numel(), element.response_tensor.numel() - 1) for element in rollouts}
        if len(lengths) != 1:
            raise ConfigError("samples of different lengths (prompt, response) came back: {}".format(sorted(lengths)))
        prompts = torch.stack([element.query_tensor for element in rollouts])
        responses = torch.stack([element.response_tensor[:-1] for element in rollouts])
        self.sheet.tally.add_samples(prompts, responses, self.tokenizer.pad_token_id)

    def _timed_reward(self, function: Callable[..., List[float]]) -> Callable[..., List[float]]:
        """TP:196; the evaluation at the end (TP:440) asks for scores too and belongs to no iteration."""

        def timed(*arguments: Any, **options: Any) -> List[float]:
            if not self.sheet.is_open:
                return function(*arguments, **options)
            with self.sheet.clock.phase("reward"):
                return function(*arguments, **options)

        return timed

    def _time_model(self) -> None:
        model = self.model
        model.generate = self._timed_generate(model.generate)
        model.infer_logprobs_and_values = self._marked_inference(model.infer_logprobs_and_values)
        model._get_fwd_bwd_function = self._timed_schedules(model._get_fwd_bwd_function)
        model.offload_reference_model = self._timed_return(model.offload_reference_model)
        model.training_step = self._timed_step(model.training_step)
        heads = getattr(model.model, "module", model.model)  # apart from Float16Module, which wraps it under O2
        heads.offload_policy_model = self._timed_swap(heads.offload_policy_model)

    def _timed_generate(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """MP:1158, all samples of this replica at once."""

        def timed(*arguments: Any, **options: Any) -> Any:
            if not self.sheet.is_open:
                return generate(*arguments, **options)
            with self.sheet.clock.phase("generate"):
                return generate(*arguments, **options)

        return timed

    def _marked_inference(self, infer: Callable[..., Any]) -> Callable[..., Any]:
        """MP:1095: within it the schedule runs for scores and reference; elsewhere it generates or trains."""

        def marked(*arguments: Any, **options: Any) -> Any:
            self._schedule = iter(_SCHEDULES)
            try:
                return infer(*arguments, **options)
            finally:
                self._schedule = None

        return marked

    def _timed_schedules(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """MP:1129 and 1138. The reference phase goes on until the policy is back on the device (TP:399)."""

        def timed_get(*arguments: Any, **options: Any) -> Any:
            run, phases = get(*arguments, **options), self._schedule
            if phases is None:
                return run

            def timed_run(*inner: Any, **inner_options: Any) -> Any:
                phase = next(phases)
                with self.sheet.clock.phase(phase, more=phase == "reference"):
                    return run(*inner, **inner_options)

            return timed_run

        return timed_get

    def _timed_swap(self, swap: Callable[[], None]) -> Callable[[], None]:
        """MP:237, in the first micro batch of the reference: the policy to the host, the reference to the device."""

        def timed() -> None:
            with self.sheet.clock.detail("reference/swap"):
                swap()

        return timed

    def _timed_return(self, offload: Callable[[], None]) -> Callable[[], None]:
        """MP:934, called in TP:399: the policy back to the device; behind it the training begins."""

        def timed() -> None:
            with self.sheet.clock.phase("reference"), self.sheet.clock.detail("reference/swap"):
                offload()
            self.sheet.clock.open("train")

        return timed

    def _timed_step(self, step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """MP:652: forward and backward passes of one batch; its first two tensors are prompts and responses."""

        def timed(batch: List[torch.Tensor], *arguments: Any, **options: Any) -> torch.Tensor:
            padding = self.tokenizer.pad_token_id
            self.sheet.tally.trained_tokens += sum(int(tensor.ne(padding).sum()) for tensor in batch[:2])
            with self.sheet.clock.detail("train/forward-backward"):
                loss = step(batch, *arguments, **options)
            self.sheet.losses.append(loss)
            return loss

        return timed

    def _time_optimizer(self) -> None:
        """TP:406; the last step of an iteration ends it."""
        optimizer = self.model._optimizer
        step = optimizer.step

        def timed(*arguments: Any, **options: Any) -> Any:
            sheet = self.sheet
            if not sheet.is_open:
                raise ConfigError("trlx made more than {} optimizer steps in an iteration".format(sheet.steps))
            with sheet.clock.detail("train/optimizer"):
                result = step(*arguments, **options)
            sheet.tally.optimizer_steps += 1
            if sheet.tally.optimizer_steps == sheet.steps:
                sheet.clock.close()
                sheet.clock.stop()
                sheet.is_open = False
                self._on_iteration_end()
            return result

        optimizer.step = timed
