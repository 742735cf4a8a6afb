"""Two hosts on this machine: network namespaces that see each other and nothing else, each with a /dev/shm and a folder
for temporary files of its own. What needs two nodes of a cluster runs on them as root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.needs import require_programs, started_or_skipped

CANNOT_START = "two hosts cannot be made here"
INTERFACE = "eth0"
#: Mounts are the command's alone and end with it. It ends with what it leaves in its folders, behind this word.
LEFT = "LEFT:"
_PRIVATE = f"""
folder=$1; shift
mount -t tmpfs none "$folder" && mount -t tmpfs none /dev/shm || exit 99
export TMPDIR=$folder
"$@"; code=$?
echo "{LEFT}" $(ls -A "$folder" /dev/shm)
exit $code
"""


class Host(NamedTuple):
    """One of the two."""

    namespace: str
    address: str
    #: of the same name on both
    folder: Path

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command on this host, which has the machine's files."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def networked(self, command: Sequence[str]) -> list[str]:
        """The command in this host's network, with all mounts of the machine: Slurm looks for control groups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]

    def private(self, command: Sequence[str]) -> list[str]:
        """The command on this host, with folders of its own."""
        return self.argv(["unshare", "--mount", "sh", "-c", _PRIVATE, "sh", str(self.folder), *command])


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Raises CalledProcessError where this kernel, or who asks, makes none."""
    with ExitStack() as ending:
        # short: paths of sockets hold it
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp")))
        names = [f"suite-{os.getpid()}-{letter}" for letter in "ab"]
        hosts = [Host(name, f"10.213.7.{number}", folder) for number, name in enumerate(names, start=1)]
        for name in names:
            _ip("netns", "add", name)
            ending.callback(_ip, "netns", "del", name)
            # what asks for a name is told at once that there is none, and does not wait for a server out of reach
            settings = Path("/etc/netns") / name
            settings.mkdir(parents=True)
            ending.callback(shutil.rmtree, settings, ignore_errors=True)
            (settings / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        _ip("link", "add", INTERFACE, "netns", names[0], "type", "veth", "peer", "name", INTERFACE, "netns", names[1])
        for host in hosts:
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", INTERFACE)
            for link in ("lo", INTERFACE):
                _ip("-n", host.namespace, "link", "set", link, "up")
        subprocess.run(hosts[0].private(["true"]), check=True, capture_output=True)
        yield hosts[0], hosts[1]


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    require_programs(CANNOT_START, "ip", "unshare", "mount", root=True)
    with started_or_skipped(CANNOT_START, two_hosts()) as made:
        yield made
