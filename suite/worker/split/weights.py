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
        wanted: List[Any] = link.hear(_WANTED, progress)["parameters"]
        self._parameters = [(name, held.get(name)) for name, _, _ in wanted]
        for (name, parameter), (_, shape, dtype) in zip(self._parameters, wanted):
            found = None if parameter is None else _form(parameter)
            if found != (shape, dtype):
                raise ConfigError(
                    "the generation side wants {} as {} {}, the training side holds {}".format(
                        name, shape, dtype, "none" if found is None else "{} {}".format(*found)
                    )
                )

    def publish(self) -> float:
        """Send every parameter as it is now; the sum to check by. Collective over the training side.

        On ranks that hand nothing over the sum is of what they would have sent.
        """
        sums = []
        with torch.no_grad():
            for _, parameter in self._parameters:
                with _whole(parameter):
                    tensor = parameter.detach().contiguous()
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
            link.tell(_WANTED, parameters=[(name, *_form(each)) for name, each in self._parameters.items()])

    def receive(self) -> float:
        """Take one publication; the sum of what is then held. The word that it begins was heard before."""
        with torch.no_grad():
            for parameter in self._parameters.values():
                self._link.broadcast(parameter.detach())
            return float(torch.stack([_partial_sum(each.detach()) for each in self._parameters.values()]).sum())


def _policy(engine: Engine) -> Named:
    return dict(engine.models[0].named_parameters())


def _form(parameter: torch.nn.Parameter) -> Tuple[List[int], str]:
    """Shape and type, of a parameter that ZeRO-3 partitions the whole one's."""
    return list(getattr(parameter, "ds_shape", parameter.shape)), str(parameter.dtype)


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
