"""Build hook: save the help of every command in ``suite/cli/saved_help.json``, for wheels and editable installs.

Without the file, help is answered live; so a build where it cannot be made (no Typer there) is a build all the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SAVED_HELP = "suite/cli/saved_help.json"


class SavedHelp(BuildHookInterface):
    """Run the package's own writer with the interpreter that builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file and add it to what is built, though git ignores it."""
        path = os.pathsep.join(filter(None, [self.root, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-m", "suite.cli.saved_help"],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            self.app.display_warning(f"help is not saved and will be answered live: {why}")
        if Path(self.root, SAVED_HELP).is_file():
            build_data["artifacts"].append(SAVED_HELP)  # an older one is not shown for other sources than its own
