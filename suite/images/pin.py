"""Which image compose.yaml runs: .env beside it names the built one by its id, so that the record has it."""

from __future__ import annotations

from pathlib import Path

from suite.bundle.files import replace_atomically
from suite.images.build import Built
from suite.images.project import Project
from suite.spec.images import find_image
from suite.spec.version import suite_version

ENV_FILE, COMPOSE_FILE = ".env", "compose.yaml"


def variable(image: str) -> str:
    """The variable of compose.yaml that names an image of the catalogue."""
    return f"SUITE_{image.upper().replace('-', '_')}_IMAGE"


def pin_for_compose(project: Project, built: Built) -> Path | None:
    """Have compose.yaml run this very image. ``None`` where it runs no such image, or another tag was built.

    Other lines of the file stay as they are. Raises UsageError when it cannot be written.
    """
    compose, path = project.root / COMPOSE_FILE, project.root / ENV_FILE
    name = variable(built.name)
    is_usual = built.tag == find_image(built.name).tag(suite_version())
    if not is_usual or not compose.is_file() or name not in compose.read_text(encoding="utf-8"):
        return None
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    kept = [line for line in lines if not line.startswith(f"{name}=")]
    replace_atomically(path, "\n".join([*kept, f"{name}={built.id}"]) + "\n")
    return path
