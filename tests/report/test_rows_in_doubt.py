"""Runs that failed or were disturbed, and rows whose seed, variance or clock sets them apart."""

from dataclasses import replace

import pytest

from suite.bundle.parts import Validity
from suite.report.compare import compare_entries
from suite.report.facts.entry import SUITE_CLOCK, Entry
from suite.report.facts.model import build
from suite.report.terminal import headline_rows
from suite.report.text.answer import as_lines
from suite.report.text.markdown import as_json, render
from suite.spec.manifest import Stopping
from suite.stats.intervals import log_rates, pooled_rate
from suite.stats.moderated import moderate
from tests.report import entries as made

REASON = "others used {} of the 2 CPUs of rank 0, of which the run needs 1"


def doubtful(entry: Entry, reason: str = REASON.format("1.52"), status: str = "suspect") -> Entry:
    validity = Validity(status=status, reasons=(reason,))
    return made.recorded(entry, validity=validity)


def slow(repeat: int, **asked: object) -> Entry:
    return doubtful(made.entry(repeat=repeat, rate=5.0, **asked))


def test_a_suspect_run_is_in_no_figure_unless_asked_for_and_told_beside_its_row() -> None:
    quiet = made.repeats(3)
    alone, with_it = build(quiet), build([*quiet, slow(4, peak_factor=3.0)])
    (row,) = with_it.rows
    assert row.samples_per_second == alone.rows[0].samples_per_second
    assert row.memory == alone.rows[0].memory
    assert (row.runs, row.runs_ok, row.runs_suspect, row.is_ranked) == (4, 4, 1, True)
    counts, why = with_it.caveats
    assert counts == "1 suspect or invalid run left out: R1 1 of 4"
    assert why.startswith("others used 1.52 of the 2") and why.endswith(": R1")
    assert "4 of 4, 1 suspect" in render(with_it, {})
    asked = build([*quiet, slow(4)], with_suspect=True)
    assert len(asked.rows[0].measured) == 4 and asked.rows[0].holds_suspect
    assert "counted, as asked for" in asked.caveats[0]


def test_a_row_of_suspect_runs_alone_keeps_its_figures_and_is_not_ranked() -> None:
    entries = [*made.repeats(5), *made.repeats(5, backend="megatron", rate=30.0)]
    entries += [slow(repeat, backend="trlx-deepspeed") for repeat in range(1, 6)]
    model = build(entries)
    by_backend = {row.backend: row for row in model.rows}
    assert by_backend["trlx-deepspeed"].samples_per_second is not None
    (group,) = model.ranking.groups
    assert {ranked.row.backend for ranked in group.places} == {"deepspeed", "megatron"}
    assert {cells["backend"]: cells["verdict"] for cells in headline_rows(model)}["trlx-deepspeed"] == "suspect"
    assert "1 row of suspect runs alone not ranked" in as_lines(model)[-1]
    asked = build(entries, with_suspect=True)
    assert len(asked.ranking.groups[0].places) == 3


def test_a_scaling_curve_has_no_suspect_point() -> None:
    entries = [*made.repeats(3), *made.repeats(3, ranks=2, rate=36.0)]
    assert build(entries).scaling
    assert not build([*entries[:3], *map(doubtful, entries[3:])]).scaling


def test_an_invalid_run_is_in_no_figure_even_if_suspect_ones_are_asked_for() -> None:
    broken = doubtful(made.entry(repeat=2), "rank 0 tells 9 CPU seconds of its process in 1 s", "invalid")
    (row,) = build([made.entry(), broken], with_suspect=True).rows
    assert (len(row.measured), row.runs_invalid) == (1, 1)
    (row,) = build([broken], with_suspect=True).rows
    assert (row.measured, row.without_rate) == ((), "invalid")


def measured_with_suspect(entry: Entry) -> Entry:
    """As `suite run --until 3% --with-suspect` measures it."""
    rule = Stopping(precision=0.03, least=3, most=5, iterations="fixed", with_suspect=True)
    run = entry.manifest.run.model_copy(update={"stopping": rule})
    return replace(entry, manifest=entry.manifest.model_copy(update={"run": run}))


def test_what_was_measured_with_suspect_runs_every_view_counts_with_them() -> None:
    runs = [*made.repeats(3), *(slow(repeat) for repeat in (4, 5))]
    others = [slow(repeat, backend="megatron") for repeat in (1, 2, 3)]
    asked = build([*runs, *others], with_suspect=True)
    later = build([measured_with_suspect(one) for one in (*runs, *others)])
    assert as_json(later) == as_json(asked) and len(later.ranking.groups) == 1
    assert not build([*runs, *others]).ranking.groups
    before, after = ([measured_with_suspect(slow(repeat)) for repeat in numbers] for numbers in ((1, 2, 3), (4, 5, 6)))
    assert not compare_entries(before, after).unjudged
    assert {one.lack for one in compare_entries(before, [slow(4), slow(5)]).unjudged} == {"suspect"}


def test_the_rows_of_a_folder_share_the_variance_of_their_runs() -> None:
    rows = build(made.matrix()).rows
    prior = moderate([log_rates(row.measured) for row in rows])
    assert prior is not None and {row.prior for row in rows} == {prior}
    for row in rows:
        assert row.samples_per_second == pooled_rate(row.measured, prior)
        assert row.tokens_per_second.high == pytest.approx(32 * row.samples_per_second.high)
        per_device = row.tokens_per_second_per_device
        assert per_device.low * row.ranks == pytest.approx(row.tokens_per_second.low)


def test_machines_share_nothing() -> None:
    enough = made.matrix(sizes=("1M", "3M", "8M"), ranks=(1,))
    assert {row.prior is None for row in build(enough).rows} == {False}
    other = {**made.CPU_FACTS, "cpu": {"model": "Another CPU", "cores": 2, "threads": 2}}
    rows = build([*enough, *made.repeats(3, size="25M", facts=other)]).rows
    assert {(row.size == "25M", row.prior is None) for row in rows} == {(True, True), (False, False)}


def test_a_row_with_a_slow_run_is_told_as_two_modes() -> None:
    slow = made.entry(repeat=5, rate=14)
    model = build([*made.repeats(4, rate=20), slow, *made.repeats(5, rate=26, backend="megatron")])
    found = {row.backend: row.two_modes for row in model.rows}
    assert found["megatron"] is None
    assert found["deepspeed"].slow == 1
    assert found["deepspeed"].loss == pytest.approx(0.3, abs=0.03)
    assert "Two modes: some runs are slower" in render(model, {})


def test_rows_that_differ_in_their_seed_alone_do_not_compete() -> None:
    both = [made.repeats(3, backend=backend, seed=seed) for seed in (1, 2) for backend in ("deepspeed", "megatron")]
    model = build([one for each in both for one in each])
    assert sorted(group.best.manifest.measure.seed for group in model.ranking.groups) == [1, 2]
    for group in model.ranking.groups:
        assert {place.row.backend for place in group.places} == {"deepspeed", "megatron"}
        assert len({place.row.manifest.measure.seed for place in group.places}) == 1
    alone = build([*both[0], *both[2]]).ranking
    assert alone.groups == () and len(alone.apart) == 2, "one backend is not ranked against itself"


FACTS = {**made.GPU_FACTS, "clock": "the trainer's own log", "experimental": "never run"}
SUITES = made.repeats(5, rate=20, device="cuda", kind="trainer", backend="trl-grpo")
NEMO_RL = made.repeats(5, rate=26, device="cuda", kind="trainer", backend="nemo-rl", facts=FACTS)
SKYRL = made.repeats(5, rate=30, device="cuda", kind="trainer", backend="skyrl", facts=FACTS)


def test_they_are_in_no_ranking_with_rows_that_the_suite_timed_nor_with_another_trainers() -> None:
    model = build([*SUITES, *NEMO_RL, *SKYRL])
    assert model.ranking.groups == () and model.beside == ()
    clocks = {"trl-grpo": SUITE_CLOCK, "nemo-rl": "nemo-rl's log", "skyrl": "skyrl's log"}
    assert {row.backend: row.setting.clock for row in model.rows} == clocks
    engines = made.repeats(5, rate=20, device="cuda")
    assert build([*engines, *NEMO_RL]).beside == () and build([*engines, *SUITES]).beside != ()


def test_rows_of_one_trainers_log_are_ranked_among_themselves_and_caveats_name_them() -> None:
    recomputed = NEMO_RL[0].manifest.layout.model_copy(update={"recompute": "full"})
    slower = made.repeats(5, rate=20, device="cuda", kind="trainer", backend="nemo-rl", facts=FACTS, layout=recomputed)
    model = build([*SUITES, *NEMO_RL, *slower])
    assert len(model.ranking.groups) == 1
    assert "clock `nemo-rl's log`" in render(model, ())
    assert any("(nemo-rl): seconds and counts are those of the trainer's own log" in line for line in model.caveats)
    assert any(line.startswith("nemo-rl is experimental (never run)") for line in model.caveats)
    assert not any("trl-grpo" in line for line in model.caveats)
