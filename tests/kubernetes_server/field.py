"""A namespace of the API server in which runs are submitted, and the results folder that they come home to."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.cluster import standing as clusters
from suite.launch.kubernetes import scheduler
from suite.launch.kubernetes.client import Cluster, connect
from tests.command import suite
from tests.kubernetes_server.server import Server

WORK = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--repeats", "1", "--warmup", "1")


class Field:
    """``place``: the options of ``suite submit`` that say what its pods are."""

    def __init__(self, server: Server, namespace: str, folder: Path, place: tuple[str, ...]) -> None:
        self.server, self.namespace, self.folder, self.place = server, namespace, folder, place
        self.runs = folder / "runs"
        self.core = server.core()

    @property
    def cluster(self) -> Cluster:
        return connect()

    def suite(self, *arguments: str) -> Result:
        return suite(*arguments, "--runs", self.runs)

    def submit(self, *more: str, script: dict[str, Any] | None = None, iterations: int = 5) -> Result:
        scripted = ["--env", f"SUITE_SCRIPT={json.dumps(script)}"] if script else []
        work = (*WORK, *self.place, "--iterations", str(iterations))
        return self.suite("submit", "kubernetes", *work, *scripted, *more)

    def record(self) -> Record:
        (path,) = [path for path in self.runs.iterdir() if not path.name.startswith(".")]
        assert verify(Bundle(path)).status == "equal"
        return Bundle(path).record()

    def says(self, pattern: str) -> Callable[[], bool]:
        """Whether ``suite status`` says something like that."""
        return lambda: re.search(pattern, self.suite("status").output) is not None

    def left(self) -> list[str]:
        kinds = ("ConfigMap", "Service", "Job", "Pod")
        selector = "app.kubernetes.io/name=suite"
        return [kind for kind in kinds for _ in self.cluster.find(kind, labelSelector=selector)]


def quick_looks(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.1) -> None:
    """The suite asks the cluster as often as that."""
    monkeypatch.setattr(scheduler, "_POLL_SECONDS", seconds)
    monkeypatch.setattr(clusters.wait_until_over, "__defaults__", (seconds,))
