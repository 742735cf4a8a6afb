"""`make planner-fit`: parameters, error bands and the tables of docs/planner.md from published rows."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from suite.planner.check import Check, errors_of, run_check
from suite.planner.entries import Entry
from suite.planner.fit import Rows, fit
from suite.planner.jobs import Column
from suite.planner.memory_fit import fit_memory
from suite.planner.parameters import NAMES, Band, Parameters, Provenance, write_parameters
from suite.planner.plain_memory import plain_tables
from suite.planner.ppo_check import PPORow, ppo_rows
from suite.planner.published import Collection, csv_files, read_published
from suite.planner.published_scaling import scaling_table
from suite.planner.validate import constant, leave_out, regression

#: Sources whose rows were measured and printed with their whole configuration; targets are about these.
QUALITY_A = (
    *("llm-foundry", "nvidia-dgxc", "megatron-sc21", "megatron-readme", "mt-nlg-530b", "korthikanti22"),
    *("nemo-24.07", "nemo-automodel", "torchtitan"),
)
_BEGIN, _END = "<!-- tables: made by make planner-fit -->", "<!-- end of tables -->"


def timed(collection: Collection) -> list[Entry]:
    """Entries with a job and a step time."""
    return [entry for entry in collection.entries if entry.job and entry.step_seconds]


def main() -> None:
    """Fit, validate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, help="folder of CSV files in the published format")
    parser.add_argument("--out", type=Path, required=True, help="parameters file to write")
    parser.add_argument("--docs", type=Path, required=True, help="page whose tables are rewritten")
    parser.add_argument("--date", required=True, help="date that the fit carries")
    asked = parser.parse_args()
    files = csv_files([asked.published])
    parameters, tables = refit(read_published(files), asked.date)
    rates = ppo_rows(files, parameters)
    shares = [row.published / row.predicted for row in rates]
    if shares:
        spread = {
            "median": float(np.median(shares)),
            "low": min(shares),
            "high": max(shares),
            "rows": float(len(shares)),
        }
        parameters = parameters.model_copy(update={"ppo": spread})
    tables += "\n\n" + _ppo(rates)
    write_parameters(parameters, asked.out)
    page = asked.docs.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    asked.docs.write_text(f"{before}{_BEGIN}\n{tables}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")


def refit(collection: Collection, date: str) -> tuple[Parameters, str]:
    """Parameters fitted on every usable row, with error bands from cross-validation, and the tables as Markdown."""
    entries = timed(collection)
    seconds = np.array([entry.step_seconds for entry in entries])
    found = fit(Rows.of(entries))
    held = {
        "model": leave_out(entries, lambda entry: entry.model),
        "source": leave_out(entries, lambda entry: entry.source),
        "stack": leave_out(entries, lambda entry: entry.framework),
    }
    good = np.array([entry.source in QUALITY_A for entry in entries])
    parameters = Parameters(
        schema="suite/planner/1",
        provenance=Provenance(
            fitted=date,
            rows=len(entries),
            sources=dict(sorted(Counter(entry.source for entry in entries).items())),
            digest=collection.digest,
        ),
        values=dict(zip(NAMES, np.exp(found.vector).tolist(), strict=True)),
        effects={level: dict(groups) for level, groups in found.effects.items()},
        memory=fit_memory(collection.entries),
        bands={
            "known stack": _band(held["model"], seconds, good),
            "new stack": _band(held["stack"], seconds, good),
        },
    )
    check = run_check(collection, parameters)
    memory = check.overall.memory
    bands = {**parameters.bands, "memory": Band(median=memory.median or 0, p90=memory.p90 or 0, rows=memory.rows)}
    parameters = parameters.model_copy(update={"bands": bands})
    tables = [
        f"Made by `make planner-fit` on {date} from {len(entries)} step times of "
        f"{len(parameters.provenance.sources)} sources.",
        _alternatives(entries, seconds, good, held),
        _by_source(entries, seconds, found.predict(Rows.of(entries)), held),
        _other(check),
        plain_tables(collection.entries, check),
        scaling_table(collection.entries, check),
    ]
    return parameters, "\n\n".join(tables)


def _band(predicted: Column, seconds: Column, rows: Column) -> Band:
    errors = errors_of(_errors(predicted, seconds)[rows].tolist())
    return Band(median=errors.median or 0.0, p90=errors.p90 or 0.0, rows=errors.rows)


def _errors(predicted: Column, seconds: Column) -> Column:
    return np.abs(predicted / seconds - 1)


def _cell(predicted: Column, seconds: Column, rows: Column) -> str:
    errors = _errors(predicted, seconds)[rows]
    errors = errors[np.isfinite(errors)]
    return f"{100 * np.median(errors):.1f} / {100 * np.quantile(errors, 0.9):.1f}" if len(errors) else "-"


def _alternatives(entries: Sequence[Entry], seconds: Column, good: Column, held: dict[str, Column]) -> str:
    keys: dict[str, Callable[[Entry], str]] = {
        "model": lambda entry: entry.model,
        "source": lambda entry: entry.source,
        "stack": lambda entry: entry.framework,
    }
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
        cells = [_cell(leave_out(entries, key, learn), seconds, good) for key in keys.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [f"**{_cell(held[name], seconds, good)}**" for name in keys]
    return "\n".join([*lines, f"| **the planner** | {' | '.join(cells)} |"])


def _by_source(entries: Sequence[Entry], seconds: Column, fitted: Column, held: dict[str, Column]) -> str:
    kinds = [f"{entry.source} | {entry.groups['framework|device|precision'].replace('|', ', ')}" for entry in entries]
    lines = [
        "The same by source (median / 90th percentile, percent):",
        "",
        "| source | stack, device, precision | rows | fitted | model left out | source left out | stack left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in sorted(set(kinds)):
        rows = np.array([one == kind for one in kinds])
        cells = [_cell(predicted, seconds, rows) for predicted in (fitted, *held.values())]
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


def _ppo(rows: Sequence[PPORow]) -> str:
    lines = [
        "Whole PPO iterations, DeepSpeed-Chat's step 3 (generation and training), samples per second:",
        "",
        "| configuration | devices | published | predicted | published / predicted |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        share = row.published / row.predicted
        lines.append(f"| {row.config} | {row.devices} | {row.published:.3g} | {row.predicted:.3g} | {share:.2f} |")
    shares = [row.published / row.predicted for row in rows]
    if shares:
        lines += [
            "",
            f"Published over predicted: median {np.median(shares):.2f}, from {min(shares):.2f} to {max(shares):.2f}.",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
