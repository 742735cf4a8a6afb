"""What runs inside of OpenRLHF's model actors, by ``__ray_call__``: what they hold, and what training did there."""

from typing import Any, Callable, Dict, List, Tuple

import torch

from suite.worker.trainers.clock import marker, seconds_between
from suite.worker.trainers.drawn_model import count_parameters
from suite.worker.trainers.iteration import after

Facts = Dict[str, Any]
_NAME = "_suite_probe"
#: parts of training, by the engine's methods
_TIMED = (("forward", "forward"), ("backward", "backward"), ("step", "optimizer"))


def install(actor: Any) -> Facts:
    """Count and time from now on in the actor or critic; what its engine is, for a check."""
    model = getattr(actor, "actor", None) or actor.critic
    setattr(actor, _NAME, Probe(_engine_of(model), actor.trainer))
    return engine_facts(model)


def read(actor: Any) -> Facts:
    return getattr(actor, _NAME).read()


def look(actor: Any) -> Facts:
    return engine_facts(actor.model)


def engine_facts(model: Any) -> Facts:
    """Of a DeepSpeed engine, or of OpenRLHF's ``Actor`` around one: kind, stage, ranks, device, parameters whole."""
    engine = _engine_of(model)
    module = getattr(engine, "module", engine)
    total, trains = count_parameters(module.parameters())
    stage = getattr(engine, "zero_optimization_stage", None)
    return {
        "engine": type(engine).__name__,
        "stage": None if stage is None else stage(),
        "ranks": torch.distributed.get_world_size(),
        "device": next(module.parameters()).device.type,
        "precision": str(next(module.parameters()).dtype).replace("torch.", ""),
        "attention": getattr(module.config, "_attn_implementation", None),
        "optimizer": _optimizer(engine),
        "total": total,
        "trains": trains,
    }


def _engine_of(model: Any) -> Any:
    engine = getattr(model, "model", model)
    return engine if hasattr(engine, "zero_optimization_stage") else model


def _optimizer(engine: Any) -> str:
    """The optimizer below ZeRO's, by module and class."""
    found = getattr(engine, "optimizer", None)
    found = getattr(found, "optimizer", found)
    return "{}.{}".format(type(found).__module__, type(found).__name__)


class Probe:
    """Around the training of one actor: its batches as they are collated, and its engine's forward, backward, step."""

    def __init__(self, engine: Any, trainer: Any) -> None:
        """``trainer``: of OpenRLHF's policy or critic actor, which trains the ``engine``'s model."""
        self._engine = engine
        self._steps = self._engine.global_steps
        self._tokens = self._padding = 0
        self._marks: List[Tuple[str, Any, Any]] = []
        self._training = False
        self._mark = marker("cuda" if torch.cuda.is_available() else "cpu")
        self._count(trainer.replay_buffer)
        self._time(trainer)

    def read(self) -> Facts:
        """Real tokens and padding that went into training, optimizer steps, and seconds by part of training."""
        seconds = {part: 0.0 for _, part in _TIMED}
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        for part, began, ended in self._marks:
            seconds[part] += seconds_between(began, ended)
        done = self._engine.global_steps - self._steps
        found = {"tokens": self._tokens, "padding": self._padding, "steps": done, "seconds": seconds}
        self._steps += done
        self._tokens = self._padding = 0
        self._marks = []
        return found

    def _count(self, buffer: Any) -> None:
        """Of every micro batch, from its mask, while it is still in host memory."""

        def count(experience: Any, *_: Any) -> None:
            real = int(experience.attention_mask.sum())
            self._tokens += real
            self._padding += experience.attention_mask.numel() - real

        after(buffer, "collate_fn", count)

    def _time(self, trainer: Any) -> None:
        """``trainer``: it trains between the beginning and the end of its ``ppo_train``."""
        train = trainer.ppo_train

        def training(*arguments: Any, **options: Any) -> Any:
            self._training = True
            try:
                return train(*arguments, **options)
            finally:
                self._training = False

        trainer.ppo_train = training
        for method, part in _TIMED:
            setattr(self._engine, method, self._timed(getattr(self._engine, method), part))

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            if not self._training:
                return method(*arguments, **options)
            began = self._mark()
            found = method(*arguments, **options)
            self._marks.append((part, began, self._mark()))
            return found

        return timed
