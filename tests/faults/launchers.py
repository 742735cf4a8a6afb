"""What is started for a launcher's faults, and what each is looked at for afterwards."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType

from tests.faults import compose, containers, local, pods, scheduler, surroundings
from tests.faults.tries import Fault


@dataclass(frozen=True)
class Launcher:
    """One that is ready. ``looks``: kinds of what it may leave behind; ``restore`` brings back what a fault ended."""

    faults: tuple[Fault, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    looks: Mapping[str, Callable[[], list[str]]] = field(default_factory=dict)
    restore: Callable[[], None] = lambda: None


@contextmanager
def on_this_host() -> Iterator[Launcher]:
    lacks = surroundings.lacks()
    for name, why in lacks.items():
        print(f"local: {name} not tried here: {why}")
    yield Launcher(tuple(fault for fault in local.FAULTS if fault.name not in lacks))


@contextmanager
def at_a_site(module: ModuleType) -> Iterator[Launcher]:
    with module.started() as site:
        yield Launcher(module.faults(site), site.environment, site.looks, site.restore)


LAUNCHERS: dict[str, Callable[[], AbstractContextManager[Launcher]]] = {
    "local": on_this_host,
    "docker": partial(at_a_site, containers),
    "compose": partial(at_a_site, compose),
    "slurm": partial(at_a_site, scheduler),
    "kubernetes": partial(at_a_site, pods),
}
