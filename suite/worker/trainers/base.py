"""What the worker needs from a stack's own PPO trainer: one object per rank, and the facts that go with it."""

import importlib
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, Optional, Tuple

from suite.worker.trainers.clock import NullClock, PhaseClock

#: a difference in work of trainers whose KL term is in the loss
K3 = "kl is the k3 estimate in the loss, while training, not the mean log-ratio at scoring"


class Trainer(ABC):
    """A trainer that brings its own PPO iteration; it reports to a clock where its phases begin and end.

    Built as ``Class(manifest, world)`` on every rank at the same time, after torch.distributed was initialised. The
    constructor builds the model and raises ConfigError or ValueError for what the stack cannot do.
    """

    #: whether the work is done by processes that the trainer starts, so that ranks themselves use no device (``led``)
    own_processes = False
    #: what a reader of the figures must know (shims that were active, kernels that were missing)
    notes: Tuple[str, ...] = ()
    #: where the work differs from the suite's own iteration of the same manifest, one sentence each
    work_differences: Tuple[str, ...] = ()
    #: timed phases that this trainer does not have, by name, each with the reason in a few words
    lacking_phases: Dict[str, str] = {}  # noqa: RUF012 - read, never changed
    #: whether no pass of the policy gives its log-probs before training: generation or the first training pass does
    unscored = False
    #: how the stack was configured, in its own words; empty where the manifest says it all
    configuration: Dict[str, Any] = {}  # noqa: RUF012 - read, never changed
    #: whose clock the seconds are of, where the suite does not time the trainer itself
    timed_by: Optional[str] = None
    #: what speaks against relying on this trainer's backend, where something does
    experimental: Optional[str] = None
    #: names and versions of what the package metadata does not hold, e.g. a source tree's commit
    versions: Dict[str, str] = {}  # noqa: RUF012 - read, never changed

    @classmethod  # noqa: B027 -- most trainers import their stack as they are built
    def load(cls, manifest: Dict[str, Any]) -> None:
        """Import what this manifest needs before ranks meet, so that none waits for another's imports."""

    #: says what the set-up is at, where that takes long: whoever waits reads it
    waiting_for: Callable[[str], None] = staticmethod(lambda what: None)
    #: modules of the stack that a run imports, in whatever process
    imports: Tuple[str, ...] = ()

    @classmethod
    def import_all(cls, device_type: str) -> None:
        """Import what a run on such a device imports, without one (``suite.worker.registry``)."""
        for name in cls.imports:
            importlib.import_module(name)

    def make_clock(self, *arguments: Any) -> PhaseClock:
        return PhaseClock(*arguments)

    def make_memory(self) -> Any:
        """What reads the peaks of a rank whose memory is not its process's own; None where it is."""
        return None

    @abstractmethod
    def run(self, clock: NullClock, iterations: int) -> None:
        """All iterations: per iteration ``clock.begin``, its phases, ``clock.stop`` and ``clock.finish``.

        Raises ConfigError when the work of an iteration was not the manifest's.
        """
