"""What the suite's subclass and clock cost trlx's own trainer: `python -m benchmarks.trlx PYTHON [TURNS]`.

PYTHON is an interpreter whose stack holds trlx (docs/backends.md); `make bench-self` takes SUITE_TRLX_PYTHON.
"""

import os
import statistics
import sys
from collections.abc import Mapping

from benchmarks.overhead import LIMIT, difference
from benchmarks.ranks import one_manifest, run_script
from benchmarks.verdict import Row, at_most

VARIABLE = "SUITE_TRLX_PYTHON"
SIZE, TURNS, USUAL_TURNS = "8M", 400, 60
CASES = (("trlx-deepspeed", 1), ("trlx-deepspeed", 2), ("trlx-ddp", 2))


def rows() -> list[Row]:
    """One row that says why, where no interpreter with trlx is named."""
    python = os.environ.get(VARIABLE)
    if not python:
        return [Row("clock and subclass on trlx", f"{VARIABLE} is not set", f"{LIMIT:.0%}", "not measured")]
    return [row for backend, ranks in CASES for row in measure(backend, ranks, python, USUAL_TURNS)]


def measure(backend: str, ranks: int, python: str, turns: int) -> list[Row]:
    """Iterations of one trainer in turns: alone, with the suite's barriers, with all of its clock."""
    manifest = one_manifest(backend, SIZE, ranks, turns * (2 if ranks == 1 else 3), python)
    seconds = run_script("benchmarks.trlx_worker", manifest, python)
    return turn_rows(seconds, f"{backend} {SIZE}", ranks, turns)


def turn_rows(seconds: Mapping[str, list[float]], where: str, ranks: int, turns: int) -> list[Row]:
    """Of iterations that took turns: what all of the clock costs (limited), and on several ranks what of it."""
    found = []
    for longer, shorter in (("clock", "alone"), ("clock", "edges"), ("edges", "alone")):
        if longer in seconds and shorter in seconds:
            whole = statistics.median(seconds[shorter])
            share = difference(seconds[longer], seconds[shorter]).over(whole)
            what = f"{longer} over {shorter}, {where}, {ranks} rank{'s' if ranks > 1 else ''}"
            figure = f"{share.text('+.2%')} of {whole:.3f} s ({turns} turns)"
            is_limited = (longer, shorter) == ("clock", "alone")
            limit = (f"{LIMIT:.0%}", at_most(share, LIMIT)) if is_limited else ()
            found.append(Row(what, figure, *limit))
    return found


def main() -> None:
    python, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else TURNS
    for backend, ranks in CASES:
        for row in measure(backend, ranks, python, turns):
            print(f"{row.what}: {row.measured} (limit: {row.limit}, {row.verdict})", flush=True)


if __name__ == "__main__":
    main()
