"""The files of a bundle: events of ranks and of the driver, record, environment."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.report.facts.environment import figures_of
from tests.fuzz import mutate
from tests.fuzz.material import TWO_RANKS, folder
from tests.synthetic import make_bundle, synthetic_manifest


@cache
def bundle() -> Path:
    path = make_bundle(folder() / "bundles", synthetic_manifest(layout=TWO_RANKS, iterations=3, warmup=1))
    Bundle(path).write_record(derive(Bundle(path)))
    return path


def with_file(name: str, data: bytes, act: Any) -> None:
    """Do something with the bundle while one of its files is another."""
    path = bundle() / name
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        act(Bundle(bundle()))
    finally:
        path.write_bytes(before)


def derived(found: Bundle) -> None:
    json.loads(derive(found).model_dump_json(by_alias=True))


def read_rank_events(data: bytes) -> None:
    with_file("events/rank-0.jsonl", data, derived)


def read_driver_events(data: bytes) -> None:
    with_file("events/driver.jsonl", data, derived)


def events_of(name: str) -> list[Any]:
    return [json.loads(line) for line in (bundle() / "events" / name).read_text().splitlines()]


def make_events(name: str) -> Any:
    def make(random: Random) -> bytes:
        events = events_of(name)
        if random.random() < 0.3:
            return mutate.lines(b"".join(mutate.json_bytes(event) + b"\n" for event in events), random)
        at = random.randrange(len(events))
        events[at] = mutate.tree(events[at], random, 3)
        return b"".join(mutate.json_bytes(event) + b"\n" for event in events)

    return make


def read_record(data: bytes) -> None:
    def act(found: Bundle) -> None:
        result = verify(found)
        result.model_dump_json()
        found.record()

    with_file("record.json", data, act)


def read_environment(data: bytes) -> None:
    def act(found: Bundle) -> None:
        record = derive(found)
        record.model_dump_json(by_alias=True)
        figures_of([record])

    with_file("environment.json", data, act)


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


every_record = mutate.json_document(lambda: [json.loads((bundle() / "record.json").read_text())])
