"""Entry point of the console script. Help and the version are answered before anything heavy is imported."""

import gc
import io
import os
import sys

COMPLETION = "_SUITE_COMPLETE"
#: an exit code as those of suite.cli.output, which may not be imported yet when it is needed
INTERRUPTED = 130


def main() -> None:
    """Run the command line. Exit code 130 also for Ctrl-C while its modules are still imported."""
    try:
        _main()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:  # what is printed before a command begins, such as help, into a full disk
        print(f"error: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)


def _main() -> None:
    from suite.cli.saved_help import saved_page

    mend_streams()
    if COMPLETION not in os.environ:
        arguments = sys.argv[1:]
        text = version_line() + "\n" if arguments in (["--version"], ["-V"]) else saved_page(arguments)
        if text is not None:
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
            except BrokenPipeError:  # closed by who read enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(1)
            return
    # what is imported lives until the end: looking for garbage in it after every 700 objects costs a tenth of a start
    gc.set_threshold(50_000)
    from suite.cli.app import app

    app(prog_name="suite")


def version_line() -> str:
    from suite.spec.version import suite_version

    return f"suite {suite_version()}"


def mend_streams() -> None:
    """Open those that are closed (``>&-``) on nothing, so that no file of a run takes their place; and let output show
    what its encoding does not have by number, instead of failing over a name."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
