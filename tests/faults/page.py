"""docs/reliability.md: the table of all tries that there are."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from suite.launch.probe import host_facts
from tests.faults import compose, containers, local, pods, scheduler
from tests.faults.scene import ROOT
from tests.faults.tries import Fault, Try

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- written by make faults -->", "<!-- end of what make faults writes -->"
FAULTS = (*local.FAULTS, *containers.FAULTS, *compose.FAULTS, *scheduler.FAULTS, *pods.FAULTS)
KINDS = ("processes", "containers", "jobs", "shared memory", "files")
HEAD = """\
| launcher | fault | ranks | tries | right | lost | left behind | goes on by | seconds a try |
|---|---|---|---:|---:|---:|---|---|---:|
"""


def write(path: Path, tries: Sequence[Try]) -> None:
    """Put the table of these tries into the page."""
    put(path, BEGIN, END, table(tries, host_facts()))


def put(path: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two marks; the words around it are the authors'. A page that is not there is made."""
    before, _, rest = (path.read_text(encoding="utf-8") if path.exists() else "").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def table(tries: Sequence[Try], host: dict) -> str:
    """Where and when, the rows as they are declared, what has to come of each fault, and what was wrong."""
    counted = [one for one in tries if one.verdict != "missed"]
    if not counted:
        return "\nNothing was tried yet.\n"
    rows, wrong, untried = [], [], []
    for fault in FAULTS:
        mine = [one for one in counted if one.key == fault.key]
        if mine:
            rows.append(row(fault, mine))
            wrong += [one for one in mine if is_bad(one)]
        else:
            untried.append(f"{fault.launcher}: {fault.name}")
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(one.when)) for one in counted})
    commits = sorted({(one.commit or "unknown")[:12] for one in counted})
    seeds = sorted({one.seed for one in counted})
    cpu = host["cpu"]
    right = sum(not is_bad(one) for one in counted)
    lines = [
        "",
        f"{' to '.join(sorted({days[0], days[-1]}))}, {cpu['model']}, {cpu['cores'] or cpu['threads']} cores, seed "
        f"{', '.join(map(str, seeds))}, commit {', '.join(commits)}.",
        "",
        f"**{right} of {len(counted)} tries came out right, with no finished iteration lost and nothing left behind.** "
        f"{sum(one.verdict == 'missed' for one in tries)} more came when the run was over and count as none.",
        "",
        HEAD + "\n".join(rows),
    ]
    if wrong:
        lines += ["", "What was not right:", "", *(f"- {said_of(one, 300)}" for one in wrong)]
    lines += ["", "What has to come of each:", "", *expected()]
    if untried:
        lines += ["", f"Not tried: {'; '.join(untried)}."]
    return "\n".join([*lines, ""])


def expected() -> list[str]:
    """What has to come of the faults, each said once."""
    named: dict[tuple[str, str], list[str]] = {}
    for fault in FAULTS:
        named.setdefault((fault.launcher, fault.right), []).append(fault.name)
    return [f"- {launcher}: {right}: {', '.join(names)}" for (launcher, right), names in named.items()]


def is_bad(one: Try) -> bool:
    return one.verdict == "wrong" or one.lost > 0 or any(one.left.values())


def row(fault: Fault, tries: Sequence[Try]) -> str:
    right = sum(one.verdict == "right" for one in tries)
    left = Counter({kind: sum(len(one.left.get(kind, ())) for one in tries) for kind in KINDS})
    behind = ", ".join(f"{count} {kind}" for kind, count in left.items() if count) or "0"
    goes_on = Counter(one.resumes for one in tries if one.verdict == "right")
    ways = ", ".join(f"{way} {count}/{len(tries)}" if way != "not needed" else way for way, count in goes_on.items())
    seconds = sum(one.seconds for one in tries) / len(tries)
    cells = (
        *(fault.launcher, fault.name, fault.work, str(len(tries)), str(right)),
        *(str(max(one.lost for one in tries)), behind, ways or "-", f"{seconds:.0f}"),
    )
    return f"| {' | '.join(cells)} |"


def said_of(one: Try, most: int) -> str:
    """In a line, without what Markdown would take for its own. ``most``: characters of what was said."""
    said = ascii(one.said)[1:-1].replace("|", "/").replace("`", "'").replace("<", "(")[:most]
    left = f"; left behind: {', '.join(name for names in one.left.values() for name in names)}" if one.left else ""
    lost = f"; {one.lost} iterations lost" if one.lost else ""
    return f"{one.launcher}, {one.fault}, number {one.number} of seed {one.seed}: {one.verdict}: {said}{lost}{left}"
