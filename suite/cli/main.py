"""Entry point of the console script. `suite --help` is answered from saved text, before anything is imported.

The text is what the application itself would print (a test holds it to that); typer alone costs a tenth of a second.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HELP = Path(__file__).with_name("help.txt")
COMPLETION = "_SUITE_COMPLETE"


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] in (["--help"], ["-h"]) and COMPLETION not in os.environ:
        print(HELP.read_text(encoding="utf-8"), end="")
        return
    from suite.cli.app import app

    app(prog_name="suite")
