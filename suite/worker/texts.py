"""Small files of the kernel."""

from typing import Optional


def read_text(path: str) -> Optional[str]:
    """Without white space around it; None where it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, ValueError):
        return None
