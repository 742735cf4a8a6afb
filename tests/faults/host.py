"""Runs that the local launcher starts: the command of two real DeepSpeed ranks on the CPU."""

from dataclasses import dataclass

import psutil

from tests.faults.scene import Scene, suite_command
from tests.faults.sites import OwnDriver
from tests.faults.tries import Missed

ITERATIONS = 8
#: ranks that start on a busy machine are silent for long
SILENCE = ("--hang-timeout", "45s")
SIZE = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--device", "cpu", "--ranks", "2")
MEASURE = ("--warmup", "1", "--iterations", str(ITERATIONS - 1), "--force")


@dataclass
class Host(OwnDriver):
    """This machine. ``inside``: what comes before each command."""

    inside: tuple[str, ...] = ()
    iterations = ITERATIONS
    start_seconds = 15.0

    def command(self, scene: Scene, *options: str) -> list[str]:
        again = ("--repeats", "1", "--start", "fork", *SILENCE, "--runs", str(scene.runs))
        return [*self.inside, *suite_command("run", *SIZE, *MEASURE, *again, *options)]

    def rank(self, scene: Scene, number: int) -> psutil.Process:
        """Raises Missed."""
        try:
            return psutil.Process(scene.ranks()[number])
        except psutil.NoSuchProcess:
            raise Missed("the rank is not there any more") from None
