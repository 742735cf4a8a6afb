"""The commands that install a backend's stack into an environment of its own: shown, never run."""

from __future__ import annotations

from importlib import metadata

from suite.backends.registry import find_backend


def commands_for(backend: str) -> list[str]:
    """For a shell, in the versions that the suite pins. Raises UsageError for an unknown backend."""
    driver = find_backend(backend)
    installation: str | None = getattr(driver, "installation", None)
    if installation:
        return [f"# {installation}"]
    pins = {line.partition("==")[0]: line.partition(";")[0] for line in _requirements() if "==" in line}
    packages = " ".join(pins.get(name, name) for name in driver.packages)
    return [
        f"python3 -m venv {backend}-stack",
        f"{backend}-stack/bin/pip install {packages}",
        f"suite run --backend {backend} --python {backend}={backend}-stack/bin/python",
    ]


def _requirements() -> list[str]:
    """Of the suite; none where it runs from a folder that nobody installed."""
    try:
        return metadata.requires("rlhf-suite") or []
    except metadata.PackageNotFoundError:
        return []
