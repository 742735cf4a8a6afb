"""`suite unpack`: a file of `suite pack` as a folder."""

from pathlib import Path
from typing import Annotated

import typer

from suite.bundle.archive.index import archive_facts, archive_lines
from suite.bundle.archive.opening import read_archive, unpack_archive, unpacked_name
from suite.bundle.archive.signature import check
from suite.cli.exits import DONE, GATE_NOT_MET, command
from suite.cli.options.declare import argument, flag, option
from suite.cli.options.reading import print_json
from suite.spec.terminal import printable, say

AllowedSigners = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="exit 3 unless the archive is signed by one of these (lines of NAME KEY, as ssh-keygen takes them)",
    ),
]


@command
def unpack(
    archive: Path = argument("file of suite pack", metavar="FILE.suite.zip"),
    output: Path | None = option(
        "folder to make [default: the file's name without its end]", None, "--output", "-o", metavar="DIR"
    ),
    allowed_signers: AllowedSigners = None,
    as_json: bool = flag("print what was unpacked as JSON", "--json"),
) -> int:
    """Unpack a file of suite pack, whole or not at all: every file is as its index says.

    With --allowed-signers nothing is unpacked that is not signed by one of them: exit 3.
    """
    target = output or unpacked_name(archive)
    with read_archive(archive) as reader:
        signature = check(reader.index_bytes, reader.signature, allowed_signers)
        about = (str(archive), reader.index, reader.index_sha256, signature)
        refused = signature.outcome == "bad signature" or (allowed_signers and signature.outcome != "signed")
        if not refused:
            unpack_archive(reader, target)
    if as_json:
        print_json({**archive_facts(*about), "folder": None if refused else str(target)})
    else:
        for line in archive_lines(*about):
            say(printable(line) if not line.startswith(" ") else f"    {printable(line)}")
        say(printable("not unpacked" if refused else f"unpacked to {target}; its results are {target / 'runs'}"))
    return GATE_NOT_MET if refused else DONE
