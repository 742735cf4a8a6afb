"""The last lines of pods, from the cluster or from what was kept of a run that it has forgotten."""

from __future__ import annotations

import re
from typing import Any

from suite.launch.kubernetes.client import Cluster, Refused
from suite.launch.kubernetes.pods import Pod, read_pods
from suite.launch.kubernetes.snapshot import Snapshot
from suite.launch.log_lines import without_events

#: as the API writes the moment before a line: seconds, as many digits of the rest as there are, and the zone, which is
#: that of the node where its container runtime does not write UTC
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
#: most lines of a pod are events, which are not shown
_EVENTS_A_LINE, _MOST_LINES = 20, 20_000


def printed_since(cluster: Cluster, pod: Pod, place: dict[str, Any], lines: int) -> list[bytes]:
    """What a pod printed since the last call with this ``place``, at first its last lines; nothing where its node
    cannot be asked now."""
    since = place.get(pod.name)
    begin = None if since is None else f"{since[0]}{since[2]}"
    try:
        data = cluster.log_since(pod.name, pod.container, begin, min(_EVENTS_A_LINE * lines, _MOST_LINES))
    except Refused as error:
        if error.status < 500:
            raise
        return []
    found = []
    for line in data.splitlines(keepends=True):
        stamp = STAMP.match(line)
        if stamp is None:
            continue
        moment = (stamp[1].decode(), (stamp[2] or b"").decode().ljust(9, "0"), stamp[3].decode())
        if since is None or moment > since:
            found.append(line[stamp.end() :])
            place[pod.name] = moment
    shown = without_events(found)
    return shown[-lines:] if since is None else shown


def kept_lines(kept: Snapshot, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
    """The same of a run whose pods are gone: all there is, once."""
    if place.get("kept"):
        return []
    place["kept"] = True
    pods = [pod for pod in read_pods(kept.pods) if pod.role != "reader"]
    return [
        (pod.stream, without_events(kept.logs.get(pod.name, b"").splitlines(keepends=True))[-lines:]) for pod in pods
    ]
