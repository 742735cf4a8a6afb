"""Reaching a container runtime by ssh: OpenSSH forwards a local socket to it, for as long as this process lives."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from suite.spec.base import UsageError

SSH_SECONDS = 30.0
RUNTIME_SOCKET = "/var/run/docker.sock"


def open_tunnel(host: str) -> str:
    """Address of a local socket that leads to the runtime of ``ssh://[user@]host[:port][/socket]``.

    Keys or an agent must let us in: nobody can be asked for a password. Raises UsageError when ssh does not.
    """
    folder = Path(tempfile.mkdtemp(prefix="suite-ssh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    socket = folder / "engine.sock"
    process = _start(host, socket)
    atexit.register(_end, process)
    give_up = time.monotonic() + SSH_SECONDS
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > give_up:
            _end(process)
            assert process.stderr is not None, "ssh is started with a pipe"
            answer = " ".join(process.stderr.read().decode(errors="replace").split()) or "no answer"
            raise UsageError(f"the container runtime at {host} cannot be reached by ssh: {answer}")
        time.sleep(0.02)
    return f"unix://{socket}"


def _start(host: str, socket: Path) -> subprocess.Popen:
    """ssh in a session of its own, so that Ctrl-C is not its end; it ends when we no longer hold its standard input."""
    address = urlsplit(host)
    options = ["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"]
    options += ["-L", f"{socket}:{address.path.rstrip('/') or RUNTIME_SOCKET}"]
    options += ["-l", address.username] if address.username else []
    options += ["-p", str(address.port)] if address.port else []
    try:
        return subprocess.Popen(
            ["ssh", *options, "--", address.hostname or "", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(
            f"the container runtime at {host} cannot be reached: no ssh program ({error.strerror})"
        ) from error


def _end(process: subprocess.Popen) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
