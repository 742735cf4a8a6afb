"""Images for pods on this machine's own kubelet: next to nothing in them, the machine's own software shown to each.

What the suite's real images hold (Python, torch, DeepSpeed) is here already and too heavy to be packed for a test. So
the node shows it to every container, as runtimes for GPUs show drivers: read-only mounts in the specification from
which containerd makes all containers. The pods themselves are what the suite renders.
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from suite.launch.job import PYTHON, PYTHON_PATH
from tests.containers import add_file
from tests.kubernetes_server.scripted_torchrun import WORKER
from tests.kubernetes_server.server import ROOT

#: torchrun with real ranks; ranks that follow a script; what holds the namespaces of a pod
ENGINES, SCRIPTED, PAUSE = "suite.test/engines:1", "suite.test/scripted:1", "suite.test/pause:1"
ENVIRONMENT = "/opt/environment"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_USERS = b"root:x:0:0:root:/root:/bin/sh\nsuite:x:1000:1000:suite:/tmp:/bin/sh\n"
_FOLDERS = ("usr", "opt", "tmp", "work/runs", "proc", "sys", "dev")
_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}


def machine_mounts() -> dict[str, Path]:
    """What every container sees of this machine, by its place in the container."""
    base = Path(sys.base_prefix).resolve()
    mounts = {
        "/usr": Path("/usr"),
        ENVIRONMENT: Path(sys.prefix).resolve(),
        f"{PYTHON_PATH}/suite": ROOT / "suite",
        WORKER: ROOT / "tests" / "scripted_worker.py",
    }
    return mounts if base.is_relative_to("/usr") else {**mounts, str(base): base}


def container_specification() -> dict[str, Any]:
    """The specification that containers are made from: the runtime's own, with the machine's software."""
    own: dict[str, Any] = json.loads(subprocess.run(("ctr", "oci", "spec"), check=True, capture_output=True).stdout)
    options = ["rbind", "ro", "nosuid", "nodev"]
    own["mounts"] += [
        {"destination": place, "type": "bind", "source": str(source), "options": options}
        for place, source in machine_mounts().items()
    ]
    return own


def write_images(folder: Path, pause: Path) -> list[Path]:
    """Archives of the images, as ``docker save`` writes them. ``pause``: the program of the third."""
    stack = str(Path(PYTHON).parents[1]).strip("/")
    torchrun = (ROOT / "tests/kubernetes_server/scripted_torchrun.py").read_bytes()
    return [
        _write(folder / "engines.tar", ENGINES, {}, {**_LINKS, stack: ENVIRONMENT}, _FOLDERS),
        _write(folder / "scripted.tar", SCRIPTED, {PYTHON.strip("/"): torchrun}, _LINKS, _FOLDERS),
        _write(folder / "pause.tar", PAUSE, {"pause": pause.read_bytes()}, {}, ()),
    ]


def _write(path: Path, name: str, files: dict[str, bytes], links: dict[str, str], folders: tuple[str, ...]) -> Path:
    layer = _layer({"etc/passwd": _USERS, **files}, links, folders)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for member, data in (
            ("layer.tar", layer),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            add_file(archive, member, data)
    return path


def _layer(files: dict[str, bytes], links: dict[str, str], folders: tuple[str, ...]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as layer:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
        for name, data in files.items():
            add_file(layer, name, data, 0o755)
    return written.getvalue()
