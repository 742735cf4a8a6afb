"""Several runs at once on one host, each on devices of its own. Neighbours disturb timings, so the record says so."""

from suite.conduct.running.at_once import AtOnce
from suite.conduct.running.ledger import Ledger, Settings, View
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.outcome import Launcher
from suite.launch.requests import Stops
from suite.spec.manifest import Manifest


class Slots:
    """Devices of one host by name, lent to runs: each takes the first that are free."""

    def __init__(self, devices: tuple[str, ...], most: int) -> None:
        self._free = list(devices)
        self._order = {device: index for index, device in enumerate(devices)}
        self._runs_left = self.most = most

    def wanted_by(self, manifest: Manifest) -> int:
        """A GPU for each rank, or a CPU for each of its threads; all there are where a run wants more."""
        threads = manifest.measure.threads_per_rank if manifest.measure.device == "cpu" else 1
        return min(manifest.layout.ranks * threads, len(self._order))

    def has_room(self, count: int) -> bool:
        """Whether one more run may start, and has its devices."""
        return self._runs_left > 0 and count <= len(self._free)

    def take(self, count: int) -> tuple[str, ...]:
        """Lend devices to one run; ask ``has_room`` before."""
        taken, self._free = tuple(self._free[:count]), self._free[count:]
        self._runs_left -= 1
        return taken

    def give_back(self, devices: tuple[str, ...]) -> None:
        """Take back what ``take`` gave."""
        self._free = sorted([*self._free, *devices], key=self._order.__getitem__)
        self._runs_left += 1


class SideBySide(AtOnce):
    """Runs of a ledger, as many at once as there are slots for."""

    def __init__(self, ledger: Ledger, settings: Settings, launcher: DockerLauncher, slots: Slots, view: View) -> None:
        super().__init__(ledger, settings, view, slots.most)
        self._launcher, self._slots = launcher, slots
        self._devices: dict[str, tuple[str, ...]] = {}

    def following(self) -> Manifest | None:
        manifest = self._ledger.take(lambda waiting: self._slots.has_room(self._slots.wanted_by(waiting)))
        if manifest is not None:
            self._devices[manifest.run.id] = self._slots.take(self._slots.wanted_by(manifest))
        return manifest

    def launcher(self, manifest: Manifest, stops: Stops) -> Launcher:
        devices = self._devices[manifest.run.id]
        if manifest.measure.device == "cuda":
            return self._launcher.beside(stops, self._slots.most, gpus=devices)
        return self._launcher.beside(stops, self._slots.most, gpus=(), cpuset=",".join(devices))

    def ended(self, manifest: Manifest) -> None:
        self._slots.give_back(self._devices.pop(manifest.run.id))


def side_by_side(ledger: Ledger, settings: Settings, launcher: Launcher, view: View, slots: Slots) -> bool:
    """A way to run a plan: several at once, each on devices (on a CPU: cores) of its own."""
    assert isinstance(launcher, DockerLauncher), "a container keeps each apart"
    return SideBySide(ledger, settings, launcher, slots, view).work()
