"""The checkout that images are built from: its locks and its commit; and wheels for a build that fetches nothing."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.backends.base import VLLM_PACKAGES
from suite.spec.base import UsageError
from suite.spec.catalogue import data_root
from suite.spec.images import Image


@dataclass(frozen=True)
class Project:
    """A checkout of the suite."""

    root: Path

    @classmethod
    def of(cls, root: Path | None = None) -> "Project":
        """The checkout at ``root``, else the one this suite runs from. UsageError where there is none."""
        root_folder = (root or data_root().parent).resolve()
        if not (root_folder / "requirements" / "images").is_dir():
            raise UsageError(f"{root_folder} is no checkout of the suite, to build images of; name one with --project")
        return cls(root_folder)

    @property
    def build_inputs(self) -> Path:
        """What a build machine passes into a build: ``ca.crt`` and ``wheelhouse/``. git does not see it."""
        return self.root / "build" / "image"

    def lock(self, name: str) -> Path:
        return self.root / "requirements" / "images" / name

    def cpu_lock(self, image: Image) -> Path:
        return self.root / "requirements" / image.cpu_lock

    def revision(self) -> str | None:
        """Commit of the checkout, ``+changes`` when tracked files differ; ``None`` outside a repository."""
        commit = self._git("rev-parse", "HEAD")
        if commit is None:
            return None
        return f"{commit}+changes" if self._git("status", "--porcelain", "--untracked-files=no") else commit

    def committed(self) -> int | None:
        """When the commit of the checkout was made, in seconds since 1970; ``None`` outside a repository."""
        moment = self._git("show", "--no-patch", "--format=%ct", "HEAD")
        return int(moment) if moment else None

    def source(self) -> str | None:
        """Where the checkout was cloned from, without credentials; ``None`` when that is no address of a server."""
        remote = self._git("remote", "get-url", "origin") or ""
        match = re.fullmatch(r"(https?://|ssh://)(?:[^/@]*@)?(.+)", remote)
        return f"{match[1]}{match[2]}" if match else None

    def _git(self, *arguments: str) -> str | None:
        command = ("git", "-c", "safe.directory=*", "-C", str(self.root), *arguments)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None


_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503): ``nemo_toolkit`` and ``nemo-toolkit`` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(path: Path) -> dict[str, str]:
    """Normal name -> version of a lock file, in its order."""
    found = (_PIN.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {normal(match[1]): match[2] for match in found if match}


def labelled_packages(image: Image) -> tuple[str, ...]:
    """Packages whose versions an image is labelled with, as far as it has them: vLLM by the name of either build."""
    return tuple(
        name for package in image.packages for name in (VLLM_PACKAGES if package in VLLM_PACKAGES else (package,))
    )


PYTHON = "3.11"
#: Wheels for these C libraries run in every base of the catalogue that the CPU build is for.
GLIBC = ("2_36", "2_35", "2_34", "2_31", "2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
HASHED = ("driver", "uv")
#: packages of which indexes have the source alone
SOURCES = ("deepspeed", "antlr4-python3-runtime", "transformers-stream-generator")


def fill_wheelhouse(project: Project, image: Image) -> Path:
    """Fetch and build what an image needs on a CPU; gives back the folder. What is there already stays. Beside it the
    lock of the CPU build is written: the checkout's own pins with the hashes of these wheels. Raises UsageError."""
    if image.cpu_stack is None:
        raise UsageError(f"the image {image.name} has no CPU build, which a wheelhouse is for")
    folder = project.build_inputs / "wheelhouse"
    folder.mkdir(parents=True, exist_ok=True)
    pins = pins_of(project.cpu_lock(image))
    for name in HASHED:
        _download(folder, ("--require-hashes", "-r", str(project.lock(f"{name}.lock"))))
    _download(folder, [f"{name}=={version}" for name, version in pins.items() if name not in SOURCES])
    for name in SOURCES:
        if name in pins and not _wheels(folder, name, pins[name]):
            _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), f"{name}=={pins[name]}")
    lines = [_locked(name, version, _wheels(folder, name, version)) for name, version in pins.items()]
    (project.build_inputs / f"{image.cpu_stack}.lock").write_text("".join(lines), encoding="utf-8")
    return folder


def _download(folder: Path, wanted: Sequence[str]) -> None:
    platforms = [f"manylinux_{glibc}_x86_64" for glibc in GLIBC] + ["manylinux2014_x86_64", "linux_x86_64"]
    target = ("--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:", "--no-deps")
    # the folder is asked first, so that a second call fetches nothing
    to = ("--dest", str(folder), "--find-links", str(folder))
    _pip("download", *target, *(word for name in platforms for word in ("--platform", name)), *to, *wanted)


def _pip(*arguments: str) -> None:
    command = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "DS_BUILD_OPS": "0"})
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise UsageError(f"pip {arguments[0]} cannot fill the wheelhouse: {lines[-1].strip()}")


def _wheels(folder: Path, name: str, version: str) -> list[Path]:
    """The wheels of a pin; a CPU build of torch carries a local version, ``2.13.0+cpu``."""
    stem = f"{name.replace('-', '_')}-{version}".lower()
    return sorted(path for path in folder.glob("*.whl") if path.name.lower().startswith((f"{stem}-", f"{stem}+")))


def _locked(name: str, version: str, found: Sequence[Path]) -> str:
    if not found:
        raise UsageError(f"the wheelhouse has no wheel of {name} {version}")
    if name == "torch" and not any("+cpu" in wheel.name for wheel in found):
        variables = "PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL"
        raise UsageError(f"{found[0].name} is no CPU build of torch; point pip at one ({variables})")
    hashes = "".join(f" \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" for wheel in found)
    return f"{name}=={found[0].name.split('-')[1]}{hashes}\n"
