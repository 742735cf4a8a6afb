"""The checkout that images are built from: its Dockerfiles, its locks and what they pin, and its commit."""

import re
import subprocess
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
