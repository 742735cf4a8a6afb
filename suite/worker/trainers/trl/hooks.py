"""Phase edges at the methods of TRL's trainers and of the transformers trainer under them, none of them changed.

One iteration is a generation and its optimizer steps: it begins when the batches of its first step are fetched, and
ends when its last step has been logged. Line numbers are those of TRL 1.16.0, ``trainer/grpo_trainer.py`` (RLOO's has
the same methods), and, as "base", of transformers 5.19.0, ``trainer.py``.
"""

from typing import Any, Callable, Dict, Sequence

from suite.worker.trainers.iteration import IterationState, after, before
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
        """``passes``: forward and backward ones of an iteration on this rank. ``on_start``: once, before training.
        ``lengths``: of this rank's responses, for which transformers makes ``steps`` tokens of every sample."""
        self.iteration_state, self._passes, self._on_start = state, passes, on_start
        self._lengths = lengths
        self._is_timed = False
        super().__init__(**options)
        if self.use_vllm:
            engine = self.vllm_generation
            engine.sync_weights = state.phased(checked_once(engine), "sync")
            engine.generate = state.phased(engine.generate, "generate")
        else:
            self.generation_config.max_new_tokens = steps

    def get_batch_samples(self, *arguments: Any, **options: Any) -> Any:
        """Base 2264: called before each optimizer step, and first in an iteration."""
        if not self._is_timed:
            self._is_timed = True
            self.time_calls()
            self._on_start()
        if self._step % self._passes == 0:
            self.iteration_state.begin()
        return super().get_batch_samples(*arguments, **options)

    def _generate_and_score_completions(self, inputs: Any) -> Dict[str, Any]:
        """Line 2324: samples with all that training reads; what follows is training."""
        self.collected = super()._generate_and_score_completions(inputs)
        self.iteration_state.begin_training()
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

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *arguments: Any, **options: Any) -> None:
        """Base 2213: called after each optimizer step, and once more when all are done."""
        state = self.iteration_state
        is_last = state.tally.optimizer_steps > 0 and self._step % self._passes == 0
        if grad_norm is not None:
            state.values["gradient_norm"].append(grad_norm)
        if is_last:
            state.end_training()
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *arguments, **options)
        if is_last:
            state.end()
            state.tally.optimizer_steps = 0

    def time_calls(self) -> None:
        """Put clocks around methods of which each call is of one phase or part."""
        state = self.iteration_state

        def where(model: Any, *_: Any, **__: Any) -> Any:
            """Line 1419: the log-probs of all samples of this rank; in the loss they are part of the forward pass."""
            phase = "reference" if model is self.ref_model else "score"
            return (phase,) if state.collecting else None

        self._get_per_token_logps_and_entropies = state.placed(self._get_per_token_logps_and_entropies, where)
        # line 1579: the reward function, on every rank for its own samples, and their gathering
        self._calculate_rewards = state.phased(self._calculate_rewards, "reward")
        # line 2939: the forward pass of a micro batch, with its loss and TRL's statistics of it
        self.compute_loss = state.detailed(self.compute_loss, "train/forward")
        masks = "prompt_mask", "completion_mask"
        before(self, "compute_loss", lambda _, inputs, *__, **___: state.tally.add_trained(*map(inputs.get, masks)))
        # base 2741; DeepSpeed clips inside of its step
        self._clip_grad_norm = state.detailed(self._clip_grad_norm, "train/optimizer")
        # line 3302: TRL adds its statistics to what it is given
        after(self, "log", lambda _, logs, *__, **___: state.logged.update(logs))
        # base 2101 and 1911; the gradient's norm comes with _maybe_log_save_evaluate
        engine: Any = getattr(self.accelerator, "deepspeed_engine_wrapped", None)
        state.time_steps(self.accelerator, self.optimizer if engine is None else engine.engine)
