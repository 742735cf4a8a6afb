"""Phase edges at the methods of TRL's trainers and of the transformers trainer under them, none of them changed.

One iteration is a generation and its optimizer steps: it begins when the batches of its first step are fetched, and
ends when its last step has been logged. Line numbers are those of TRL 1.16.0, ``trainer/grpo_trainer.py`` (RLOO's has
the same methods), and, as "base", of transformers 5.19.0, ``trainer.py``.
"""

from typing import Any, Callable, Dict, Optional, Sequence

import torch

from suite.worker.trainers.iteration import IterationState
from suite.worker.trainers.trl.shims import checked_once


class TimedTrainer:
    """Stands before TRL's trainer in the order of inheritance."""

    def __init__(
        self,
        state: IterationState,
        passes: int,
        on_start: Callable[[], None],
        lengths: Sequence[int],
        steps: int,
        **options: Any,
    ) -> None:
        """``passes``: forward and backward ones of an iteration on this rank. ``on_start``: once, when everything is
        wrapped and about to train. ``lengths``: of this rank's responses, for which transformers makes ``steps`` tokens
        of every sample."""
        self.iteration_state, self._passes, self._on_start = state, passes, on_start
        self._lengths = lengths
        self._is_timed = False
        super().__init__(**options)
        if not self.use_vllm:
            self.generation_config.max_new_tokens = steps
        if self.use_vllm:
            engine = self.vllm_generation
            engine.sync_weights = state.phased(checked_once(engine), "sync")
            engine.generate = state.phased(engine.generate, "generate")

    def get_batch_samples(self, *arguments: Any, **options: Any) -> Any:
        """Base 2264: called before each optimizer step, and first in an iteration."""
        if not self._is_timed:
            self._is_timed = True
            self._time_steps()
            self._on_start()
        if self._step % self._passes == 0:
            self.iteration_state.begin()
        return super().get_batch_samples(*arguments, **options)

    def _generate_and_score_completions(self, inputs: Any) -> Dict[str, Any]:
        """Line 2324: samples with all that training reads; what follows is training."""
        self.collected = super()._generate_and_score_completions(inputs)
        self.iteration_state.collecting = False
        self.iteration_state.clock.open("train")
        return self.collected

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        """Line 1763; with vLLM it first hands the weights over, which is another phase, so its parts are timed.

        No token that transformers samples ends a response, so what lies after its forced length is cut off.
        """
        if self.use_vllm:
            return super()._generate_single_turn(*arguments, **options)
        with self.iteration_state.clock.phase("generate"):
            generated = super()._generate_single_turn(*arguments, **options)
            responses, *others = generated if isinstance(generated, tuple) else (generated,)
            responses = [ids[:length] for ids, length in zip(responses, self._lengths)]
            return (responses, *others) if others else responses

    def _get_per_token_logps_and_entropies(self, model: Any, *arguments: Any, **options: Any) -> Any:
        """Line 1419: the policy's log-probs or the reference's, of all samples of this rank; in the loss it is part of
        the forward pass."""
        if not self.iteration_state.collecting:
            return super()._get_per_token_logps_and_entropies(model, *arguments, **options)
        with self.iteration_state.clock.phase("reference" if model is self.ref_model else "score"):
            return super()._get_per_token_logps_and_entropies(model, *arguments, **options)

    def _calculate_rewards(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Line 1579: the reward function, on every rank for its own samples, and their gathering."""
        with self.iteration_state.clock.phase("reward"):
            return super()._calculate_rewards(*arguments, **options)

    def compute_loss(self, model: Any, inputs: Dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """Line 2939: the forward pass of a micro batch, with its loss and TRL's statistics of it."""
        self.iteration_state.tally.add_trained(inputs["prompt_mask"], inputs["completion_mask"])
        with self.iteration_state.clock.detail("train/forward"):
            return super().compute_loss(model, inputs, *arguments, **options)

    def _clip_grad_norm(self, model: Any) -> Any:
        """Base 2741; DeepSpeed clips inside of its step."""
        with self.iteration_state.clock.detail("train/optimizer"):
            return super()._clip_grad_norm(model)

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *arguments: Any, **options: Any) -> None:
        """Base 2213: called after each optimizer step, and once more when all are done."""
        state = self.iteration_state
        if state.tally.optimizer_steps == 0:
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)
            return
        if grad_norm is not None:
            state.values["gradient_norm"].append(grad_norm)
        is_last = self._step % self._passes == 0
        if is_last:
            state.clock.close()
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)
        if is_last:
            state.end()
            state.tally.optimizer_steps = 0

    def log(self, logs: Dict[str, float], *arguments: Any, **options: Any) -> None:
        """Line 3302: TRL adds its statistics to what it is given."""
        super().log(logs, *arguments, **options)
        self.iteration_state.logged.update(logs)

    def _time_steps(self) -> None:
        """Base 2101 and 1911; the gradient's norm comes with ``_maybe_log_save_evaluate``."""
        engine: Optional[Any] = getattr(self.accelerator, "deepspeed_engine_wrapped", None)
        self.iteration_state.time_steps(self.accelerator, self.optimizer if engine is None else engine.engine)
