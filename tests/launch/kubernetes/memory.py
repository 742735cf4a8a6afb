"""A cluster in memory, with the calls of ``suite.launch.kubernetes.client.Cluster``."""

import copy
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import count
from typing import Any

from suite.launch.kubernetes.client import Refused, kind_of


class MemoryCluster:
    """Keeps objects by kind and name. ``on_create`` may refuse one by raising."""

    server = "https://cluster.example"
    context = None

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = namespace
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.logs: dict[str, bytes] = {}
        self.zone = b"Z"  # of the moments before lines of logs
        self.unreachable: set[str] = set()  # pods whose node does not answer
        self.cut: dict[str, int] = {}  # how many lines of a pod its node does not have any more
        self.comes: dict[str, list[bytes]] = {}  # by pod, what who follows it gets
        self.rehearsed: list[dict[str, Any]] = []
        self.on_create: Callable[[dict[str, Any], bool], None] = lambda body, dry_run: None
        self._made = 0

    def create(self, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        self.on_create(body, dry_run)
        if dry_run:
            self.rehearsed.append(body)
            return body
        made = copy.deepcopy(body)
        self._made += 1
        name = made["metadata"].setdefault("name", f"{made['metadata'].get('generateName')}{self._made}")
        made["metadata"]["uid"] = f"uid-{self._made}"
        key = (kind_of(made), name)
        if key in self.objects:
            raise Refused(f"{name} already exists", 409, "already exists")
        self.objects[key] = made
        return made

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    def find(self, kind: str, **query: str) -> list[dict[str, Any]]:
        label, _, value = query.get("labelSelector", "").partition("=")
        found = [body for (one, _), body in self.objects.items() if one == kind]
        return [body for body in found if not label or body["metadata"].get("labels", {}).get(label) == value]

    def patch(self, kind: str, name: str, body: dict[str, Any]) -> None:
        for part, changes in body.items():
            self.objects[kind, name][part].update(changes)

    def delete(self, kind: str, name: str) -> None:
        self.objects.pop((kind, name), None)

    def stamped(self, pod: str, since: str | None) -> bytes:
        """Line by line a second apart, from midnight on."""
        if pod in self.unreachable:
            raise Refused("the kubelet does not answer", 500, "dial tcp 10.0.0.7:10250: i/o timeout")
        lines = [*BytesIO(self.logs.get(pod, b""))][self.cut.get(pod, 0) :]
        moments = (b"2026-11-22T00:%02d:%02d" % divmod(second, 60) for second in count(self.cut.get(pod, 0)))
        stamped = [moment + b".5" + self.zone + b" " + line for moment, line in zip(moments, lines, strict=False)]
        return b"".join(line for line in stamped if since is None or line[:19].decode() >= since[:19])

    def log(
        self, pod: str, container: str, since: str | None = None, tail_lines: int | None = None, follows: bool = False
    ) -> Iterator[bytes]:
        """What is there, in small pieces, and then what ``comes``."""
        there = self.stamped(pod, since)
        if tail_lines is not None and since is None:
            there = b"".join([*BytesIO(there)][-tail_lines:])
        for data in (there, *(self.comes.get(pod, ()) if follows else ())):
            yield from (data[place : place + 7] for place in range(0, len(data), 7))

    def kinds(self) -> list[str]:
        return sorted(kind for kind, _ in self.objects)
