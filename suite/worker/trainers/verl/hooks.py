"""The suite's clock at the phase edges of verl's own iteration, by wrapping methods of one trainer object.

Edges, of verl 0.9.1 (``trainer/ppo/v1/trainer_base.py``): ``fit`` 412, ``prepare_step`` 1525, ``_compute_old_log_prob``
1634, ``_compute_ref_log_prob`` 1695, ``_compute_values`` 1721, ``_compute_advantage`` 1743, ``_update_critic`` 1804,
``_update_actor`` 1827; ``trainer_sync.py``: ``on_step_end`` and ``on_sample_end``.
"""

import functools
import math
from typing import Any, Callable, Dict, List, Optional

import torch

from suite.worker.loop import draw_prompts
from suite.worker.mismatch import mismatch
from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.tally import Tally
from suite.worker.trainers.verl.settings import learns_values

_TIMERS = "timing_s/"
#: the suite's name of a statistic -> verl's
_STATISTICS = {
    "policy_loss": "actor/pg_loss",
    "value_loss": "critic/vf_loss",
    "gradient_norm": "actor/grad_norm",
    "reward": "critic/score/mean",
    "kl": "actor/reward_kl_penalty",
    "loss": "actor/loss",
}
_NO_PADDING = -1


class Sheet:
    """The iteration that is under way: its clock, what verl showed of its tensors, and how it ends."""

    def __init__(self, manifest: Dict[str, Any], tally: Tally, parameters: int) -> None:
        """``parameters``: of everything that trains, the critic's too."""
        self.clock = NullClock()
        self.iteration = 0
        self._manifest, self._tally, self._parameters = manifest, tally, parameters
        self._batch: Optional[Any] = None
        self._logprobs: Optional[Any] = None

    def begin(self) -> None:
        """verl's step begins."""
        self._tally.clear()
        self._batch = self._logprobs = None
        self.clock.begin(self.iteration)

    def note_batch(self, batch: Any) -> None:
        """The finished samples, as verl makes its own statistics of them."""
        self._batch = batch.batch

    def note_logprobs(self, data: Any) -> None:
        """The policy's log-probs beside those that vLLM told."""
        self._logprobs = data.batch

    def note_training(self, batch: Any, metrics: Dict[str, Any]) -> None:
        """What the policy was trained on: a sum of lengths for each epoch, and a gradient norm for each step."""
        lengths = [tag["seq_len"] for tag in batch.tags if not tag.get("is_padding")]
        self._tally.trained_tokens += sum(lengths) * batch.extra_info["epochs"]
        norms = metrics["grad_norm"]
        self._tally.optimizer_steps += len(norms) if isinstance(norms, list) else 1

    def end(self, metrics: Dict[str, Any]) -> None:
        """verl has logged: the iteration is over. Raises ConfigError unless its work was the manifest's."""
        self.clock.stop()
        self._count()
        counts = self._tally.own_counts(self._parameters, self._parameters)
        timers = {name[len(_TIMERS) :]: float(value) for name, value in metrics.items() if name.startswith(_TIMERS)}
        self.clock.finish(counts, self._statistics(metrics), own_timers=timers, **self._rollout())
        self.iteration += 1

    def _count(self) -> None:
        assert self._batch is not None, "verl makes statistics of every step's samples"
        prompts, responses = self._batch["prompts"], self._batch["responses"]
        for name, tensor in (("prompt", prompts), ("response", responses)):
            lengths = set(self._batch[name + "_length"].long().tolist())
            if lengths != {tensor.size(1)}:
                raise ConfigError("{}s have {} tokens where one length was forced".format(name, sorted(lengths)))
        self._tally.add_samples(prompts, responses, _NO_PADDING)
        vocab = self._manifest["size"]["vocab"]
        if int(responses.min()) < 0 or int(responses.max()) >= vocab:
            raise ConfigError("vLLM sampled tokens outside of the vocabulary")
        if not same_rows(prompts, ordinary_prompts(self._manifest, self.iteration)):
            raise ConfigError("verl's prompts are not the manifest's")

    def _statistics(self, metrics: Dict[str, Any]) -> Dict[str, Optional[float]]:
        found = {name: float(metrics.get(verls, math.nan)) for name, verls in _STATISTICS.items()}
        if not learns_values(self._manifest):
            del found["value_loss"]
        return {name: value if math.isfinite(value) else None for name, value in found.items()}

    def _rollout(self) -> Dict[str, Any]:
        if self._logprobs is None:
            return {}
        own, engine, mask = (self._logprobs[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask"))
        return {"rollout": mismatch(own, engine, mask.bool(), _itself, _itself)}


def install(trainer: Any, sheet: Sheet) -> None:
    """Wrap the methods of ``trainer`` (verl's PPOTrainerSync), and what its module makes statistics with."""
    from verl.trainer.ppo.v1 import trainer_base as module

    has_critic = trainer.use_critic
    before(trainer, "on_step_begin", sheet.begin)
    before(trainer, "prepare_step", lambda: sheet.clock.open("generate"))
    _after(trainer, "on_sample_end", lambda: sheet.clock.close())
    _phase(trainer, "_compute_old_log_prob", sheet, "score", more=has_critic)
    _phase(trainer, "_compute_ref_log_prob", sheet, "reference")
    _phase(trainer, "_compute_values", sheet, "score")
    _phase(trainer, "_compute_advantage", sheet, "reward")
    _phase(trainer, "_update_critic", sheet, "train", more=True, detail="train/critic")
    _phase(trainer, "_update_actor", sheet, "train", detail="train/actor" if has_critic else None)
    _phase(trainer, "on_step_end", sheet, "sync")
    group = trainer.actor_rollout_wg
    update = group.update_actor

    def update_actor(batch: Any) -> Any:
        output = update(batch)
        sheet.note_training(batch, output["metrics"])
        return output

    group.update_actor = update_actor
    module.compute_data_metrics = _looking_at(module.compute_data_metrics, "batch", sheet.note_batch)
    module.calculate_debug_metrics = _looking_at(module.calculate_debug_metrics, "data", sheet.note_logprobs)

    class Tracking(module.Tracking):  # type: ignore[name-defined,misc]
        def log(self, data: Dict[str, Any], step: int, *others: Any, **options: Any) -> None:
            super().log(data, step, *others, **options)
            sheet.end(data)

    module.Tracking = Tracking


def ordinary_prompts(manifest: Dict[str, Any], iteration: int) -> torch.Tensor:
    """The manifest's prompts as the tokenizer of numbers takes them over, [N, P]: special tokens become others."""
    from suite.worker.trainers.drawn_model import as_text, as_tokens

    return as_tokens(as_text(draw_prompts(manifest, iteration), manifest["size"]["vocab"]))


def same_rows(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same rows equally often, in any order."""
    found = [each.cpu().long().unique(dim=0, return_counts=True) for each in (one, other)]
    return all(torch.equal(*pair) for pair in zip(*found))


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    """The sum, or the largest, over the one process that has all samples."""
    return tensor


def before(owner: Any, name: str, first: Callable[[], Any]) -> None:
    """Have this object call ``first`` before its method of this name."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        first()
        return method(*arguments, **options)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, then: Callable[[], Any]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        then()
        return result

    setattr(owner, name, wrapped)


def _phase(owner: Any, name: str, sheet: Sheet, phase: str, more: bool = False, detail: Optional[str] = None) -> None:
    """A call of this method is a piece of ``phase``, and of ``detail`` in it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        with sheet.clock.phase(phase, more=more):
            if detail is None:
                return method(*arguments, **options)
            with sheet.clock.detail(detail):
                return method(*arguments, **options)

    setattr(owner, name, wrapped)


def _looking_at(function: Callable[..., Any], argument: str, look: Callable[[Any], None]) -> Callable[..., Any]:
    """The function, which shows what it is given under this name or as its first argument."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        values: List[Any] = [*arguments]
        look(options[argument] if argument in options else values[0])
        return function(*arguments, **options)

    return wrapped
