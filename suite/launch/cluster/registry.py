"""The cluster launchers by name. A new one is a folder beside these and a line here."""

from importlib import import_module
from typing import TYPE_CHECKING

from suite.spec.terminal import UsageError

if TYPE_CHECKING:
    from suite.launch.cluster.launcher import ClusterLauncher, Scheduler

#: name -> module:class, in the order in which the commands show them
CLUSTER_LAUNCHERS = {
    "slurm": "suite.launch.slurm.launcher:SlurmLauncher",
    "kubernetes": "suite.launch.kubernetes.launcher:KubernetesLauncher",
}


def find_launcher(name: str) -> "type[ClusterLauncher]":
    """The class of a launcher; imported only now. Raises UsageError for a name that is not registered."""
    if name not in CLUSTER_LAUNCHERS:
        from suite.spec.names import nearest

        known = ", ".join(CLUSTER_LAUNCHERS)
        raise UsageError(
            f"there is no cluster launcher {name!r}{nearest(name, CLUSTER_LAUNCHERS)} (there are: {known})"
        )
    module, _, attribute = CLUSTER_LAUNCHERS[name].partition(":")
    return getattr(import_module(module), attribute)


def find_scheduler(name: str) -> "Scheduler":
    """Who is asked about runs that this launcher submitted. Raises UsageError for a name that is not registered."""
    return find_launcher(name).scheduler()
