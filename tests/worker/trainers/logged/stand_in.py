"""``python -m tests.worker.trainers.logged.stand_in MANIFEST``: a rank whose trainer is a program that only logs."""

from __future__ import annotations

import os
import sys
from typing import Any

from suite.worker.__main__ import leave_process, main
from suite.worker.trainers.areal.trainer import ArealTrainer


class StandIn(ArealTrainer):
    """AReaL's reader over a program that writes a recorded log step by step."""

    def check(self) -> None:
        """Runs on a CPU, for this program needs no device."""

    def write(self, folder: str) -> None:
        """The program needs nothing."""

    def command(self, folder: str) -> list[str]:
        return [sys.executable, "-m", "tests.worker.trainers.logged.program", os.environ["STAND_IN_STEPS"]]


def find_trainer(manifest: dict[str, Any]) -> type[Any]:
    return StandIn


if __name__ == "__main__":
    leave_process(main(find_build=find_trainer))
