"""The policy's weights from the ranks that train to those that generate, one tensor after the other: parameters to an
engine of the same stack, to a generation engine whole weights under Hugging Face's names."""

import math
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from suite.worker.engines.base import Engine
from suite.worker.generation.base import Generator
from suite.worker.partitioned import whole
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.split.link import Link

#: What is added up on both sides, to see that what was published is what is held: elements of a tensor, and of how many
#: tensors one is looked at in a publication.
_CHECKED_ELEMENTS, _CHECKED_ONE_IN = 256, 16
_OFFERED = "weights offered"
Named = Tuple[str, torch.Tensor]


class Checksum:
    """The sum of the same few elements on both sides. Other tensors are looked at in each publication, so that what
    one takes is the sending."""

    def __init__(self) -> None:
        self._publications, self._tensors = 0, 0
        self._sums: List[torch.Tensor] = []

    def add(self, tensor: torch.Tensor) -> None:
        if self._tensors % _CHECKED_ONE_IN == self._publications % _CHECKED_ONE_IN:
            self._sums.append(tensor.detach().reshape(-1)[:_CHECKED_ELEMENTS].double().sum())
        self._tensors += 1

    def total(self) -> float:
        """Of the publication that ends with it, of which ``add`` was given every tensor in its order."""
        total = float(torch.stack(self._sums).sum()) if self._sums else 0.0
        self._publications, self._tensors, self._sums = self._publications + 1, 0, []
        return total


class Publisher:
    """On the training side: what it hands over, in one order."""

    def __init__(self, weights: Callable[[], Iterator[Named]], link: Link) -> None:
        """Collective over the training side: goes through all ``weights`` once to tell names, shapes and types."""
        self._weights, self._link, self._checksum = weights, link, Checksum()
        forms = [(name, list(each.shape), str(each.dtype)[len("torch.") :]) for name, each in weights()]
        if link.carries_tensors:
            link.publish(_OFFERED, tensors=forms, parameters=sum(math.prod(shape) for _, shape, _ in forms))

    @torch.no_grad()
    def publish(self) -> float:
        """Send every tensor as it is now; the sum to check by. Collective over the training side. On ranks that hand
        nothing over the sum is of what they would have sent."""
        for _, tensor in self._weights():
            tensor = tensor.detach().contiguous()
            if self._link.carries_tensors:
                self._link.broadcast(tensor)
            self._checksum.add(tensor)
        return self._checksum.total()


def own_parameters(engine: Engine) -> Iterator[Named]:
    """What an engine of the same stack that generates alone has too, as that holds it; whole until the next."""
    for name, parameter in engine.models[0].named_parameters():
        if not name.startswith(("value_head.", "branch.")):
            with whole([parameter]):
                yield name, parameter


class Publications:
    """On the generation side: each is taken tensor by tensor, once the word that it begins was heard."""

    def __init__(self, link: Link, device: torch.device) -> None:
        self._link, self._device, self._checksum = link, device, Checksum()
        self._forms: List[Any] = []
        self.weights_sum, self.total_parameters = 0.0, 0

    def take(self, held: Dict[str, torch.Tensor]) -> Iterator[Named]:
        """One publication: in the tensors ``held`` under these names, or in new ones where they do not fit."""
        if not self._forms:
            offered = self._link.wait(_OFFERED)
            self._forms, self.total_parameters = offered["tensors"], offered["parameters"]
        for name, shape, kind in self._forms:
            tensor, dtype = held.get(name), getattr(torch, kind)
            if tensor is None or list(tensor.shape) != shape or tensor.dtype != dtype:
                tensor = torch.empty(shape, dtype=dtype, device=self._device)
            self._link.broadcast(tensor)
            self._checksum.add(tensor)
            yield name, tensor
        self.weights_sum = self._checksum.total()


class OwnLoop(Generator):
    """The stack's own generation, on a policy that only generates: its parameters are written in place."""

    def __init__(self, engine: Engine, publications: Publications) -> None:
        self._engine, self._publications = engine, publications
        self._parameters = {name: each.detach() for name, each in engine.models[0].named_parameters()}

    def sync(self) -> None:
        """Raises ConfigError where the training side does not hold what this one does."""
        taken = 0
        for name, tensor in self._publications.take(self._parameters):
            held = self._parameters.get(name)
            if held is None or held.shape != tensor.shape:
                shape = list(tensor.shape)
                raise ConfigError("the training side holds {} of shape {}, this side does not".format(name, shape))
            if tensor is not held:
                held.copy_(tensor)
            taken += 1
        if taken != len(self._parameters):
            raise ConfigError("{} of {} parameters were published".format(taken, len(self._parameters)))

    def generate(self, prompts: Samples) -> Samples:
        samples = self._engine.generate(prompts)
        self.finish_seconds = self._engine.finish_seconds
        return samples
