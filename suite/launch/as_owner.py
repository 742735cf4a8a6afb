"""``python -m suite.launch.as_owner FOLDER PROGRAM ARGUMENT...``: run a program as the user who owns a folder, in a
container that begins as root because nobody could tell it whose that is. Standard library only."""

import os
import sys
import warnings  # noqa: F401 - execvp imports it, when the owner may be unable to read this interpreter's files


def main(arguments: list[str]) -> int:
    """Replace this process by the program; the exit code where that cannot be done."""
    if len(arguments) < 2:
        return _complain("usage: python -m suite.launch.as_owner FOLDER PROGRAM ARGUMENT...")
    folder, *command = arguments
    try:
        owner = os.stat(folder)
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(owner.st_gid)
            os.setuid(owner.st_uid)
            # for libraries that ask who they are: the id may have no name here
            name = f"uid-{owner.st_uid}"
            os.environ.update(HOME="/tmp", USER=name, LOGNAME=name)
        os.execvp(command[0], command)
    except OSError as error:
        return _complain(f"cannot run {command[0]} as the owner of {folder}: {error}")


def _complain(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
