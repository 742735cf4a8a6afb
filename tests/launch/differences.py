"""Snapshots of what hardly differs: one whole, and of the others what is not as in it."""

import difflib


def differences(usual: str, text: str) -> list[str]:
    """The lines that ``text`` has not (-) and has (+) instead of those of ``usual``."""
    lines = difflib.unified_diff(usual.splitlines(), text.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("--- ", "+++ ", "@@ "))]
