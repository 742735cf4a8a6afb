"""The RL model's tables of docs/planner.md: errors of rows kept back beside the bars, bands, and what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from suite.fitting.published import LeftOut
from suite.fitting.rl_bands import bands_of
from suite.fitting.rl_check import rl_predictions
from suite.fitting.rl_fit import Table, fit_rl, predictions
from suite.fitting.rl_held import HELD_OUT, Held, configuration, family, hold_out
from suite.fitting.rl_rows import RLRow
from suite.planner.jobs import Column
from suite.planner.parameters import Parameters, Provenance
from suite.planner.rl_parameters import RLBand, RLParameters

#: Median and 90th percentile in percent that a prediction of rows kept back is asked to reach.
BARS: Mapping[str, tuple[float, float]] = {
    "iteration": (15, 35),
    "generation": (15, 35),
    "trainer": (8, 20),
    "memory": (8, 20),
}
SYNC_FACTOR, SYNC_SHARE, FIT_SHARE = 1.5, 0.80, 0.97
BAND_BAR = (0.75, 0.85)
_TITLES = {
    "iteration": "whole iterations",
    "generation": "generation",
    "trainer": "trainer steps (prime-rl)",
    "training": "training phases",
    "scoring": "log-probabilities",
    "sync": "weight synchronisation",
    "memory": "peak memory",
}


def refit_rl(rows: Sequence[RLRow], parameters: Parameters, date: str, digest: str) -> tuple[RLParameters, Held]:
    """Parameters fitted on every usable row, with bands from the predictions of rows that were held out."""
    empty = RLParameters(
        schema="suite/planner-rl/1",
        provenance=Provenance(
            fitted=date,
            rows=len(rows),
            sources=dict(sorted(Counter(row.source for row in rows).items())),
            digest=digest,
        ),
        values={},
        effects={},
        bands={},
    )
    fitted = fit_rl(rows, parameters, empty)
    held = hold_out(rows, parameters, empty)
    known = bands_of(held.table, held.by["fifth"], [configuration(row) for row in rows])
    unknown = bands_of(held.table, held.by["model"], [family(row.model) for row in rows])
    return fitted.model_copy(update={"bands": known, "new_model_bands": unknown}), held


def rl_tables(held: Held, parameters: Parameters, rl: RLParameters, left_out: Sequence[LeftOut]) -> list[str]:
    """Markdown: bars, errors by source, bands, rows left out."""
    own = predictions(held.table, parameters, rl)
    return [
        _bars(held, parameters, rl),
        _by_source(held, own),
        _band_table(rl.bands, rl.new_model_bands, rl.step_band),
        _left_out(left_out),
    ]


def _group(table: Table, index: int) -> str:
    each = table.measured[index]
    return "trainer" if each.metric == "train_step_time" else each.kind


def _picked(held: Held, group: str) -> Column:
    return np.array([_group(held.table, index) == group for index in range(len(held.table.measured))])


def _errors(held: Held, predicted: Column, rows: Column) -> Column:
    values = np.array([each.value for each in held.table.measured])
    found = np.abs(predicted[rows] / values[rows] - 1)
    return found[np.isfinite(found)]


def _cell(found: Column) -> str:
    return f"{100 * np.median(found):.1f} / {100 * np.quantile(found, 0.9):.1f}" if len(found) else "-"


def _bars(held: Held, parameters: Parameters, rl: RLParameters) -> str:
    lines = [
        "RL rows kept back: absolute relative error, median / 90th percentile in percent, each predicted by a fit that "
        "has not seen its fifth of the configurations (drawn by their names; reruns together), its model, its "
        "source, its stack. Reached: with a fifth kept back; with the model left out:",
        "",
        "| what | rows | fifth | model | source | stack | bar | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group, title in _TITLES.items():
        rows = _picked(held, group)
        if not rows.any() or group == "sync":
            continue
        cells = [_cell(_errors(held, held.by[name].held, rows)) for name in HELD_OUT]
        bar = BARS.get(group)
        answers = [_answer(_errors(held, held.by[name].held, rows), bar) for name in ("fifth", "model") if bar]
        reached = "; ".join(answers) or "no bar"
        asked = f"{bar[0]:g} / {bar[1]:g}" if bar else "-"
        lines.append(f"| {title} | {int(rows.sum())} | {' | '.join(cells)} | {asked} | {reached} |")
    rows = _picked(held, "sync")
    if rows.any():
        values = np.array([each.value for each in held.table.measured])[rows]
        shares = []
        for name in HELD_OUT:
            ratio = held.by[name].held[rows] / values
            shares.append(float(np.mean(np.abs(np.log(ratio)) <= np.log(SYNC_FACTOR))))
        cells = [f"{100 * share:.0f} %" for share in shares]
        reached = "; ".join("met" if share >= SYNC_SHARE else "not met" for share in shares[:2])
        lines.append(
            f"| weight synchronisation, within a factor {SYNC_FACTOR:g} | {int(rows.sum())} | {' | '.join(cells)} "
            f"| {100 * SYNC_SHARE:.0f} % | {reached} |"
        )
    fits = [each for each in rl_predictions(held.table.rows, parameters, rl) if each.kind == "fits"]
    if fits:
        right = 1 - sum(each.error for each in fits) / len(fits)
        answer = "met" if right >= FIT_SHARE else "not met"
        wrong = ", ".join(each.config for each in fits if each.error)
        lines += [
            f"| fits or not (in the fit) | {len(fits)} | {100 * right:.1f} % | | | | {100 * FIT_SHARE:.0f} % "
            f"| {answer} |"
        ]
        lines += ["", f"Wrong about fitting: {wrong or 'none'}."]
    return "\n".join(lines)


def _answer(found: Column, bar: tuple[float, float]) -> str:
    if not len(found):
        return "not measured"
    good = 100 * np.median(found) <= bar[0], 100 * np.quantile(found, 0.9) <= bar[1]
    if all(good):
        return "met"
    return "not met" if not any(good) else "median met, 90th not" if good[0] else "90th met, median not"


def _by_source(held: Held, own: Column) -> str:
    table = held.table
    names = [
        f"{table.rows[each.row].source} | {table.rows[each.row].stack} | {_TITLES[_group(table, index)]}"
        for index, each in enumerate(table.measured)
    ]
    lines = [
        "RL rows by source (median / 90th percentile, percent):",
        "",
        "| source | stack | what | rows | fitted | fifth | model | source | stack |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(set(names)):
        rows = np.array([one == name for one in names])
        cells = [_cell(_errors(held, predicted, rows)) for predicted in (own, *(held.by[key].held for key in HELD_OUT))]
        lines.append(f"| {name} | {int(rows.sum())} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _band_table(bands: Mapping[str, RLBand], wide: Mapping[str, RLBand], step: RLBand | None) -> str:
    lines = [
        "80 % bands: measured over predicted, from configurations kept back by fifths. Held: the share of rows inside "
        "a band of the other fifths, whose fits have not seen those rows either; in brackets what chance "
        "leaves open: the share of so many configurations that lies inside in four of five draws if the band is "
        "right. The last columns are the same of models left out whole:",
        "",
        "| what | rows | configurations | from | to | held | new model: models | from | to | held |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, band in bands.items():
        other = wide.get(kind)
        last = _band_cells(other) if other else "- | - | - | -"
        lines.append(f"| {_TITLES.get(kind, kind)} | {band.rows} | {_band_cells(band)} | {last} |")
    if step is not None:
        lines.append(f"| training steps (planner.md) | {step.rows} | - | - | - | - | {_band_cells(step)} |")
    for named, found in (("", bands), (" of models left out", wide)):
        whole = [band for band in found.values() if band.held is not None]
        if whole:
            inside = sum(band.rows * (band.held or 0) for band in whole) / sum(band.rows for band in whole)
            answer = "met" if BAND_BAR[0] <= inside <= BAND_BAR[1] else "not met"
            lines += ["", f"All kinds{named} together: {100 * inside:.0f} % held (75 to 85 % asked: {answer})."]
    return "\n".join(lines)


def _band_cells(band: RLBand) -> str:
    from scipy.stats import binom

    low, high = (100 * end / band.groups for end in binom.interval(0.8, band.groups, 0.8))
    held = f"{_share(band.held)} ({low:.0f} to {high:.0f})" if band.held is not None else "-"
    return f"{band.groups} | {band.low:.2f} | {band.high:.2f} | {held}"


def _share(held: float | None) -> str:
    return "-" if held is None else f"{100 * held:.0f} %"


def _left_out(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return "No RL configuration was left out."
    reasons: dict[str, list[str]] = {}
    for each in left_out:
        reasons.setdefault(each.reason, []).append(each.config)
    lines = ["RL configurations left out, and why:", ""]
    for reason, configs in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(sorted(configs)[:4]) + (", ..." if len(configs) > 4 else "")
        lines.append(f"- {reason}: {len(configs)} ({shown})")
    return "\n".join(lines)
