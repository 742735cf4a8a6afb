"""A real Docker runtime for the tests that need one, started by them and ended with them.

Where none can be started such tests fail in CI and are skipped elsewhere, with the reason in pytest's summary.
``SUITE_TEST_DOCKER_HOST`` names a runtime that runs already; it must have the stub hook of tests/stub_gpu on its PATH.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.needs import require_programs, skip_outside_ci, started_or_skipped
from tests.waiting import answering, ended, logged

ROOT = Path(__file__).parents[1]
STUB_GPUS = ROOT / "tests" / "stub_gpu"
#: images and layers stay here between two sessions of a developer; git ignores it
DATA = ROOT / "build" / "docker"
START_SECONDS = 120.0
CANNOT_START = "a container runtime cannot be started here"
#: dockerd starts the second, third and fourth itself; the command line and the network's bridge are the tests'
PROGRAMS = ("dockerd", "containerd", "runc", "iptables", "docker", "ip")
BASE_IMAGE = "suite-base:bookworm"


@dataclass
class Runtime:
    """A daemon of the tests' own: where it answers, and what ends and starts it again."""

    host: str
    folder: Path
    arguments: tuple[str, ...]
    environment: dict[str, str]
    process: subprocess.Popen | None = None

    def start(self) -> None:
        """Raises RuntimeError with the end of its log when it does not answer in time."""
        log = self.folder / "dockerd.log"
        self.process = logged(("dockerd", *self.arguments), log, env=self.environment)
        answering(self.process, log, self.answers, START_SECONDS)

    def stop(self) -> None:
        """End it as an administrator would; containers end with it."""
        ended(self.process, START_SECONDS)
        self.process = None

    def docker(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess:
        """The docker command line against this runtime; output as text."""
        environment = {**os.environ, "DOCKER_HOST": self.host}
        return subprocess.run(("docker", *arguments), env=environment, capture_output=True, text=True, **options)

    def answers(self) -> bool:
        """Whether the daemon answers, not only the client."""
        return self.docker("version").returncode == 0


@contextmanager
def started_runtime(
    data: Path | None = None,
    with_gpus: bool = True,
    daemon: dict[str, Any] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Runtime]:
    """A runtime while the block runs. ``daemon``: its daemon.json. ``data``: a folder to keep; else all of it goes."""
    folder = Path(tempfile.mkdtemp(prefix="docker-"))  # short: the name of a socket has 107 characters at most
    bridge = f"suite{os.getpid() % 10_000}x{folder.name[-4:]}"[:15]
    config = folder / "daemon.json"
    config.write_text(json.dumps({"bridge": bridge, **(daemon or {})}))
    host = f"unix://{folder}/docker.sock"
    path = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
    runtime = Runtime(
        host=host,
        folder=folder,
        arguments=(
            *("--config-file", str(config), "--data-root", str(data or folder / "data")),
            *("--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid"), "-H", host),
            *arguments,
        ),
        environment={**os.environ, "PATH": f"{STUB_GPUS}:{path}" if with_gpus else path},
    )
    try:
        _add_bridge(bridge)
        runtime.start()
        yield runtime
    finally:
        runtime.stop()
        subprocess.run(("ip", "link", "delete", bridge), check=False, capture_output=True)
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_below(folder: Path) -> None:
    """dockerd leaves the mounts of its network namespaces, which keep the folder from being removed."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{folder}/")]):
        subprocess.run(("umount", "--lazy", point), check=False, capture_output=True)


def _add_bridge(name: str) -> None:
    """A network of its own: runtimes on one host take docker0, and each removes or renews it under the others."""
    taken = subprocess.run(("ip", "-o", "-4", "addr"), check=True, capture_output=True, text=True).stdout
    subnet = next(f"172.31.{number}" for number in range(200, 255) if f"172.31.{number}." not in taken)
    for command in (
        ("link", "add", name, "type", "bridge"),
        ("addr", "add", f"{subnet}.1/24", "dev", name),
        ("link", "set", name, "up"),
    ):
        done = subprocess.run(("ip", *command), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ip {' '.join(command)}: {done.stderr}")


def require_runtime() -> None:
    """See ``skip_outside_ci``: what dockerd needs has to be there, and root to start it."""
    require_programs(CANNOT_START, *PROGRAMS, root=True)


@pytest.fixture(scope="session")
def runtime() -> Iterator[Runtime]:
    running = os.environ.get("SUITE_TEST_DOCKER_HOST")
    if running:
        named = Runtime(host=running, folder=Path(), arguments=(), environment={})
        if not named.answers():
            pytest.fail(f"no container runtime answers at {running}, which SUITE_TEST_DOCKER_HOST names")
        yield named
        return
    require_runtime()
    DATA.mkdir(parents=True, exist_ok=True)
    with started_or_skipped(CANNOT_START, started_runtime(data=DATA / "data")) as started:
        yield started


@pytest.fixture(scope="session")
def base_image(runtime: Runtime) -> str:
    return made_base_image(runtime)


def made_base_image(runtime: Runtime) -> str:
    """The suite's own, of Debian's packages as the archive has them: no registry is asked."""
    if runtime.docker("image", "inspect", BASE_IMAGE).returncode != 0:
        tar = DATA / "base.tar"
        if not tar.exists():
            _debootstrap(tar)
        runtime.docker("import", str(tar), BASE_IMAGE, check=True)
    return BASE_IMAGE


def _debootstrap(tar: Path) -> None:
    require_programs("the base image cannot be made here", "mmdebstrap")
    tar.parent.mkdir(parents=True, exist_ok=True)
    draft = tar.with_suffix(".draft.tar")
    made = subprocess.run(
        ("bash", str(ROOT / "requirements/images/base.sh"), "", str(draft)),
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
    )
    if made.returncode != 0:
        skip_outside_ci(f"the base image cannot be made here, mmdebstrap failed: {made.stderr.strip()[-500:]}")
    draft.rename(tar)
