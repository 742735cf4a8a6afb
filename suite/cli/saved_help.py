"""Help from saved text: `suite X --help`, and `suite sizes`, are answered before Typer or a command is imported.

``python -m suite.cli.saved_help`` writes the file, and a build does so (``hatch_build.py``). It names the sources that
the text comes from and their digest: where one was changed since, or the file is missing, help is answered live."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("saved_help.json")
HELP_OPTIONS, EVERY, SIZES = ("-h", "--help"), "--help-all", ["sizes"]
#: read by the driver without being imported
ALGORITHMS = "suite/worker/algorithms/"
#: columns of the two layouts; a narrower terminal is answered live
NORMAL, WIDE = 80, 110


def columns() -> int:
    """Width of the terminal as `shutil.get_terminal_size` has it, whose module would cost more than the answer."""
    try:
        wanted = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        wanted = 0
    if wanted > 0:
        return wanted
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or NORMAL  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return NORMAL


def content_width() -> int:
    """At most so many columns are used: one of two layouts, so that text can be saved for both."""
    return WIDE if columns() >= WIDE else NORMAL


def saved_page(arguments: Sequence[str]) -> str | None:
    """What a command line asks for, or None where that is not saved or must be answered live."""
    if not arguments or columns() < NORMAL:
        return None
    if list(arguments) == SIZES:
        breaks_lines = "COLUMNS" in os.environ or sys.stdout.isatty()  # as suite.spec.width has it
        key, width = " ".join([*SIZES, "-"]), content_width() if breaks_lines else 0
    elif arguments[-1] in (*HELP_OPTIONS, EVERY):
        key, width = " ".join(arguments if arguments[-1] == EVERY else arguments[:-1]), content_width()
    else:
        return None
    import json

    try:
        saved = json.loads(FILE.read_text(encoding="utf-8"))
        page = saved["pages"][str(width)].get(key)
        return page if page and sources_digest(saved["sources"]) == saved["digest"] else None
    except (OSError, ValueError, KeyError):
        return None


def sources_digest(names: Sequence[str]) -> str:
    """SHA-256 over source files, named from the package's parent; a name that ends in a slash is all modules of a
    folder. Raises OSError when one is missing."""
    import hashlib

    found = hashlib.sha256()
    for name in names:
        source = _source(name)
        for path in sorted(source.glob("*.py")) if name.endswith("/") else [source]:
            content = path.read_bytes()
            found.update(f"{name}\0{path.name}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()


def _source(name: str) -> Path:
    path = PACKAGE.parent / name
    # an installation has the data folder inside the package
    return path if path.exists() or not name.startswith("manifests/") else PACKAGE / name


def write_pages(file: Path = FILE) -> None:
    """Save the help of every command in both layouts. The terminal of this process is another one afterwards."""
    import json

    pages = {str(width): _pages(width) for width in (NORMAL, WIDE, 0)}
    sources = _sources()
    saved = {"digest": sources_digest(sources), "sources": sources, "pages": pages}
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(saved, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(file)


def _pages(width: int) -> dict[str, str]:
    """Of a terminal that wide; 0: what goes into a pipe, where no line is broken."""
    import contextlib
    import io

    from suite.cli.app import UsageProblem, app
    from suite.cli.commands import command_paths

    asked = {" ".join([*SIZES, "-"]): SIZES}
    if width:
        os.environ["COLUMNS"] = str(width)
        for path in command_paths():
            asked |= {" ".join(path): [*path, "--help"], " ".join([*path, EVERY]): [*path, EVERY]}
    else:
        os.environ.pop("COLUMNS", None)
    pages = {}
    for key, words in asked.items():
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(UsageProblem):
            app(words, prog_name="suite", standalone_mode=False)
            pages[key] = shown.getvalue()
    return pages


def _sources() -> list[str]:
    """What help was made of: modules, the data folder and the algorithms, of which each file is one."""
    modules = {
        Path(file).resolve()
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("suite", "__main__") and (file := getattr(module, "__file__", None))
    }
    names = {path.relative_to(PACKAGE.parent).as_posix() for path in modules if path.is_relative_to(PACKAGE)}
    names.add(ALGORITHMS)
    return sorted(names | {f"manifests/{path.name}" for path in _source("manifests/sizes.yaml").parent.glob("*.yaml")})


if __name__ == "__main__":
    write_pages()
