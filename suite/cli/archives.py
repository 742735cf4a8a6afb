"""`suite pack` and `suite unpack`: a results folder as one file that can be handed on, and back."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from suite.bundle.archive import packing
from suite.bundle.archive.index import Index, scrubbed_line, written_index
from suite.bundle.archive.opening import archive_facts, archive_lines, read_archive, unpack_archive
from suite.bundle.archive.signature import check
from suite.cli.command import argument, command, flag, option, require_place
from suite.cli.output import DONE, GATE_NOT_MET, STANDARD_OUTPUT, answer, written_to
from suite.spec.terminal import UsageError, printable

AllowedSigners = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="exit 3 unless the archive is signed by one of these (lines of NAME KEY, as ssh-keygen takes them)",
    ),
]


@command("print what was packed and scrubbed as JSON")
def pack(
    folder: Path = argument("results folder, or a single bundle"),
    output: Path = option("file to write (-: print it)", ..., "--output", "-o", metavar="FILE.suite.zip"),
    keep_identity: bool = flag(
        "leave in names of hosts and users, paths, addresses, ids of containers and serial numbers"
    ),
    keep: list[str] | None = option(
        "a name, path or address that may stay; can be given several times", metavar="WORD"
    ),
    scrub: list[str] | None = option(
        "a word to scrub beside what is found; can be given several times", metavar="WORD"
    ),
    licence: list[Path] | None = option("text of a licence of the results; can be given several times", metavar="FILE"),
    sbom: list[Path] | None = option(
        "what an image holds, of suite images check --sbom; can be given several times", metavar="FILE"
    ),
    sign: Path | None = option("sign it with this SSH key (ssh-keygen -Y sign)", metavar="KEY"),
) -> None:
    """Put the runs of a results folder into one file, without what tells who ran them and where.

    \b
    suite pack runs -o results.suite.zip
    suite verify results.suite.zip
    suite report results.suite.zip

    The same folder gives the same bytes. Names are replaced by others (scrubbed-host-1) that still tell one machine
    from another, and records are derived again from what is left, so that they verify.
    """
    if keep_identity and (keep or scrub):
        raise UsageError("--keep and --scrub say what is scrubbed: leave out --keep-identity")
    how = packing.Packing(keep_identity, keep or (), scrub or (), licence or (), sbom or (), sign)
    with written_to(output, ".suite.zip") as path:
        require_place("--output", path)
        index, size = packing.pack(folder, path, how), path.stat().st_size
    if output == STANDARD_OUTPUT:
        return
    facts = {"archive": str(output), "index_sha256": hashlib.sha256(written_index(index)).hexdigest(), "bytes": size}
    facts |= {"files": len(index.files), "signed": sign is not None}
    told = _told(index, output, facts)
    answer({**facts, **index.model_dump(mode="json", by_alias=True, exclude={"files"})}, map(printable, told))


def indented(line: str) -> str:
    """A line of ``archive_lines``, or of a bundle in an archive, as a terminal shows it."""
    return f"{'    ' * line.startswith(' ')}{printable(line)}"


def _told(index: Index, output: Path, facts: dict[str, Any]) -> Iterator[str]:
    yield f"wrote {output}: {len(index.runs)} run{'s' * (len(index.runs) != 1)}, {facts['bytes']:,} bytes"
    yield scrubbed_line(index)
    for left in index.left_out:
        yield f"left out: {left.path}: {left.reason}"
    other = [run for run in index.runs if run.verified != "equal"]
    if other:
        yield f"{len(other)} of the runs did not verify before they were packed; suite verify {output} tells of each"
    yield f"digest: {index.digest}" if index.digest else "digest: none, because a bundle has none"
    yield f"index: sha256 {facts['index_sha256']}, {'signed' if facts['signed'] else 'not signed'}"


@command("print what was unpacked as JSON")
def unpack(
    archive: Path = argument("file of suite pack", metavar="FILE.suite.zip"),
    output: Path | None = option(
        "folder to make [default: the file's name without its end]", None, "--output", "-o", metavar="DIR"
    ),
    allowed_signers: AllowedSigners = None,
) -> int:
    """Unpack a file of suite pack, whole or not at all: every file is as its index says.

    With --allowed-signers nothing is unpacked that is not signed by one of them: exit 3.
    """
    target = output or Path(archive.name.removesuffix(".zip").removesuffix(".suite"))
    with read_archive(archive) as reader:
        signature = check(reader.index_bytes, reader.signature, allowed_signers)
        refused = signature.outcome == "bad signature" or (allowed_signers and signature.outcome != "signed")
        if not refused:
            unpack_archive(reader, target)
    end = "not unpacked" if refused else f"unpacked to {target}; its results are {target / 'runs'}"
    facts = {**archive_facts(reader, signature), "folder": None if refused else str(target)}
    answer(facts, map(indented, (*archive_lines(reader, signature), end)))
    return GATE_NOT_MET if refused else DONE
