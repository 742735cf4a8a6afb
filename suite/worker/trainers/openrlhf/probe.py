"""What runs inside of OpenRLHF's model actors, by ``__ray_call__``: what they hold, and what training did there."""

from typing import Any, Callable, Dict, List, Tuple

import torch

from suite.worker.trainers.clock import marker, seconds_between
from suite.worker.trainers.drawn_model import count_parameters
from suite.worker.trainers.iteration import after, before

Facts = Dict[str, Any]
#: parts of training, by the engine's methods
_TIMED = (("forward", "forward"), ("backward", "backward"), ("step", "optimizer"))


def install(actor: Any) -> Facts:
    """Facts of the actor's engine: kind, stage, ranks, device, precision, kernels, parameters whole. One that trains is
    counted and timed from now on."""
    model = next(getattr(actor, name) for name in ("actor", "critic", "model") if hasattr(actor, name))
    engine = model if hasattr(model, "zero_optimization_stage") else model.model  # OpenRLHF's ``Actor`` is around one
    if hasattr(actor, "trainer"):
        actor.suite_probe = Probe(engine, actor.trainer)
    optimizer = getattr(engine, "optimizer", None)
    below = type(getattr(optimizer, "optimizer", optimizer))  # ZeRO's
    attention = getattr(engine.module.config, "_attn_implementation", None)
    total, trains = count_parameters(engine.module.parameters())
    weight = next(engine.module.parameters())
    return {
        "engine": type(engine).__name__,
        "stage": engine.zero_optimization_stage(),
        "ranks": torch.distributed.get_world_size(),
        "device": weight.device.type,
        "precision": str(weight.dtype).replace("torch.", ""),
        "kernels": "{} attention; optimizer {}.{}".format(attention, below.__module__, below.__name__),
        "total": total,
        "trains": trains,
    }


def read(actor: Any) -> Facts:
    return actor.suite_probe.read()


class Probe:
    """Around the training of one actor: its batches as they are collated, and its engine's forward, backward, step."""

    def __init__(self, engine: Any, trainer: Any) -> None:
        """``trainer``: of OpenRLHF's policy or critic actor, which trains the ``engine``'s model in ``ppo_train``."""
        self._engine = engine
        self._mark = marker("cuda" if torch.cuda.is_available() else "cpu")
        self._clear()
        before(trainer, "ppo_train", self._clear)
        after(trainer.replay_buffer, "collate_fn", self._count)
        for method, part in _TIMED:
            setattr(engine, method, self._timed(getattr(engine, method), part))

    def read(self) -> Facts:
        """Of the last training: real tokens and padding, optimizer steps, and seconds by part."""
        seconds = {part: 0.0 for _, part in _TIMED}
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        for part, began, ended in self._marks:
            seconds[part] += seconds_between(began, ended)
        steps = self._engine.global_steps - self._steps
        return {"tokens": self._tokens, "padding": self._padding, "steps": steps, "seconds": seconds}

    def _clear(self, *_: Any, **__: Any) -> None:
        self._steps = self._engine.global_steps
        self._tokens = self._padding = 0
        self._marks: List[Tuple[str, Any, Any]] = []

    def _count(self, experience: Any, *_: Any) -> None:
        """Of a micro batch, from its mask, while it is still in host memory."""
        real = int(experience.attention_mask.sum())
        self._tokens += real
        self._padding += experience.attention_mask.numel() - real

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = self._mark()
            found = method(*arguments, **options)
            self._marks.append((part, began, self._mark()))
            return found

        return timed
