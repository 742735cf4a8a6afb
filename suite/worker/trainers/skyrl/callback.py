"""SkyRL's own callback (skyrl/train/utils/callbacks.py), which tells the suite of each step what SkyRL logs of it."""

from typing import Any, Dict

from suite.worker.trainers.logged.sink import StepSink

COUNTED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")


class StepTeller:
    """Counts the batch that was trained on, and writes it with what SkyRL is about to log.

    Has all methods of ``TrainingCallback`` that do nothing by ``__getattr__``, so that SkyRL need not be there.
    """

    def __init__(self, sink: StepSink) -> None:
        self._sink = sink
        self._counts: Dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *arguments: None

    def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
        self._sink.begin()

    def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
        self._counts = batch_counts(callback_input.batch)

    def on_log(self, trainer: Any, callback_input: Any, control: Any) -> None:
        told = {"suite/" + name: number for name, number in self._counts.items()}
        self._sink.log({**callback_input.logs, **told}, callback_input.global_step)


def batch_counts(batch: Any) -> Dict[str, int]:
    """From the tensors of a training batch: ``attention_mask`` [b, T] of real tokens, ``response_mask`` [b, R]."""
    real, responses = batch["attention_mask"], batch["response_mask"]
    tokens, generated = int(real.sum()), int(responses.sum())
    return {
        "samples": int(real.shape[0]),
        "prompt_tokens": tokens - generated,
        "response_tokens": generated,
        "padded_tokens": int(real.numel()) - tokens,
        "trained_tokens": tokens,
    }
