"""Entry point of the console script. Help and the version are answered before anything heavy is imported."""

from __future__ import annotations

import gc
import os
import sys

COMPLETION = "_SUITE_COMPLETE"
#: an exit code as those of suite.cli.exits, which may not be imported yet when it is needed
INTERRUPTED = 130


def main() -> None:
    """Run the command line. Exit code 130 also for Ctrl-C while its modules are still imported."""
    try:
        _main()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _main() -> None:
    from suite.cli.saved_help import saved_page
    from suite.cli.streams import mend_streams

    mend_streams()
    if COMPLETION not in os.environ:
        arguments = sys.argv[1:]
        text = version_line() + "\n" if arguments in (["--version"], ["-V"]) else saved_page(arguments)
        if text is not None:
            _show(text)
            return
    # what is imported lives until the end: looking for garbage in it after every 700 objects costs a tenth of a start
    gc.set_threshold(50_000)
    from suite.cli.app import app

    app(prog_name="suite")


def version_line() -> str:
    """What `suite --version` prints."""
    from suite.spec.version import suite_version

    return f"suite {suite_version()}"


def _show(text: str) -> None:
    """Print text into what may be a pipe that is closed already."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
