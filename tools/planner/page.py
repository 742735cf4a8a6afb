"""The generated page of scores: what whole sources, left out of everything, say of the model that answers."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from suite.planner.parameters import Band, Parameters, load_priors
from suite.planner.work import Column
from tools.planner.check import check_of
from tools.planner.nested import Scores
from tools.planner.rows import Published

TITLES = {
    "step": "training steps (pre-training, fine-tuning)",
    "iteration": "whole iterations",
    "training": "training in an iteration",
    "generation": "generation",
    "scoring": "log-probabilities",
    "sync": "weight synchronisation",
    "memory": "peak memory",
}


class Bar(NamedTuple):
    """Median and 90th percentile in percent that are asked, and by whom."""

    median: float
    p90: float


#: What is asked of sources that were left out.
BARS = {
    "step": Bar(4.5, 15),
    "iteration": Bar(20, 45),
    "training": Bar(12, 35),
    "generation": Bar(25, 45),
    "memory": Bar(8, 20),
}
BEGIN, END = "<!-- errors: made by make planner-fit -->", "<!-- end of errors -->"
#: Of weight synchronisations so many within this factor; fits that are right; and rows inside their band.
SYNC_FACTOR, SYNC_SHARE, FITS, COVERAGE = 2.0, 0.85, 0.97, (0.75, 0.90)


def page_of(published: Published, scores: Scores, parameters: Parameters) -> str:
    """Markdown."""
    made = parameters.provenance
    lines = [
        "# How far the planner is off",
        "",
        "Made by `make planner-fit`; `make planner-check` makes it again and compares. "
        f"Fitted {made.fitted} on {made.rows} published configurations of {len(made.sources)} sources, from priors "
        f"that have stood since {load_priors().frozen} (`manifests/planner_priors.json`).",
        "",
        "**Source left out**: a whole source is taken away, everything is fitted anew without it, and it is predicted: "
        "what a stack that nobody published looks like. **Configuration left out**: a fifth of all configurations is "
        "taken away, their sources stay in. *Held* is the share of rows inside an 80 % band made without them, by fits "
        "that saw neither them nor the rows of the band. Errors are absolute and relative, median / 90th percentile, "
        "in percent; rows of all qualities count.",
        "",
        *_kinds(scores),
        "",
        *_sources(scores),
        "",
        *_fits(published, parameters),
        "",
        *_left_out(published),
    ]
    return "\n".join(lines) + "\n"


def excerpt_of(parameters: Parameters) -> str:
    """What a buyer reads beside an answer: errors by kind, of stacks that no fit had seen and of known ones."""
    lines = ["| of published | stack never seen: off by | 80 % lie within | stack known: off by |", "|---|---|---|---|"]
    for kind in ("iteration", "training", "generation", "sync", "memory"):
        bands = parameters.bands[kind]
        errors = [
            f"{100 * band.median:.0f} %, one in ten by {100 * band.p90:.0f} %" for band in (bands.new, bands.known)
        ]
        lines.append(f"| {TITLES[kind]} | {errors[0]} | {_ends(bands.new)} of predicted | {errors[1]} |")
    return "\n".join(lines)


def with_excerpt(page: str, excerpt: str) -> str:
    """The buyers' page with these errors in place of its own."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{excerpt}\n{END}{rest.partition(END)[2]}"


def _kinds(scores: Scores) -> list[str]:
    lines = [
        "| what | rows | stacks on devices | source left out | 80 % band | held | asked | met "
        "| configuration left out | 80 % band | held |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in TITLES.items():
        bands = scores.bands.get(kind)
        if bands is None:
            continue
        asked, met = _bar(scores, kind, bands.new)
        lines.append(
            f"| {title} | {bands.new.rows} | {bands.new.groups} | {_errors(bands.new)} | {_ends(bands.new)} "
            f"| {_share(bands.new.held)} | {asked} | {met} | {_errors(bands.known)} | {_ends(bands.known)} "
            f"| {_share(bands.known.held)} |"
        )
    return lines


def _bar(scores: Scores, kind: str, band: Band) -> tuple[str, str]:
    """What is asked of a kind, and whether it is met: errors, and coverage of its band."""
    held = band.held is not None and COVERAGE[0] <= band.held <= COVERAGE[1]
    inside = "held" if held else "band missed"
    if kind == "sync":
        picked = [place for place, value in enumerate(scores.values) if value.kind == kind]
        off = np.abs(np.log([scores.new[place] / scores.values[place].measured for place in picked]))
        share = float(np.mean(off <= np.log(SYNC_FACTOR)))
        told = "met" if share >= SYNC_SHARE else "missed"
        return f"{100 * SYNC_SHARE:.0f} % within {SYNC_FACTOR:g}", f"{told} ({100 * share:.0f} %), {inside}"
    bar = BARS.get(kind)
    if bar is None:
        return "-", inside
    good = 100 * band.median <= bar.median, 100 * band.p90 <= bar.p90
    told = "met" if all(good) else "missed" if not any(good) else "90th missed" if good[0] else "median missed"
    return f"{bar.median:g} / {bar.p90:g}", f"{told}, {inside}"


def _sources(scores: Scores) -> list[str]:
    lines = [
        "By source:",
        "",
        "| source | what | rows | source left out | in its band | configuration left out |",
        "|---|---|---|---|---|---|",
    ]
    for source, kind in sorted({(value.source, value.kind) for value in scores.values}):
        rows = [place for place, value in enumerate(scores.values) if (value.source, value.kind) == (source, kind)]
        measured = np.array([scores.values[place].measured for place in rows])
        band = scores.bands[kind].new
        inside = np.mean((band.low <= measured / scores.new[rows]) & (measured / scores.new[rows] <= band.high))
        cells = [_cell(column[rows], measured) for column in (scores.new, scores.known)]
        lines.append(f"| {source} | {TITLES[kind]} | {len(rows)} | {cells[0]} | {100 * inside:.0f} % | {cells[1]} |")
    return lines


def _cell(predicted: Column, measured: Column) -> str:
    off = np.abs(predicted / measured - 1)
    return f"{100 * np.median(off):.1f} / {100 * np.quantile(off, 0.9):.1f}"


def _fits(published: Published, parameters: Parameters) -> list[str]:
    rows = [row for row in check_of(published, parameters).rows if row.kind == "fits"]
    if not rows:
        return ["No published configuration says whether it fits."]
    right = 1 - sum(row.error for row in rows) / len(rows)
    wrong = [f"{row.config} ({'fits' if row.published else 'does not fit'})" for row in rows if row.error]
    return [
        f"Fits or not, by the fit on all rows: {100 * right:.1f} % of {len(rows)} right ({100 * FITS:.0f} % asked: "
        f"{'met' if right >= FITS else 'missed'}). Wrong: {', '.join(wrong) or 'none'}."
    ]


def _left_out(published: Published) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for one in published.left_out:
        reasons.setdefault(one.reason, []).append(one.config)
    counted = Counter({reason: len(configs) for reason, configs in reasons.items()})
    lines = ["Configurations left out, for reasons that could be told before their figures were known:", ""]
    for reason, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"- {reason}: {count} ({_some(reasons[reason])})")
    return lines


def _some(configs: Sequence[str]) -> str:
    return ", ".join(sorted(configs)[:3]) + (", ..." if len(configs) > 3 else "")


def _errors(band: Band) -> str:
    return f"{100 * band.median:.1f} / {100 * band.p90:.1f}"


def _ends(band: Band) -> str:
    return f"{band.low:.2f} to {band.high:.2f}"


def _share(held: float | None) -> str:
    return "-" if held is None else f"{100 * held:.0f} %"
