"""Build hook: save the help of every command in ``suite/cli/saved_help.json``, for wheels and editable installs, and
make the manual page ``suite.1`` of it.

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
MAN_PAGE = "build/suite.1"


class SavedHelp(BuildHookInterface):
    """Run the package's own writers with the interpreter that builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files and add them to what is built, though git ignores them."""
        why = self._run("suite.cli.saved_help")
        if why:
            self.app.display_warning(f"help is not saved and will be answered live: {why}")
        if not Path(self.root, SAVED_HELP).is_file():
            return
        build_data["artifacts"].append(SAVED_HELP)  # an older one is not shown for other sources than its own
        Path(self.root, MAN_PAGE).parent.mkdir(exist_ok=True)
        why = why or self._run("suite.cli.man_page", MAN_PAGE)
        if why:
            self.app.display_warning(f"there is no manual page: {why}")
        else:
            build_data["shared_data"][MAN_PAGE] = "share/man/man1/suite.1"

    def _run(self, module: str, *arguments: str) -> str:
        """The last line of what a module of the package says where it fails; empty where it does not."""
        path = os.pathsep.join(filter(None, [self.root, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        return (done.stderr.strip().splitlines() or ["no reason was given"])[-1] if done.returncode else ""
