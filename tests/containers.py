"""An image with the driver and the scripted worker, and runs in containers of it: no stack, no network, quick."""

import io
import json
import os
import sys
import sysconfig
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from suite.launch.docker.connection import Runtime as Connected
from suite.launch.docker.connection import connect
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.offers import find_image
from suite.launch.docker.session import DRIVER_LABEL, RUN_LABEL, SESSION_LABEL, session_id, this_driver
from suite.launch.docker.settings import DockerSettings
from suite.launch.docker.watch import ContainerPatience
from suite.launch.job import PYTHON, RUNS, Job, JobLimits, Mount
from suite.spec.images import IMAGE_LABEL, VERSION_LABEL, stack_labels
from suite.spec.version import suite_version
from tests.container_runtime import Runtime
from tests.launch.ranks import PREAMBLE, Ran, make_folder
from tests.needs import skip_outside_ci
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
IMAGE = "suite-scripted:test"
WORKER = "/opt/scripted_worker.py"
#: what the runtime may raise: the tests' own runtime cannot lift the limit on locked memory
MEMLOCK = {"memlock": 1 << 16}
QUICK = ContainerPatience(start_seconds=100.0, end_seconds=6.0, output_seconds=3.0, break_seconds=0.3)
#: all that the node imports
PACKAGES = ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "psutil")
VERSIONS = dict.fromkeys(("torch", "deepspeed", "transformers", "megatron-core"), "9.0-scripted")
DOCKERFILE = f"""
FROM {{base}}
RUN python3 -m venv --without-pip /opt/suite && mkdir -p /work /opt/stack/bin && ln -s /usr/bin/python3 {PYTHON}
COPY site /opt/suite/lib/python3.11/site-packages
COPY src /opt/suite/src
COPY scripted_worker.py {WORKER}
"""


@pytest.fixture(scope="session")
def scripted_image(runtime: Runtime, base_image: str) -> str:
    return made_scripted_image(runtime, base_image)


def made_scripted_image(runtime: Runtime, base_image: str) -> str:
    """Built from the base image and this checkout; its labels are those of the real images."""
    if sys.version_info[:2] != (3, 11):
        skip_outside_ci("the packages of this Python do not fit Debian 12's, which is 3.11")
    labels = {IMAGE_LABEL: "engines", VERSION_LABEL: suite_version(), **stack_labels(VERSIONS)}
    return build_from(runtime, _context(base_image), IMAGE, labels)


def build_from(runtime: Runtime, context: bytes, tag: str, labels: dict[str, str] | None = None) -> str:
    """The tag of an image that is built from this archive."""
    api = docker.APIClient(base_url=runtime.host, version="auto")
    lines = api.build(
        fileobj=io.BytesIO(context), custom_context=True, tag=tag, labels=labels or {}, rm=True, decode=True
    )
    errors = [line["error"] for line in lines if "error" in line]
    assert not errors, errors
    return tag


def _context(base: str) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        add_file(tar, "Dockerfile", DOCKERFILE.format(base=base).encode())
        add_file(tar, "scripted_worker.py", (ROOT / "tests/scripted_worker.py").read_bytes())
        site = Path(sysconfig.get_path("purelib"))
        for path in (*(site / name for name in PACKAGES), site / "typing_extensions.py"):
            if path.exists():
                tar.add(path, f"site/{path.name}", filter=_plain)
        add_file(tar, "site/suite.pth", b"/opt/suite/src\n")
        for name in ("suite", "manifests"):
            tar.add(ROOT / name, f"src/{name}", filter=_plain)
    return archive.getvalue()


def add_file(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without compiled files and times of this checkout: an equal context is built once."""
    if entry.name.endswith((".pyc", "__pycache__")):
        return None
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


@pytest.fixture
def connected(runtime: Runtime, scripted_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connected]:
    """A connection to the tests' runtime; afterwards nothing of this session may be left on it."""
    monkeypatch.setenv("DOCKER_HOST", runtime.host)
    yield connect()
    assert left(runtime) == []


def left(runtime: Runtime) -> list[str]:
    return labelled(runtime, f"{SESSION_LABEL}={session_id()}")


def labelled(runtime: Runtime, label: str) -> list[str]:
    """Containers and volumes on the runtime that carry this label."""
    wanted = ("--filter", f"label={label}", "--format")
    containers = runtime.docker("ps", "--all", *wanted, "{{.Names}}").stdout.split()
    return containers + runtime.docker("volume", "ls", *wanted, "{{.Name}}").stdout.split()


def launcher(
    connected: Connected, patience: ContainerPatience = QUICK, image: str = IMAGE, **settings: Any
) -> DockerLauncher:
    """A launcher of the scripted image for every backend."""
    found = find_image(connected, image, "never", print)
    images = {"deepspeed": found, "megatron": found}
    return DockerLauncher(runtime=connected, settings=DockerSettings(**settings), images=images, patience=patience)


def container_job(launched: DockerLauncher, root: Path, script: str, ranks: int = 1, **changes: Any) -> Job:
    """A job of ranks made of a few lines of Python, with the bundle at ``root``."""
    name = changes.pop("name", "Scripted-1M-n1-r1")
    limits = {name: changes.pop(name) for name in ("run_seconds", "silence_seconds", "memory_bytes") if name in changes}
    fields = {
        "name": name,
        "argv": (PYTHON, "-I", "-S", "-c", PREAMBLE + script),
        "env": {"EVENTS": f"{RUNS}/{name}/events"},
        "image": launched.images["megatron"].id,
        "ranks_per_node": ranks,
        "devices": (),
        "mounts": (Mount(source=str(root), target=f"{RUNS}/{name}", read_only=False),),
        "limits": JobLimits(**{"run_seconds": 100.0, "silence_seconds": 100.0, **limits}),
        "labels": {RUN_LABEL: name, SESSION_LABEL: session_id(), DRIVER_LABEL: this_driver()},
    }
    return Job.model_validate({**fields, **changes})


def run_container(launched: DockerLauncher, root: Path, script: str, ranks: int = 1, **changes: Any) -> Ran:
    """Run it to its end; ``tests.launch.ranks.Ran`` tells what it left."""
    ran = Ran(make_folder(root))
    (root / "manifest.json").write_text("{}")
    ran.outcome = launched.run(container_job(launched, root, script, ranks, **changes), ran.folder, ran.events.append)
    return ran


def once_started(ran_in: Path, act: Callable[[], object], events: int = 2) -> threading.Thread:
    """Call ``act`` as soon as rank 0 has written so many events."""

    def wait() -> None:
        file = ran_in / "events" / "rank-0.jsonl"
        wait_until(lambda: file.exists() and file.read_text().count("\n") >= events)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def scripted_suite(*arguments: str, script: dict[str, Any] | None = None) -> list[str]:
    """Command line of the suite with the scripted worker of the image, on that runtime."""
    docker = ("--launcher", "docker", "--image", IMAGE, "--env", f"SUITE_SCRIPT={json.dumps(script or {})}")
    return [sys.executable, str(ROOT / "tests/scripted_suite.py"), *arguments[:1], *docker, *arguments[1:]]


def suite_environment(runtime_host: str) -> dict[str, str]:
    return {**os.environ, "DOCKER_HOST": runtime_host, "SUITE_TEST_WORKER": WORKER}
