"""`make planner-fit`: constants and bands from published rows, and the generated page of their scores.

Without ``--out`` it makes the page again from the rows and says whether it differs.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from suite.planner.parameters import PRIORS_FILE, Parameters, Provenance, load_parameters, load_priors
from suite.planner.work import ARCHITECTURES
from suite.spec.catalogue import data_root
from tools.planner.iteration_fit import Table
from tools.planner.nested import Scores, fit_all, score
from tools.planner.page import excerpt_of, page_of, with_excerpt
from tools.planner.rows import Published, read

_DIFFERENT = 3


def main() -> int:
    """Fit, score, write; or score again and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, nargs="+", help="folders of CSV files in the published format")
    parser.add_argument("--page", type=Path, required=True, help="page with the scores")
    parser.add_argument("--excerpt", type=Path, required=True, help="page that has the errors by kind in it")
    parser.add_argument("--out", type=Path, help="parameters file to write; without it nothing is written")
    parser.add_argument("--date", help="date that the fit carries")
    asked = parser.parse_args()
    published = read(asked.published)
    scores = score(published)
    date = asked.date or load_parameters().provenance.fitted
    parameters = rounded(refit(published, scores, date))
    page = page_of(published, scores, parameters)
    if asked.out is None:
        print(page)
        same = asked.page.read_text(encoding="utf-8") == page
        print(f"\n{asked.page} {'is this page' if same else 'differs: make planner-fit'}")
        return 0 if same else _DIFFERENT
    write_parameters(parameters, asked.out)
    asked.page.write_text(page, encoding="utf-8")
    buying = asked.excerpt.read_text(encoding="utf-8")
    asked.excerpt.write_text(with_excerpt(buying, excerpt_of(parameters)), encoding="utf-8")
    return 0


def refit(published: Published, scores: Scores, date: str) -> Parameters:
    """Everything fitted on every usable row, with bands from rows that no fit had seen."""
    if date < load_priors().frozen:
        raise SystemExit(f"the priors stand from {load_priors().frozen} on: a fit of {date} did not begin with them")
    model = fit_all(published)
    counts = Counter([entry.source for entry in published.timed] + [row.source for row in published.rows])
    return Parameters(
        schema="suite/planner/2",
        provenance=Provenance(
            fitted=date,
            rows=sum(counts.values()),
            sources=dict(sorted(counts.items())),
            digest=published.digest,
            priors=priors_digest(),
        ),
        values=dict(model.values),
        effects={level: dict(groups) for level, groups in model.effects.items()},
        bands=scores.bands,
        stacks=tuple(sorted(_stacks(published))),
    )


def priors_digest() -> str:
    """SHA-256 of the priors' file."""
    return hashlib.sha256((data_root() / PRIORS_FILE).read_bytes()).hexdigest()


def _stacks(published: Published) -> set[str]:
    """Stack and device generation of every iteration that was measured whole."""
    table = Table.of(published.rows)
    kinds = {(each.row, each.kind) for each in table.measured}
    codes = np.asarray(table.work.jobs.architecture).astype(int)
    return {
        f"{row.stack}|{ARCHITECTURES[codes[place]]}"
        for place, row in enumerate(table.rows)
        if (place, "iteration") in kinds
    }


def write_parameters(parameters: Parameters, path: Path) -> None:
    """Sorted and rounded to six digits, so that the same rows give the same bytes."""
    body = _rounded(parameters.model_dump(mode="json", by_alias=True))
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rounded(parameters: Parameters) -> Parameters:
    """The parameters as they are read again from their file."""
    return Parameters.model_validate(_rounded(parameters.model_dump(mode="json", by_alias=True)))


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


if __name__ == "__main__":
    sys.exit(main())
