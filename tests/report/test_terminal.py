"""What `suite report` and `suite compare` print: it fits, names what it abbreviates, and says no more than it shows."""

from collections.abc import Callable, Sequence

import pytest

from suite.report.compare import compare_entries
from suite.report.comparing.gate import hold_to
from suite.report.comparing.model import Unjudged
from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build
from suite.report.terminal import headline_rows, print_headline
from suite.report.text.comparison import MOST_LINES, print_comparison
from tests.report import entries as made
from tests.report.conftest import Columns
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


Printed = Callable[..., list[str]]


@pytest.fixture
def printed(columns: Columns) -> Printed:
    """Lines of a comparison on a terminal of so many columns; None: into a pipe."""

    def lines(
        count: int | None, before: Sequence[Entry], after: Sequence[Entry], gate: float | None = None
    ) -> list[str]:
        result, outcome = compare_entries(before, after), None
        if gate is not None:
            result, outcome = hold_to(result, gate)
        return columns(count, lambda: print_comparison(result, outcome))

    return lines


def both_matrices(facts: dict | None = None) -> tuple[list[Entry], list[Entry]]:
    before = made.matrix(sizes=("1M", "8M"), runs=3)
    after = []
    for one in before:
        asked = {"backend": one.manifest.backend.name, "size": one.manifest.size.name, "ranks": one.record.run.ranks}
        rate = one.record.throughput.samples_per_second.value * (0.8 if asked["size"] == "8M" else 1.0)
        after.append(made.entry(repeat=one.record.run.repeat + 10, rate=rate, facts=facts, **asked))
    return before, after


@pytest.mark.parametrize("width", [80, 100])
def test_a_comparison_with_everything_in_it_fits_the_terminal(width: int, printed: Printed) -> None:
    other = {**made.CPU_FACTS, "cpu": {"model": "Another CPU with a long name 9000", "cores": 4, "threads": 8}}
    before, after = both_matrices(other)
    after += [*side(2, size="25M"), made.failed(size="3M", ranks=2)]
    lines = printed(width, [*before, *side(2, size="3M", ranks=2)], after, 0.95)
    assert max(map(len, lines)) <= width and "…" not in "\n".join(lines)
    text = " ".join(lines)
    assert lines[0].startswith("across machines: CPU Example CPU 3000 -> Another CPU")
    assert "8 rows compared: 4 slower" in text
    assert "1 row with failed runs:" in text and "1 row without partner:" in text
    assert lines[-1].startswith("doubtful: what would be said of")


def test_rows_that_look_alike_are_told_apart(printed: Printed) -> None:
    lines = printed(80, [*side(3), *side(3, iterations=20)], [*side(3, 11), *side(3, 11, iterations=20)])
    text = " ".join(lines)
    assert max(map(len, lines)) <= 80 and "iterations=6" in text and "iterations=20" in text


def test_in_a_pipe_no_line_is_broken(printed: Printed) -> None:
    lines = printed(None, *both_matrices())
    assert lines[0] == "like with like" and any(line.startswith("environment: equal in all") for line in lines)
    assert any(len(line) > 120 for line in lines)
    assert not any(line.startswith("not shown at") for line in lines)


def test_many_bundles_in_trouble_are_counted_and_only_some_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = [Unjudged(lack="altered", side="after", name=f"runs/{n}", detail="it differs") for n in range(48)]
    print_comparison(compare_entries(side(2), side(2, 11), left_out=trouble))
    lines = [line for line in capsys.readouterr().out.splitlines() if "runs/" in line or "48" in line or "43" in line]
    assert lines[0] == "48 bundles with records that are not what their events give:"
    assert len(lines) == 1 + MOST_LINES + 1 and "43 more" in lines[-1]
