"""Phase edges at the methods of TRL's trainers and of the transformers trainer under them, none of them changed.

One iteration is a generation and its optimizer steps: it begins when the batches of its first step are fetched, and
ends when its last step has been logged. Line numbers are those of TRL 1.16.0, ``trainer/grpo_trainer.py`` (RLOO's has
the same methods), and, as "base", of transformers 5.19.0, ``trainer.py``.
"""

import math
from typing import Any, Callable, Dict, List, Optional

import torch

from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.tally import Tally


class Sheet:
    """What the hooks note on this rank between the beginning and the end of an iteration."""

    def __init__(self, tally: Tally, passes: int) -> None:
        """``passes``: forward and backward passes of an iteration on this rank."""
        self.clock = NullClock()
        self.tally = tally
        self.passes = passes
        self.iteration = 0
        self.collecting = False
        self.logged: Dict[str, Any] = {}
        self.gradient_norms: List[Any] = []  # numbers, or tensors still being computed
        self.prompts = self.responses = torch.empty(0)

    def clear(self) -> None:
        """Another iteration begins."""
        self.tally.clear()
        self.logged = {}
        self.gradient_norms.clear()

    def gradient_norm(self) -> float:
        """Mean over the steps; NaN where none was reported."""
        norms = [float(norm) for norm in self.gradient_norms]
        return sum(norms) / len(norms) if norms else math.nan


class TimedTrainer:
    """Stands before TRL's trainer in the order of inheritance."""

    def __init__(self, sheet: Sheet, on_start: Callable[[], None], on_end: Callable[[], None], **options: Any) -> None:
        """``on_start``: once, when everything is wrapped and about to train; ``on_end``: after each iteration."""
        self.sheet = sheet
        self._on_start, self._on_end = on_start, on_end
        self._is_timed = False
        super().__init__(**options)
        if self.use_vllm:
            engine = self.vllm_generation
            engine.sync_weights = self._phased("sync", engine.sync_weights)
            engine.generate = self._phased("generate", engine.generate)

    def get_batch_samples(self, *arguments: Any, **options: Any) -> Any:
        """Base 2264: called before each optimizer step, and first in an iteration."""
        if not self._is_timed:
            self._is_timed = True
            self._time_steps()
            self._on_start()
        if self._step % self.sheet.passes == 0:
            self.sheet.clear()
            self.sheet.clock.begin(self.sheet.iteration)
            self.sheet.iteration += 1
        return super().get_batch_samples(*arguments, **options)

    def _generate_and_score_completions(self, inputs: Any) -> Dict[str, Any]:
        """Line 2324: samples with all that training reads; what follows is training."""
        sheet = self.sheet
        sheet.collecting = True
        output = super()._generate_and_score_completions(inputs)
        sheet.collecting = False
        sheet.prompts, sheet.responses = output["prompt_ids"], output["completion_ids"]
        sheet.clock.open("train")
        return output

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        """Line 1763; with vLLM it first hands the weights over, which is another phase, so its parts are timed."""
        if self.use_vllm:
            return super()._generate_single_turn(*arguments, **options)
        with self.sheet.clock.phase("generate"):
            return super()._generate_single_turn(*arguments, **options)

    def _get_per_token_logps_and_entropies(self, model: Any, *arguments: Any, **options: Any) -> Any:
        """Line 1419: the policy's log-probs or the reference's, of all samples of this rank; in the loss it is part of
        the forward pass."""
        if not self.sheet.collecting:
            return super()._get_per_token_logps_and_entropies(model, *arguments, **options)
        with self.sheet.clock.phase("reference" if model is self.ref_model else "score"):
            return super()._get_per_token_logps_and_entropies(model, *arguments, **options)

    def _calculate_rewards(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Line 1579: the reward function, on every rank for its own samples, and their gathering."""
        with self.sheet.clock.phase("reward"):
            return super()._calculate_rewards(*arguments, **options)

    def compute_loss(self, model: Any, inputs: Dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """Line 2939: the forward pass of a micro batch, with its loss and TRL's statistics of it."""
        self.sheet.tally.trained_tokens += inputs["prompt_ids"].numel() + inputs["completion_ids"].numel()
        with self.sheet.clock.detail("train/forward"):
            return super().compute_loss(model, inputs, *arguments, **options)

    def _clip_grad_norm(self, model: Any) -> Any:
        """Base 2741; DeepSpeed clips inside of its step."""
        with self.sheet.clock.detail("train/optimizer"):
            return super()._clip_grad_norm(model)

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *arguments: Any, **options: Any) -> None:
        """Base 2213: called after each optimizer step, and once more when all are done."""
        sheet = self.sheet
        if sheet.tally.optimizer_steps == 0:
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)
            return
        if grad_norm is not None:
            sheet.gradient_norms.append(grad_norm)
        is_last = self._step % sheet.passes == 0
        if is_last:
            sheet.clock.close()
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)
        if is_last:
            sheet.clock.stop()
            self._on_end()
            sheet.tally.optimizer_steps = 0

    def log(self, logs: Dict[str, float], *arguments: Any, **options: Any) -> None:
        """Line 3302: TRL adds its statistics to what it is given."""
        super().log(logs, *arguments, **options)
        self.sheet.logged.update(logs)

    def _phased(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.sheet.clock.phase(phase):
                return function(*arguments, **options)

        return timed

    def _time_steps(self) -> None:
        """Base 2101 and 1911; DeepSpeed's engine steps inside of Accelerate's backward."""
        backward = self.accelerator.backward

        def timed_backward(*arguments: Any, **options: Any) -> None:
            with self.sheet.clock.detail("train/backward"):
                backward(*arguments, **options)

        self.accelerator.backward = timed_backward
        engine: Optional[Any] = getattr(self.accelerator, "deepspeed_engine_wrapped", None)
        stepper = self.optimizer if engine is None else engine.engine
        step = stepper.step

        def timed_step(*arguments: Any, **options: Any) -> Any:
            with self.sheet.clock.detail("train/optimizer"):
                done = step(*arguments, **options)
            self.sheet.tally.optimizer_steps += 1
            return done

        stepper.step = timed_step
