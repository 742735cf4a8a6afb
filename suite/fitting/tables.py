"""The tables of docs/planner.md: errors of cross-validation beside plain alternatives, memory, scaling, PPO rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from suite.fitting.check import Check, fitted, run_check
from suite.fitting.entries import Entry
from suite.fitting.fit import Rows, fit
from suite.fitting.plain_memory import plain_tables
from suite.fitting.ppo_check import fit_ppo, ppo_table
from suite.fitting.published import Collection
from suite.fitting.published_scaling import scaling_table
from suite.fitting.simulated_scaling import curve_entries, simulated_table
from suite.fitting.validate import constant, leave_out, regression
from suite.fitting.zero_check import zero_entries, zero_table
from suite.planner.jobs import Column
from suite.planner.parameters import Parameters

#: Sources whose rows were measured and printed with their whole configuration; targets are about these.
QUALITY_A = (
    *("llm-foundry", "nvidia-dgxc", "megatron-sc21", "megatron-readme", "mt-nlg-530b", "korthikanti22"),
    *("nemo-24.07", "nemo-automodel", "torchtitan"),
)
#: Median and 90th percentile in percent that step times are asked to reach, by what was left out.
STEP_BARS: Mapping[str, tuple[float, float]] = {"model": (4, 12), "source": (7, 18)}
_DRAWS = 8
#: What is left out of the fit at once, by the column of the tables that it makes.
HELD_OUT: Mapping[str, Callable[[Entry], str]] = {
    "model": lambda entry: entry.model,
    "source": lambda entry: entry.source,
    "stack": lambda entry: entry.framework,
}


def timed(collection: Collection) -> list[Entry]:
    """Entries with a job and a step time."""
    return [entry for entry in collection.entries if entry.job and entry.step_seconds]


def held_out(entries: Sequence[Entry]) -> dict[str, Column]:
    """Seconds of every entry by a fit without its model, its source, its stack."""
    return {name: leave_out(entries, key) for name, key in HELD_OUT.items()}


def thirds(entries: Sequence[Entry]) -> str:
    """Errors with a third of all models left out at once: a sentence."""
    seconds, good = measured(entries)
    models = sorted({entry.model for entry in entries})
    found = []
    for draw in range(_DRAWS):
        out = set(np.random.default_rng(draw).permutation(models)[: len(models) // 3].tolist())
        left = np.array([entry.model in out for entry in entries])
        rows = Rows.of(entries)
        predicted = fit(rows.take(~left)).predict(rows.take(left))
        found.append(errors(predicted, seconds[left])[good[left]])
    together = np.concatenate(found)
    return (
        f"With a third of all models left out at once ({_DRAWS} random draws) the planner's median is "
        f"{100 * np.median(together):.1f} %, its 90th percentile {100 * np.quantile(together, 0.9):.1f} %."
    )


def measured(entries: Sequence[Entry]) -> tuple[Column, Column]:
    """Published seconds, and which entries are of quality A."""
    seconds = np.array([entry.step_seconds for entry in entries])
    return seconds, np.array([entry.source in QUALITY_A for entry in entries])


def all_tables(
    collection: Collection, files: Sequence[Path], parameters: Parameters, held: Mapping[str, Column]
) -> str:
    """Markdown, from the parameters as they are shipped."""
    made_of = parameters.provenance
    count = len(made_of.sources)
    first = f"Made by `make planner-fit` on {made_of.fitted} from {made_of.rows} step times of {count} sources."
    entries = timed(collection)
    made = [
        _alternatives(entries, held),
        _step_bars(entries, held),
        thirds(entries),
        _by_source(entries, fitted(parameters).predict(Rows.of(entries)), held),
        *row_tables(collection, files, parameters),
    ]
    return "\n\n".join([first, *made])


def row_tables(collection: Collection, files: Sequence[Path], parameters: Parameters) -> list[str]:
    """The tables that need no cross-validation of step times: memory, fits, scaling, ZeRO-3, PPO rates."""
    check = run_check(collection, parameters)
    return [
        _other(check),
        plain_tables(collection.entries, check),
        scaling_table(collection.entries, check),
        simulated_table(collection.entries, curve_entries(files[0].parent) if files else [], parameters),
        zero_table(zero_entries(files), parameters),
        ppo_table(fit_ppo(files, parameters)[1], parameters.ppo),
    ]


def errors(predicted: Column, seconds: Column) -> Column:
    """Absolute relative errors."""
    return np.abs(predicted / seconds - 1)


def _cell(predicted: Column, seconds: Column, rows: Column) -> str:
    found = errors(predicted, seconds)[rows]
    found = found[np.isfinite(found)]
    return f"{100 * np.median(found):.1f} / {100 * np.quantile(found, 0.9):.1f}" if len(found) else "-"


def _alternatives(entries: Sequence[Entry], held: Mapping[str, Column]) -> str:
    seconds, good = measured(entries)
    rivals = {
        "one MFU": constant(),
        "one MFU per device and precision": constant("device", "precision"),
        "one MFU per device, precision and stack": constant("device", "precision", "framework"),
        "log-linear regression": regression,
    }
    lines = [
        f"Absolute relative error of step time, median / 90th percentile in percent, on the {int(good.sum())} dense "
        "training rows of quality A, each predicted from all rows that are not of its",
        "",
        "| prediction | model | source | stack |",
        "|---|---|---|---|",
    ]
    for name, learn in rivals.items():
        cells = [_cell(leave_out(entries, key, learn), seconds, good) for key in HELD_OUT.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [f"**{_cell(held[name], seconds, good)}**" for name in HELD_OUT]
    return "\n".join([*lines, f"| **the planner** | {' | '.join(cells)} |"])


def _step_bars(entries: Sequence[Entry], held: Mapping[str, Column]) -> str:
    """Whether the planner's errors reach their bars: a sentence."""
    seconds, good = measured(entries)
    answers = []
    for name, bar in STEP_BARS.items():
        found = errors(held[name], seconds)[good]
        found = found[np.isfinite(found)]
        reached = [100 * np.quantile(found, edge) <= limit for edge, limit in zip((0.5, 0.9), bar, strict=True)]
        told = "reached" if all(reached) else "median reached, 90th missed" if reached[0] else "missed"
        answers.append(f"{bar[0]:g} / {bar[1]:g} % with the {name} left out ({told})")
    return f"Asked of the planner: {', '.join(answers)}."


def _by_source(entries: Sequence[Entry], own: Column, held: Mapping[str, Column]) -> str:
    seconds, _ = measured(entries)
    kinds = [f"{entry.source} | {entry.groups['framework|device|precision'].replace('|', ', ')}" for entry in entries]
    lines = [
        "The same by source (median / 90th percentile, percent):",
        "",
        "| source | stack, device, precision | rows | fitted | model left out | source left out | stack left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in sorted(set(kinds)):
        rows = np.array([one == kind for one in kinds])
        cells = [_cell(predicted, seconds, rows) for predicted in (own, *held.values())]
        lines.append(f"| {kind} | {int(rows.sum())} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _other(check: Check) -> str:
    memory, fit_ = check.overall.memory, check.overall.fit
    lines = [
        f"Peak memory ({memory.rows} measured rows, in the fit): median {100 * (memory.median or 0):.1f} %, "
        f"90th percentile {100 * (memory.p90 or 0):.1f} %. "
        f"Fits or not ({fit_.rows} rows): {100 * (fit_.accuracy or 0):.1f} % right; "
        f"{fit_.fits_as_too_large} that fit called too large, {fit_.too_large_as_fits} too large said to fit."
    ]
    wrong = [row for row in check.rows if row.kind == "fit" and row.error]
    lines += [f"- wrong: {row.source} {row.config} ({row.model or 'no model name'})" for row in wrong]
    return "\n".join(lines)
