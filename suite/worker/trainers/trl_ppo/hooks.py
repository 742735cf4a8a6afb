"""Phase edges of TRL's PPO trainer, whose ``train`` is one function: at what it calls.

Functions of its module and methods of its objects are wrapped; each runs unchanged inside. Line numbers are those of
``trl/experimental/ppo/ppo_trainer.py`` at 1.12.0.
"""

import gc
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List

import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.tally import Tally

#: what the trainer logs once an iteration, averaged over ranks already
LOGGED = {
    "policy_loss": "loss/policy_avg",
    "value_loss": "loss/value_avg",
    "kl": "objective/kl",
    "reward": "objective/scores",
}


class Sheet:
    """What the hooks note on this rank between the beginning and the end of an iteration."""

    def __init__(self, tally: Tally, padding: int) -> None:
        """``padding``: the tokenizer's id of it."""
        self.clock = NullClock()
        self.tally = tally
        self.padding = padding
        self.on_iteration_end: Callable[[], None] = lambda: None
        self.iteration = -1
        self.collecting = self.training = False
        self.logged: Dict[str, float] = {}
        self.gradient_norms: List[float] = []
        self.logprobs_calls = 0
        self.forward_pass = ExitStack()  # holds the detail that is open from a forward pass to its backward pass

    def next_iteration(self) -> None:
        """The one before is over, and another begins."""
        self.end_iteration()
        self.iteration += 1
        self.tally.clear()
        self.logged.clear()
        self.gradient_norms.clear()
        self.logprobs_calls = 0
        self.clock.begin(self.iteration)
        self.collecting = True

    def end_iteration(self) -> None:
        """Of the iteration that runs, if one does."""
        if self.iteration >= 0:
            self.clock.stop()
            self.on_iteration_end()


class Batches:
    """The trainer's own batches of prompts; it takes one as the first thing of an iteration (line 671)."""

    def __init__(self, loader: Any, sheet: Sheet) -> None:
        self._loader, self._sheet = loader, sheet

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            self._sheet.next_iteration()
            batch = next(batches, None)
            if batch is None:
                raise ConfigError("TRL asked for more prompts than its iterations have")
            yield batch


def time_functions(module: Any, trainer: Any, sheet: Sheet) -> None:
    """Put clocks around the functions that ``module``, TRL's trainer's, calls by name."""
    generation, sample = module.unwrap_model_for_generation, module.batch_generation
    forward, logprobs, judge = module.forward, module.selective_log_softmax, module.get_reward

    @contextmanager
    def timed_generation(*arguments: Any, **options: Any) -> Iterator[Any]:
        """Lines 683 to 696: under ZeRO-3 weights are gathered before, and dealt out again behind."""
        with sheet.clock.phase("generate"), generation(*arguments, **options) as model:
            yield model

    def noted_samples(model: Any, queries: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """Line 115, called in 690."""
        samples, logits = sample(model, queries, *arguments, **options)
        prompt_tokens = queries.size(1)
        sheet.tally.add_samples(samples[:, :prompt_tokens], samples[:, prompt_tokens:], sheet.padding)
        return samples, logits

    def timed_forward(model: Any, tokens: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """Line 191: the reference's pass (711), then those of policy and value model in each micro batch (820)."""
        if sheet.collecting:
            with sheet.clock.phase("reference", more=True):
                return forward(model, tokens, *arguments, **options)
        sheet.tally.trained_tokens += tokens.numel()
        sheet.forward_pass.enter_context(sheet.clock.detail("train/forward"))
        return forward(model, tokens, *arguments, **options)

    def timed_logprobs(*arguments: Any, **options: Any) -> Any:
        """Lines 703 and 714: the policy's out of generation's logits, then the reference's; in the loss, 823."""
        if not sheet.collecting:
            return logprobs(*arguments, **options)
        sheet.logprobs_calls += 1
        phase, more = ("score", True) if sheet.logprobs_calls == 1 else ("reference", False)
        with sheet.clock.phase(phase, more=more):
            return logprobs(*arguments, **options)

    def timed_judgement(model: Any, *arguments: Any, **options: Any) -> Any:
        """The value model's pass (729), then the reward (733)."""
        with sheet.clock.phase("reward" if model is trainer.reward_model else "score"):
            return judge(model, *arguments, **options)

    def timed_collection() -> None:
        """Lines 753 and 919: Python's garbage, twice an iteration."""
        with sheet.clock.detail("other/collect-garbage"):
            gc.collect()

    module.gc = SimpleNamespace(collect=timed_collection)
    module.unwrap_model_for_generation, module.batch_generation = timed_generation, noted_samples
    module.forward, module.selective_log_softmax, module.get_reward = timed_forward, timed_logprobs, timed_judgement


def time_methods(trainer: Any, sheet: Sheet) -> None:
    """Put clocks around what ``train`` does with its accelerator, optimizer and engine."""
    accelerator, engine = trainer.accelerator, trainer.model
    accumulate, backward, gather = accelerator.accumulate, accelerator.backward, accelerator.gather_for_metrics
    under_deepspeed = hasattr(engine, "get_global_grad_norm")
    stepper = engine if under_deepspeed else trainer.optimizer
    step = stepper.step

    @contextmanager
    def timed_accumulate(*models: Any) -> Iterator[None]:
        """Line 810: with the first micro batch training begins."""
        if sheet.collecting:
            sheet.collecting, sheet.training = False, True
            sheet.clock.open("train")
        with accumulate(*models):
            yield

    def timed_backward(*arguments: Any, **options: Any) -> None:
        """Line 848; DeepSpeed's engine steps inside of it."""
        sheet.forward_pass.close()
        with sheet.clock.detail("train/backward"):
            backward(*arguments, **options)

    def timed_step(*arguments: Any, **options: Any) -> None:
        """Line 849; between steps Accelerate's optimizer does nothing, and DeepSpeed's engine is not asked."""
        with sheet.clock.detail("train/optimizer"):
            step(*arguments, **options)
        if under_deepspeed:
            sheet.tally.optimizer_steps += 1
            sheet.gradient_norms.append(float(engine.get_global_grad_norm()))

    def ended_by_gather(*arguments: Any, **options: Any) -> Any:
        """Lines 890 to 904: the first statistic is gathered when training is over."""
        if sheet.training:
            sheet.training = False
            sheet.clock.close()
        with sheet.clock.detail("other/statistics"):
            return gather(*arguments, **options)

    def count_step(*arguments: Any) -> None:
        sheet.tally.optimizer_steps += 1

    if not under_deepspeed:
        trainer.optimizer.optimizer.register_step_post_hook(count_step)
    accelerator.accumulate, accelerator.backward = timed_accumulate, timed_backward
    accelerator.gather_for_metrics, stepper.step = ended_by_gather, timed_step
    trainer.dataloader = Batches(trainer.dataloader, sheet)
