"""`make planner-fit`: parameters, error bands and the tables of docs/planner.md and docs/arrangements.md.

`make planner-check` makes the tables again from the parameters that are shipped, and compares them with the pages.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from suite.fitting.check import errors_of, run_check
from suite.fitting.entries import Entry
from suite.fitting.fit import Rows, fit
from suite.fitting.memory_fit import fit_memory
from suite.fitting.own_runs import configurations
from suite.fitting.own_runs import tables as own_runs
from suite.fitting.ppo_check import fit_ppo
from suite.fitting.published import Collection, csv_files, read_published, rl_files
from suite.fitting.rl_bands import band_of
from suite.fitting.rl_held import hold_out
from suite.fitting.rl_rows import read_rl, rows_digest
from suite.fitting.rl_tables import refit_rl, rl_tables
from suite.fitting.small_to_large import sources
from suite.fitting.small_to_large import table as small_to_large
from suite.fitting.tables import all_tables, errors, held_out, measured, timed
from suite.planner.jobs import Column
from suite.planner.parameters import NAMES, Band, Parameters, Provenance, load_parameters, rounded, write_parameters
from suite.planner.rl_parameters import FILE as RL_FILE
from suite.planner.rl_parameters import RLBand, load_rl_parameters

_BEGIN, _END = "<!-- tables: made by make planner-fit -->", "<!-- end of tables -->"
_DIFFERENT = 3


def main() -> int:
    """Fit, validate, write; or make the tables again and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, help="folder of CSV files in the published format")
    parser.add_argument("--docs", type=Path, required=True, help="page with the tables")
    parser.add_argument("--arrangements", type=Path, required=True, help="page with the tables of small and large runs")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="results folders of runs on CPU cores")
    parser.add_argument("--out", type=Path, help="parameters file to write; without it nothing is written")
    parser.add_argument("--date", help="date that the fit carries")
    asked = parser.parse_args()
    files = csv_files([asked.published])
    collection = read_published(files)
    entries = timed(collection)
    held = held_out(entries)
    rl_rows, rl_left_out = read_rl(rl_files([asked.published]))
    digest = rows_digest(rl_rows)
    learning = "\n\n".join(
        ["\n".join(own_runs(configurations(asked.runs))), "\n".join(small_to_large(sources(entries)))]
    )
    if asked.out is None:
        shipped, rl = load_parameters(), load_rl_parameters()
        rl_held = hold_out(rl_rows, shipped, rl)
        made = "\n\n".join(
            [all_tables(collection, files, shipped, held), *rl_tables(rl_held, shipped, rl, rl_left_out)]
        )
        print(made, learning, sep="\n\n")
        same = shipped.provenance.digest == collection.digest and rl.provenance.digest == digest
        return max(_compared(made, asked.docs, same), _compared(learning, asked.arrangements, same))
    parameters = rounded(fit_ppo(files, rounded(refit(collection, entries, held, asked.date)))[0])
    write_parameters(parameters, asked.out)
    fitted_rl, rl_held = refit_rl(rl_rows, parameters, asked.date, digest)
    rl = rounded(fitted_rl.model_copy(update={"step_band": step_band(entries, held)}))
    write_parameters(rl, asked.out.with_name(RL_FILE))
    tables = [all_tables(collection, files, parameters, held), *rl_tables(rl_held, parameters, rl, rl_left_out)]
    for path, made in ((asked.docs, "\n\n".join(tables)), (asked.arrangements, learning)):
        path.write_text(with_tables(path.read_text(encoding="utf-8"), made), encoding="utf-8")
    return 0


def with_tables(page: str, tables: str) -> str:
    """The page with ``tables`` in place of its own."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{tables}\n{_END}{rest.partition(_END)[2]}"


def _compared(tables: str, path: Path, same_rows: bool) -> int:
    if not same_rows:
        print(f"\nnot compared with {path}: its tables are of other rows")
        return 0
    page = path.read_text(encoding="utf-8")
    same = with_tables(page, tables) == page
    print(f"\nthe tables of {path} {'are these' if same else 'differ from these: make planner-fit'}")
    return 0 if same else _DIFFERENT


def refit(collection: Collection, entries: Sequence[Entry], held: Mapping[str, Column], date: str) -> Parameters:
    """Parameters fitted on every usable row, with error bands from the predictions of rows that were held out."""
    found = fit(Rows.of(entries))
    seconds, good = measured(entries)
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
            "known stack": _band(errors(held["model"], seconds)[good]),
            "new stack": _band(errors(held["stack"], seconds)[good]),
        },
    )
    memory = [row.error for row in run_check(collection, parameters).rows if row.kind == "memory"]
    return parameters.model_copy(update={"bands": {**parameters.bands, "memory": _band(np.array(memory))}})


def step_band(entries: Sequence[Entry], held: Mapping[str, Column]) -> RLBand:
    """The 80 % band of training steps, from predictions without their model."""
    seconds, _ = measured(entries)
    known = np.isfinite(held["model"])
    return band_of(
        (seconds / held["model"])[known], [entry.model for entry, kept in zip(entries, known, strict=True) if kept]
    )


def _band(found: Column) -> Band:
    known = errors_of(found.tolist())
    return Band(median=known.median or 0.0, p90=known.p90 or 0.0, rows=known.rows)


if __name__ == "__main__":
    sys.exit(main())
