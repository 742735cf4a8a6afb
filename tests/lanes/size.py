"""python -m tests.lanes.size: lines and files of Python by room, each beside its budget in docs/development.md."""

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = ROOT / "docs" / "development.md"
#: a row of the budgets: rooms of suite/ by their names, or a folder of the checkout
ROW = re.compile(r"^\| (?P<rooms>`[a-z_]+`(?:, `[a-z_]+`)*) \| (?P<lines>[\d,]+) \|$", re.MULTILINE)
FOLDERS = ("tests", "benchmarks")


class Size(NamedTuple):
    """Of the Python files of some rooms together."""

    rooms: tuple[str, ...]
    lines: int
    files: int
    budget: int


def budgets() -> dict[tuple[str, ...], int]:
    """Most lines by rooms, as the table says. A room is a folder or module of suite/, or one of FOLDERS."""
    rows = ROW.finditer(BUDGETS.read_text(encoding="utf-8"))
    return {tuple(re.findall(r"[a-z_]+", row["rooms"])): int(row["lines"].replace(",", "")) for row in rows}


def room_of(file: str) -> str:
    top, _, rest = file.partition("/")
    return rest.split("/")[0].removesuffix(".py") if top == "suite" else top


def files(*patterns: str) -> list[str]:
    """What git tracks or would track."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns).split("\0")
    return [file for file in listed if file and (ROOT / file).is_file()]


def sizes() -> list[Size]:
    """Of today's files, in the order of the table."""
    lines, counts = Counter[str](), Counter[str]()
    for file in files("*.py"):
        lines[room_of(file)] += len((ROOT / file).read_text(encoding="utf-8").splitlines())
        counts[room_of(file)] += 1
    return [
        Size(rooms, sum(lines[room] for room in rooms), sum(counts[room] for room in rooms), most)
        for rooms, most in budgets().items()
    ]


def change(rooms: tuple[str, ...], release: str) -> int:
    """Lines of Python that were added since a release, less those that went."""
    paths = [path for room in rooms for path in ((room,) if room in FOLDERS else (f"suite/{room}", f"suite/{room}.py"))]
    numbers = [line.split() for line in _git("diff", "--numstat", release, "--", *paths).splitlines()]
    return sum(int(added) - int(gone) for added, gone, file in numbers if file.endswith(".py"))


def _git(*arguments: str) -> str:
    asked = ("git", "-c", "safe.directory=*", *arguments)
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    release = _git("tag", "--list", "--sort=-creatordate", "v*").split("\n")[0]
    print(f"{'rooms':50} {'lines':>7} {'budget':>7} {'files':>6}  since {release or 'a release: there is none yet'}")
    for size in sizes():
        since = f"{change(size.rooms, release):+7,}" if release else ""
        over = "  over its budget" if size.lines > size.budget else ""
        print(f"{', '.join(size.rooms):50} {size.lines:7,} {size.budget:7,} {size.files:6}  {since}{over}")


if __name__ == "__main__":
    main()
