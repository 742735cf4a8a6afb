"""What is started for a launcher's faults, and what each is looked at for afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

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
def in_containers() -> Iterator[Launcher]:
    with containers.started() as site:
        environment = {"DOCKER_HOST": site.runtime.host, "SUITE_TEST_WORKER": site.worker}
        yield Launcher(containers.faults(site), environment, {"containers": site.left_at_end}, site.restore)


@contextmanager
def by_compose() -> Iterator[Launcher]:
    with compose.started() as site:
        environment = {"DOCKER_HOST": site.runtime.host}
        yield Launcher(compose.faults(site), environment, {"containers": site.left_at_end}, site.restore)


@contextmanager
def on_slurm() -> Iterator[Launcher]:
    with scheduler.started() as site:
        yield Launcher(scheduler.faults(site), site.slurm.environment, {"jobs": site.left}, site.restore)


@contextmanager
def in_pods() -> Iterator[Launcher]:
    with pods.started() as site:
        looks = {"jobs": site.left, "containers": site.node.running}
        yield Launcher(pods.faults(site), {"KUBECONFIG": str(site.kubeconfig)}, looks, site.restore)


LAUNCHERS: dict[str, Callable[[], AbstractContextManager[Launcher]]] = {
    "local": on_this_host,
    "docker": in_containers,
    "compose": by_compose,
    "slurm": on_slurm,
    "kubernetes": in_pods,
}
