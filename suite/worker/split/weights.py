"""The policy's weights from the ranks that train to those that generate, parameter by parameter, between two engines of
one stack."""

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

import torch

from suite.worker.engines.base import Engine
from suite.worker.progress import Progress
from suite.worker.rank import ConfigError
from suite.worker.split.link import Link

#: Elements of each parameter that are added up on both sides, to see that what was sent is what is held.
_CHECKED_ELEMENTS = 256
_WANTED = "weights wanted"
Named = Dict[str, torch.nn.Parameter]


class Publisher:
    """On the training side: hands over those parameters that the generation side asks for, in its order."""

    def __init__(self, engine: Engine, link: Link, progress: Progress) -> None:
        """Waits for the generation side. Raises ConfigError where it wants what this engine does not hold so."""
        self._link = link
        held = _policy(engine)
        self._wanted: List[Tuple[torch.nn.Parameter, torch.dtype]] = []
        for name, shape, dtype in link.hear(_WANTED, progress)["parameters"]:
            if name not in held or _shape(held[name]) != shape:
                raise ConfigError(
                    "the generation side wants {} of shape {}, the training side holds {}".format(
                        name, shape, _shape(held[name]) if name in held else "none"
                    )
                )
            self._wanted.append((held[name], getattr(torch, dtype)))

    def publish(self) -> float:
        """Send every parameter as it is now, in the type that the other side holds; the sum to check by.

        Collective over the training side. On ranks that hand nothing over the sum is of what they would have sent.
        """
        sums = []
        with torch.no_grad():
            for parameter, dtype in self._wanted:
                with _whole(parameter):
                    tensor = parameter.detach().to(dtype).contiguous()
                    if self._link.carries_tensors:
                        self._link.broadcast(tensor)
                    sums.append(_partial_sum(tensor))
        return float(torch.stack(sums).sum())


class Subscriber:
    """On the generation side: receives into the parameters of a policy that only generates."""

    def __init__(self, engine: Engine, link: Link, is_leader: bool) -> None:
        self._link = link
        self._parameters = _policy(engine)
        if is_leader:
            wanted = [(name, _shape(each), str(each.dtype)[len("torch.") :]) for name, each in self._parameters.items()]
            link.tell(_WANTED, parameters=wanted)

    def receive(self) -> float:
        """Take one publication; the sum of what is then held. The word that it begins was heard before."""
        with torch.no_grad():
            for parameter in self._parameters.values():
                self._link.broadcast(parameter.detach())
            return float(torch.stack([_partial_sum(each.detach()) for each in self._parameters.values()]).sum())


def _policy(engine: Engine) -> Named:
    return dict(engine.models[0].named_parameters())


def _shape(parameter: torch.nn.Parameter) -> List[int]:
    """Of a parameter that ZeRO-3 partitions, that of the whole one."""
    return list(getattr(parameter, "ds_shape", parameter.shape))


@contextmanager
def _whole(parameter: Any) -> Iterator[None]:
    """Gather a parameter that ZeRO-3 partitions; others are whole."""
    if not hasattr(parameter, "ds_id"):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        yield


def _partial_sum(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1)[:_CHECKED_ELEMENTS].double().sum()
