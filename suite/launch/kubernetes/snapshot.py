"""A run as the cluster last reported it, kept on this machine: deleted objects take their logs with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from suite.launch.cluster.submission import replace_file
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable, read_bytes

#: Of all pods' logs; a kubelet keeps some 10 MiB of each.
_MOST_BYTES = 4 << 30


class Snapshot(NamedTuple):
    """A run as the API server last saw it."""

    run: dict[str, Any] | None  # its Job, JobSet ...
    pods: list[dict[str, Any]]
    warnings: list[str]  # what the cluster reported of them, oldest first; it forgets this within hours
    logs: dict[str, bytes]  # by pod
    given_up: bool = False  # ended because it could never end well; else because somebody asked for it


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Keep it, replacing an older one. Raises UsageError when it cannot be written."""
    logs = {pod: text.decode(errors="surrogateescape") for pod, text in snapshot.logs.items()}
    replace_file(path, json.dumps(snapshot._asdict() | {"logs": logs}))


def read_snapshot(path: Path) -> Snapshot | None:
    """``None`` where nothing was kept. Raises UsageError when it cannot be used."""
    try:
        body = json.loads(read_bytes(path, str(path), _MOST_BYTES).decode("ascii"))
        logs = {pod: text.encode(errors="surrogateescape") for pod, text in body["logs"].items()}
        return Snapshot(body["run"], body["pods"], body["warnings"], logs, body.get("given_up") is True)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise UsageError(f"{error}; delete it") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be used: {error}; delete it") from error
