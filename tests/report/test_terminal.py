"""What `suite report` and `suite compare` print: it fits, names what it abbreviates, and says no more than it shows."""

import pytest

from suite.report.compare import compare_entries
from suite.report.comparing.model import Unjudged
from suite.report.facts.model import ReportModel, build
from suite.report.terminal import headline_rows, print_headline
from suite.report.text.comparison import MOST_LINES, print_comparison
from tests.report import entries as made
from tests.report.reports import TRLX
from tests.report.test_comparing import side


def engines_and_trainer() -> ReportModel:
    return build([*made.matrix(), *(one for ranks in (1, 2) for one in made.repeats(3, ranks=ranks, **TRLX))])


@pytest.mark.parametrize("model", [build(made.matrix()), engines_and_trainer()], ids=["engines", "trainer"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_headline_fits_a_terminal_a_line_per_row_and_no_word_is_cut(model, width, columns):
    lines = columns(width, lambda: print_headline(model))
    assert max(map(len, lines)) <= width and "…" not in "\n".join(lines)
    for row in headline_rows(model):
        identity = " ".join((row["size"], row["ranks"], row["backend"], row["layout"]))
        assert any(" ".join(line.split()).startswith(identity) and row["samples/s [95 %]"] in line for line in lines)


def test_rows_that_only_their_launcher_tells_apart_are_told_apart() -> None:
    slurm = [made.started(one, launcher="slurm", id=f"{one.record.run.id}-slurm") for one in made.repeats(3)]
    rows = headline_rows(build([*made.repeats(3), *slurm]))
    assert len({tuple(row.items()) for row in rows}) == len(rows) == 2
    assert all("launcher=" in row["variant"] for row in rows)
    assert "variant" not in headline_rows(build(made.repeats(3)))[0]


def test_many_bundles_in_trouble_are_counted_and_only_some_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = [Unjudged(lack="altered", side="after", name=f"runs/{n}", detail="it differs") for n in range(48)]
    print_comparison(compare_entries(side(2), side(2, 11), left_out=trouble))
    lines = [line for line in capsys.readouterr().out.splitlines() if "runs/" in line or "48" in line or "43" in line]
    assert lines[0] == "48 bundles with records that are not what their events give:"
    assert len(lines) == 1 + MOST_LINES + 1 and "43 more" in lines[-1]
