"""A driver's containers: labels that say whose one is, short ones, and the removal of what a dead driver left; and the
bundle of one whose runtime does not see this host's folders, put in before the run and taken back after it."""

import io
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from docker import APIClient
from docker.errors import APIError
from requests.exceptions import ConnectionError as NoAnswer

from suite.launch.job import RUNS
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable

#: of what a short container prints
ANSWER_SECONDS, ANSWER_BYTES = 120, 64 << 20
#: under SELinux neither the caller's folder nor the GPUs carry a container's label
SECURITY = ["no-new-privileges", "label=disable"]
#: of what is taken out of a container
MOST_FILES, MOST_BYTES = 100_000, 8 << 30
#: the files that ranks write; what the driver itself writes beside them is never taken from a container
_RANK_FILE = re.compile(r"(events|logs)/(rank-\d{1,7}\.(jsonl|log))")
RUN_LABEL, PLAN_LABEL, SESSION_LABEL, DRIVER_LABEL = "suite.run", "suite.plan", "suite.session", "suite.driver"


@cache
def session_id() -> str:
    """A name for this process that no other one has."""
    return secrets.token_hex(6)


def this_driver() -> str:
    """The label of this process, which no other one has: kernel, space of process ids, id, and start in ticks."""
    return f"{_here()}/{os.getpid()}/{_start_ticks(os.getpid()) or ''}"


def is_dead(label: str) -> bool:
    """Whether the driver that made a label has certainly ended. Of one of another kernel or space nothing is known."""
    made_by = re.fullmatch(r"([^/]+/\d+)/(\d{1,10})/(\d+)", label)
    return made_by is not None and made_by[1] == _here() and _start_ticks(int(made_by[2])) != made_by[3]


def remove_orphans(api: APIClient, is_local: bool) -> int:
    """Remove containers of drivers that are dead, with their volumes; how many. Raises DockerException.

    On a local runtime one that does not run and is older than this host's boot is a leftover as well, whoever made it.
    """
    removed = 0
    for entry in api.containers(all=True, filters={"label": DRIVER_LABEL}):
        label = entry.get("Labels", {}).get(DRIVER_LABEL, "")
        is_left = is_local and entry.get("State") != "running" and not label.startswith(f"{_boot()}/")
        if is_dead(label) or (is_left and entry.get("Created", 0) < psutil.boot_time()):
            remove_container(api, entry["Id"])
            removed += 1
    return removed


def ask(api: APIClient, image: str, command: Sequence[str], **host: Any) -> bytes:
    """Standard output of a command in a short container, without network and rights. ``host``: more of its HostConfig.

    Raises DockerException, and UsageError where the command fails, does not end or prints too much.
    """
    body = {
        "Image": image,
        "Entrypoint": list(command),
        "Cmd": [],
        "Env": ["HOME=/tmp", "NVIDIA_DRIVER_CAPABILITIES=utility"],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {SESSION_LABEL: session_id(), DRIVER_LABEL: this_driver()},
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": SECURITY,
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": ""},
            **host,
        },
    }
    container = api.create_container_from_config(body)["Id"]
    try:
        api.start(container)
        code = api.wait(container, timeout=ANSWER_SECONDS)["StatusCode"]
        if code != 0:
            error = api.logs(container, stdout=False, stderr=True, tail=3).decode(errors="replace")
            raise UsageError(f"{command[0]} in {image} ended with exit code {code}: {' '.join(error.split())}")
        data = bytearray()
        for piece in api.logs(container, stdout=True, stderr=False, stream=True, follow=False):
            data += piece
            if len(data) > ANSWER_BYTES:
                raise UsageError(f"{command[0]} in {image} prints more than the {ANSWER_BYTES} bytes that are read")
        return bytes(data)
    except NoAnswer as error:
        raise UsageError(f"{command[0]} in {image} did not answer in {ANSWER_SECONDS} s") from error
    finally:
        remove_container(api, container)


def remove_container(api: APIClient, container: str) -> None:
    """Kill and remove, with its volume; one that is gone, or is being removed, is as good as removed."""
    try:
        api.remove_container(container, force=True, v=True)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


def _boot() -> str:
    with suppress(OSError):  # a sandbox's kernel may not tell: such a driver is never taken for dead
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _here() -> str:
    """The kernel and the space of process ids."""
    return f"{_boot()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_ticks(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None when there is none of this id."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def put_bundle(api: APIClient, container: str, run: str, folder: Path, user: str) -> None:
    """Put ``run``'s folder with its manifest and empty ``events`` and ``logs`` into a container, owned by ``user``."""

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid = map(int, user.split(":"))
        return entry

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("", "events", "logs", "manifest.json"):
            tar.add(folder / name, f"{run}/{name}", recursive=False, filter=owned)
    api.put_archive(container, RUNS, archive.getvalue())


def take_bundle(api: APIClient, container: str, run: str, folder: Path) -> None:
    """Copy the ranks' events and logs out of a container. Raises Unreadable, and what runtime and disk raise."""
    for name in ("events", "logs"):
        pieces, _ = api.get_archive(container, f"{RUNS}/{run}/{name}")
        extract(pieces, folder / name)


def extract(pieces: Iterable[bytes], target: Path) -> None:
    """Write the ranks' files of a tar stream that are not in ``target`` yet, and nothing else: no other name, no link,
    no device. Raises Unreadable beyond 100 000 entries or 8 GiB, and for what is no archive; what came before stays."""
    files, total = 0, 0
    try:
        with tarfile.open(fileobj=_Pieces(pieces), mode="r|") as tar:
            for member in tar:
                files, total = files + 1, total + max(member.size, 0)
                if files > MOST_FILES or total > MOST_BYTES:
                    raise Unreadable(f"the container's folder holds more than {MOST_FILES} files or {MOST_BYTES} bytes")
                match = _RANK_FILE.fullmatch(member.name)
                if member.isreg() and match and match.group(1) == target.name:
                    source = tar.extractfile(member)
                    assert source is not None, "a regular file has content"
                    with suppress(FileExistsError), (target / match.group(2)).open("xb") as file:
                        shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError) as error:
        raise Unreadable(f"what came of the container's folder is no archive: {str(error)[:200]}") from error


class _Pieces(io.RawIOBase):
    """A stream of bytes as the file that tarfile reads, which takes more bytes than it asked for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = filter(None, pieces)

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")
