"""Where a run comes from: the driver's version and commit, the host, the job as it was started."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import suite
from suite.launch.job import Job
from suite.launch.probe import host_facts
from suite.spec.redaction import public_variables, without_secrets_in
from suite.spec.version import suite_version


class Described(Protocol):
    """A launcher as far as its facts go."""

    name: str

    def facts(self, job: Job) -> dict[str, Any]: ...


def driver_facts(launcher: Described, job: Job, bundle: str) -> dict:
    """What ``environment.json`` holds. A bundle is meant to be published: variables that hold a secret, by name or by
    value, are left out, and so is any secret in another text. Of paths it tells the interpreter's alone."""
    argv = [part.replace(bundle, ".") for part in job.argv]
    own = public_variables({name: value for name, value in job.env.items() if name != "PYTHONPATH"})
    facts = {
        **launcher.facts(job),
        "launcher": launcher.name,
        "suite_version": suite_version(),
        "git_commit": git_commit(),
        "interpreter": argv[0],
        "driver_python": platform.python_version(),
        "job": {
            "argv": [Path(argv[0]).name, *argv[1:]],
            "env": own,
            "nodes": job.nodes,
            "ranks_per_node": job.ranks_per_node,
            "limits": job.limits.model_dump(mode="json"),
        },
        "host": host_facts(),
    }
    found: dict[str, Any] = without_secrets_in(facts)
    return found


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout that the suite runs from, ``+changes`` when files differ; ``None`` outside a checkout."""
    root = Path(next(iter(suite.__path__))).resolve().parent
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
