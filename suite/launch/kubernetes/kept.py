"""What the pods of a run printed, kept on this machine while somebody waits for the run or looks at its logs.

A kubelet cuts the log of a container at some size (usually 10 MiB) and shows only what came after the cut, and a
deleted pod takes its log with it. So a driver that waits reads what is there, and follows what comes, over cuts too.
Each stream has a file beside the run's spool, whose lines have the moments before them by which what is new is known.
"""

import fcntl
import glob
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

from suite.launch.cluster.launcher import Unanswered
from suite.launch.cluster.submission import FOLDER
from suite.launch.kubernetes.client import Cluster
from suite.launch.kubernetes.pods import Pod
from suite.launch.stream import natural
from suite.spec import foreign
from suite.spec.base import UsageError

#: as the API writes the moment before a line: seconds, as many digits of the rest as there are, and the zone, which is
#: that of the node where its container runtime does not write UTC
STAMP = re.compile(rb"^([1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class Snapshot(NamedTuple):
    """A run as the API server last saw it."""

    run: dict[str, Any] | None  # its Job, JobSet ...
    pods: list[dict[str, Any]]
    warnings: list[str]  # what the cluster reported of them, oldest first; it forgets this within hours
    given_up: bool = False  # ended because it could never end well; else because somebody asked for it


def spool_path(root: Path, run_id: str) -> Path:
    """Where the last output of a cancelled run is kept; no submission's name."""
    return root / FOLDER / f"{run_id}.kept"


def read_snapshot(path: Path) -> Snapshot | None:
    """``None`` where nothing was kept. Raises UsageError when it cannot be used."""
    try:
        body = json.loads(foreign.read_bytes(path, str(path), foreign.EVENTS_BYTES))
        return Snapshot(body["run"], body["pods"], body["warnings"], body.get("given_up") is True)
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be used: {error}; delete it") from error


_STREAM = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
MOST_BYTES = 2 << 30  # of one pod
#: of the end of a file, in which its last line is looked for: a container runtime cuts lines at 16 KiB
_TAIL_BYTES = 1 << 20
#: how long a log may still be followed when its pod is over, and another driver may hold its file
_END_SECONDS = 10.0
MOST_BROKEN = 5  # answers that break off one after the other and bring nothing new
_TOO_LONG = b"suite: the log goes on, and was not read any further\n"
_FOLLOWERS: dict[Path, Thread] = {}  # this process's, by file


def keep_printed(cluster: Cluster, spool: Path, pod: Pod) -> None:
    """Add what a pod printed, and follow it from now on; nothing while a follower or another driver does. Raises
    UsageError: Refused where the cluster cannot give it."""
    path = _path(spool, pod.stream)
    if path in _FOLLOWERS and _FOLLOWERS[path].is_alive():
        return
    with _held(path) as file:
        if file is None or _size(file) >= MOST_BYTES:
            return
        _add(cluster, path, file, pod, at_end=False)
    if pod.phase == "Running":
        _FOLLOWERS[path] = Thread(target=_follow, args=(cluster, path, pod), daemon=True)
        _FOLLOWERS[path].start()


def end_of_printed(cluster: Cluster, spool: Path, pod: Pod) -> None:
    """Add the end of what a pod printed that is over. Raises as ``keep_printed``."""
    path = _path(spool, pod.stream)
    follower = _FOLLOWERS.pop(path, None)
    if follower is not None:
        follower.join(_END_SECONDS)
    with _held(path, _END_SECONDS) as file:
        if file is not None:
            _add(cluster, path, file, pod, at_end=True)


def read_kept(spool: Path, stream: str) -> bytes:
    """All that was kept of a stream, without moments. Raises UsageError."""
    path = _path(spool, stream)
    try:
        data = foreign.read_bytes(path, str(path), MOST_BYTES + _TAIL_BYTES)
    except FileNotFoundError:
        return b""
    return b"".join(without_moments(BytesIO(data)))


def whole_log(cluster: Cluster, spool: Path, pod: Pod) -> bytes:
    """All that a pod printed that is over, without keeping it. Raises as ``keep_printed``."""
    try:
        end_of_printed(cluster, spool, pod)
        return read_kept(spool, pod.stream)
    finally:
        _path(spool, pod.stream).unlink(missing_ok=True)


def kept_streams(spool: Path) -> list[tuple[str, Path]]:
    """The streams of a run of which something was kept, with their files."""
    prefix = f"{spool.name}."
    found = [path.name.removeprefix(prefix) for path in spool.parent.glob(f"{glob.escape(prefix)}*")]
    return [(name, spool.with_name(prefix + name)) for name in sorted(found, key=natural) if _STREAM.fullmatch(name)]


def forget_kept(spool: Path) -> None:
    """Before another attempt of the run."""
    spool.unlink(missing_ok=True)
    for _, path in kept_streams(spool):
        _FOLLOWERS.pop(path, None)
        path.unlink(missing_ok=True)


def _path(spool: Path, stream: str) -> Path:
    """Raises UsageError for what is no name of a stream: a cluster may answer anything."""
    if not _STREAM.fullmatch(stream):
        raise UsageError(f"the cluster's answer names a pod whose output is called {ascii(stream)[:90]}")
    return spool.with_name(f"{spool.name}.{stream}")


@contextmanager
def _held(path: Path, seconds: float = 0.0) -> Iterator[BinaryIO | None]:
    """A file to append to that no other driver appends to; ``None`` where one does for so long. Raises UsageError."""
    deadline = time.monotonic() + seconds
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(foreign.open_log(path, str(path)), "ab") as file:
            while not (is_ours := _lock(file)) and time.monotonic() < deadline:
                time.sleep(0.1)
            yield file if is_ours else None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def _lock(file: BinaryIO) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _add(cluster: Cluster, path: Path, file: BinaryIO, pod: Pod, at_end: bool) -> None:
    """What its node has of a pod and this file has not; at the end also over answers that break off, and half a line.
    Raises Refused, and Unanswered where answers break off again and again."""
    broken = 0
    while (most := MOST_BYTES - _size(file)) > 0:
        last, answer = _last_line(path, file), BytesIO()
        error: Unanswered | None = None
        try:
            for piece in cluster.log(pod.name, pod.container, _since(last)):
                answer.write(piece)
                if answer.tell() > most:
                    break
        except Unanswered as unanswered:
            error = unanswered
        is_too_long = answer.tell() > most
        is_whole = at_end and error is None and not is_too_long
        answer.seek(0)
        taken = [line for line in _new_lines([*answer], last) if is_whole or line.endswith(b"\n")]
        file.writelines([*taken, _TOO_LONG] if is_too_long and at_end else taken)
        if error is None or is_too_long:
            return
        broken = 0 if taken else broken + 1
        if broken == MOST_BROKEN or not at_end:
            raise error


def _follow(cluster: Cluster, path: Path, pod: Pod) -> None:
    """Add what comes, until the pod or the connection ends; the next look begins another one."""
    with suppress(UsageError, OSError), _held(path) as file:
        if file is None:
            return
        last, rest = _last_line(path, file), b""
        for piece in cluster.log(pod.name, pod.container, _since(last), follows=True):
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            file.writelines(_new_lines([*BytesIO(whole + newline)], last))
            if _size(file) >= MOST_BYTES:
                return


def _size(file: BinaryIO) -> int:
    """With all that was written to it."""
    return file.seek(0, os.SEEK_END)


def _last_line(path: Path, file: BinaryIO) -> bytes:
    """The last whole line; half a line, of a driver that was killed, is cut off. Empty where there is none."""
    tail = foreign.read_part(path, str(path), -_TAIL_BYTES, _TAIL_BYTES)
    whole = tail[: tail.rfind(b"\n") + 1]
    if len(whole) != len(tail):
        file.truncate(_size(file) - len(tail) + len(whole))
    return [b"", *BytesIO(whole)][-1]


def _since(last: bytes) -> str | None:
    """The second before a line's, as the API takes it: two streams of a container may come a moment out of order."""
    moment = _moment(last)
    return None if moment is None else (moment[0] - timedelta(seconds=1)).isoformat().replace("+00:00", "Z")


def _new_lines(lines: list[bytes], last: bytes) -> list[bytes]:
    """Those behind ``last``; where that is not among them, those that are not of an earlier moment."""
    with suppress(ValueError):
        return lines[len(lines) - lines[::-1].index(last) :]
    before = _moment(last)
    return [line for line in lines if before is None or (_moment(line) or before) >= before]


def without_moments(lines: Iterable[bytes]) -> list[bytes]:
    return [STAMP.sub(b"", line, count=1) for line in lines]


def _moment(line: bytes) -> tuple[datetime, str] | None:
    """The second and the digits of the rest; the clock of Python has no nanoseconds."""
    stamp = STAMP.match(line)
    with suppress(ValueError):
        if stamp is not None:
            return datetime.fromisoformat((stamp[1] + stamp[3]).decode()), (stamp[2] or b"").decode().ljust(9, "0")
    return None
