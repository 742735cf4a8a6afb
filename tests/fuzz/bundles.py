"""The files of a bundle: events of ranks and of the driver, record, environment."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from suite.bundle.derive import derive
from suite.bundle.record import text_of
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.report.facts.environment import figures_apart
from tests.fuzz import mutate
from tests.fuzz.material import TWO_RANKS, folder
from tests.synthetic import make_bundle, synthetic_manifest


@cache
def bundle() -> Path:
    path = make_bundle(folder() / "bundles", synthetic_manifest(layout=TWO_RANKS, iterations=3, warmup=1))
    Bundle(path).write_record(derive(Bundle(path)))
    return path


@contextmanager
def bundle_with(name: str, data: bytes) -> Iterator[Bundle]:
    """The bundle while one of its files is another."""
    path = bundle() / name
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield Bundle(bundle())
    finally:
        path.write_bytes(before)


def read_events(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with bundle_with(f"events/{name}", data) as found:
            json.loads(text_of(derive(found)))

    return read


def make_events(name: str) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        events = [json.loads(line) for line in (bundle() / "events" / name).read_text().splitlines()]
        if random.random() < 0.3:
            return mutate.lines(b"".join(mutate.json_bytes(event) + b"\n" for event in events), random)
        at = random.randrange(len(events))
        events[at] = mutate.tree(events[at], random, 3)
        return b"".join(mutate.json_bytes(event) + b"\n" for event in events)

    return make


def read_record(data: bytes) -> None:
    with bundle_with("record.json", data) as found:
        verify(found).model_dump_json()
        found.record()


def read_environment(data: bytes) -> None:
    with bundle_with("environment.json", data) as found:
        record = derive(found)
        text_of(record)
        list(figures_apart([record], [record]))


_JOB = {"argv": ["python"], "env": {"OMP_NUM_THREADS": "1"}, "nodes": 1, "ranks_per_node": 2}
ENVIRONMENT = {
    "launcher": "docker",
    "suite_version": "1.0",
    "git_commit": "0" * 40,
    "runs_at_once": 1,
    "job": {**_JOB, "limits": {"run_seconds": 3600.0}},
    "host": {"name": "a", "cpu": "Some CPU", "cores": 2, "memory_bytes": 1 << 33, "kernel": "6.0"},
    "engine": {"name": "docker", "version": "28", "remote": False},
    "image": {"id": "sha256:" + "0" * 64, "reference": "suite-engines:1", "digest": None},
    "container": {"user": "0:0", "shm_bytes": 1 << 34, "ulimits": {"stack": 1 << 26}},
}


def records() -> list[Any]:
    return [json.loads((bundle() / "record.json").read_text())]
