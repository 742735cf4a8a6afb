"""The policy's weights from the ranks that train to those that generate: one tensor after the other, in place.

To an engine of the same stack they go parameter by parameter, as that asks for them; to a generation engine whole,
under the names that Hugging Face's model has.
"""

import math
from typing import Iterator, List, Tuple

import torch

from suite.worker.engines.base import Engine
from suite.worker.generation.base import Generator
from suite.worker.partitioned import whole
from suite.worker.progress import Progress
from suite.worker.samples import Samples
from suite.worker.split.link import Link
from suite.worker.world import World

#: What is added up on both sides, to see that what was published is what is held: elements of a tensor, and of how many
#: tensors one is looked at in a publication.
_CHECKED_ELEMENTS, _CHECKED_ONE_IN = 256, 16
_WANTED, _OFFERED = "weights wanted", "weights offered"
#: name, shape and type (without ``torch.``)
Form = Tuple[str, List[int], str]


class Checksum:
    """The sum of the same few elements on both sides. Other tensors are looked at in each publication, so that what
    one takes is the sending."""

    def __init__(self) -> None:
        self._publications, self._tensors = -1, 0
        self._sums: List[torch.Tensor] = []

    def begin(self) -> None:
        """A publication, of which ``add`` is given every tensor in its order."""
        self._publications += 1
        self._tensors, self._sums = 0, []

    def add(self, tensor: torch.Tensor) -> None:
        if self._tensors % _CHECKED_ONE_IN == self._publications % _CHECKED_ONE_IN:
            self._sums.append(tensor.detach().reshape(-1)[:_CHECKED_ELEMENTS].double().sum())
        self._tensors += 1

    def total(self) -> float:
        return float(torch.stack(self._sums).sum()) if self._sums else 0.0


class Publisher:
    """On the training side: hands over what the generation side asks for, in its order."""

    def __init__(self, engine: Engine, link: Link, progress: Progress) -> None:
        """Waits for the generation side."""
        self._link, self._checksum = link, Checksum()
        held = dict(engine.models[0].named_parameters())
        self._wanted: List[Tuple[torch.nn.Parameter, torch.dtype]] = []
        for name, _, dtype in link.wait(_WANTED, progress)["parameters"]:
            self._wanted.append((held[name], getattr(torch, dtype)))

    def publish(self) -> float:
        """Send every tensor as it is now; the sum to check by. Collective over the training side.

        On ranks that hand nothing over the sum is of what they would have sent.
        """
        self._checksum.begin()
        with torch.no_grad():
            for tensor in self._tensors():
                if self._link.carries_tensors:
                    self._link.broadcast(tensor)
                self._checksum.add(tensor)
        return self._checksum.total()

    def _tensors(self) -> Iterator[torch.Tensor]:
        """In the types that the other side holds."""
        for parameter, dtype in self._wanted:
            with whole([parameter]):
                yield parameter.detach().to(dtype).contiguous()


class ExportPublisher(Publisher):
    """Hands over what ``Engine.weights`` gives, to ranks that know nothing of this stack."""

    def __init__(self, engine: Engine, link: Link, progress: Progress) -> None:
        """Collective over the training side: goes through all weights once to tell their names and shapes."""
        self._link, self._engine, self._checksum = link, engine, Checksum()
        forms = [_form(name, tensor) for name, tensor in engine.weights()]
        if link.carries_tensors:
            link.publish(_OFFERED, tensors=forms, parameters=sum(math.prod(shape) for _, shape, _ in forms))

    def _tensors(self) -> Iterator[torch.Tensor]:
        for _, tensor in self._engine.weights():
            yield tensor.detach().contiguous()


class OwnLoop(Generator):
    """The stack's own generation, on a policy that only generates: its parameters are written in place."""

    def __init__(self, engine: Engine, link: Link, is_leader: bool) -> None:
        self._engine, self._link, self._checksum = engine, link, Checksum()
        self._parameters = dict(engine.models[0].named_parameters())
        self.weights_sum, self.total_parameters = 0.0, engine.total_parameters
        if is_leader:
            link.publish(_WANTED, parameters=[_form(name, each) for name, each in self._parameters.items()])

    def sync(self) -> None:
        """Take one publication. The word that it begins was heard before."""
        self._checksum.begin()
        with torch.no_grad():
            for parameter in self._parameters.values():
                self._link.broadcast(parameter.detach())
                self._checksum.add(parameter)
        self.weights_sum = self._checksum.total()

    def generate(self, prompts: Samples) -> Samples:
        samples = self._engine.generate(prompts)
        self.finish_seconds = self._engine.finish_seconds
        return samples


class RemotePolicy:
    """Stands where a generation engine looks for the training engine: its weights come from the other side."""

    notes: Tuple[str, ...] = ()
    models: Tuple[torch.nn.Module, ...] = ()

    def __init__(self, world: World, link: Link, progress: Progress) -> None:
        self.device, self.data_parallel_rank, self.data_parallel_size = world.device, world.rank, world.world_size
        self._link, self._progress, self._checksum = link, progress, Checksum()
        self._forms: List[Form] = []
        self.weights_sum, self.total_parameters = 0.0, 0

    def weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """Take one publication, tensor by tensor. The word that it begins was heard before."""
        if not self._forms:
            offered = self._link.wait(_OFFERED, self._progress)
            self._forms, self.total_parameters = offered["tensors"], offered["parameters"]
        self._checksum.begin()
        for name, shape, dtype in self._forms:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
            self._link.broadcast(tensor)
            self._checksum.add(tensor)
            yield name, tensor
        self.weights_sum = self._checksum.total()


def _form(name: str, tensor: torch.Tensor) -> Form:
    return name, list(tensor.shape), str(tensor.dtype)[len("torch.") :]
