"""Where a rank's session takes one of two sides; nothing of it is there for ranks that do both."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from suite.worker.engines.base import Engine
from suite.worker.events import EventLog
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler
from suite.worker.progress import Progress
from suite.worker.rank import RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.split.generation import generate_ahead, generation_manifest
from suite.worker.split.link import Link
from suite.worker.split.sides import Side, find_side, join_side
from suite.worker.split.training import SplitRecorder, train_on_batches
from suite.worker.world import World

_NOTES = (
    "split placement: ranks 0 to {last} train, the other {generation} generate the next batch meanwhile (one step off "
    "policy); an iteration lasts from train end to train end",
    "split placement: the first batch was generated before iteration 0, with the weights before any update (the fill "
    "of the pipeline, in no iteration); the last one was generated and not trained on",
    "split placement: every parameter of the policy but the value head is sent anew in each iteration, frozen ones too",
)


@dataclass(frozen=True)
class Split:
    """This rank's side, in its own world and linked to the other; ``manifest`` is what its engine is built from."""

    side: Side
    world: World
    link: Link
    manifest: Dict[str, Any]

    @property
    def notes(self) -> List[str]:
        return [
            note.format(last=self.side.training_ranks - 1, generation=self.side.generation_ranks) for note in _NOTES
        ]

    def run(
        self,
        engine: Engine,
        log: EventLog,
        memory: MemoryProbe,
        sampler: Optional[DeviceSampler],
        progress: Progress,
    ) -> None:
        """All iterations of this side."""
        if self.side.generates:
            recorder = Recorder(self.world, log, memory, sampler, progress)
            generate_ahead(engine, self.manifest, self.world, self.link, recorder, progress)
        else:
            train_on_batches(
                engine, self.manifest, self.link, SplitRecorder(self.world, log, memory, sampler, progress), progress
            )


def join_split(manifest: Dict[str, Any], identity: RankIdentity) -> Optional[Split]:
    """This rank on its side, once all ranks are there; None where all ranks do both. Raises ConfigError."""
    side = find_side(manifest["layout"], identity)
    if side is None:
        return None
    world, link = join_side(side, identity, manifest["measure"]["device"], manifest["limits"]["silence_seconds"])
    return Split(side, world, link, generation_manifest(manifest) if side.generates else manifest)
