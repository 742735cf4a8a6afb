"""Records of asynchronous trainers: periods, how old samples were and who worked, and what such a bundle cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle.derive import derive
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import verify
from suite.spec.layout import Layout
from tests.bundle.recorded import of_kind, ranks_of
from tests.bundle.tampering import change
from tests.synthetic import driver_events, period_of, synthetic_manifest, write_bundle

AHEAD = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1, staleness=2)
IN_TURN = AHEAD.model_copy(update={"staleness": 0})
Event = dict[str, Any]
Edit = Callable[[Event], object]


def bundle(root: Path, edit: Edit | None = None, layout: Layout = AHEAD, rank: int = 0) -> Bundle:
    """A run of 2 s a period; every iteration event of ``rank`` is edited before it is written."""
    manifest = synthetic_manifest(backend="openrlhf", kind="trainer", layout=layout)
    ranks = ranks_of(manifest, _seconds, rules=3)
    for event in of_kind(ranks[rank], "iteration") if edit else ():
        edit(event)
    return Bundle(write_bundle(root, manifest, ranks, driver_events(manifest, "ok")))


def _seconds(iteration: int, rank: int) -> float:
    """No two ranks leave a barrier at the same microsecond."""
    return 2.0 + 0.01 * (iteration % 3) + 1e-5 * rank


def recorded(root: Path, edit: Edit | None = None, **options: Any) -> Record:
    return derive(bundle(root, edit, **options))


def mixed(event: Event) -> None:
    """A third of the samples of every second period are of the newest weights, and one is two publications old."""
    if event["iteration"] % 2:
        event["asynchronous"]["staleness"] = {"0": 4, "1": 7, "2": 1}


def telling(**fields: Any) -> Edit:
    return lambda event: event["asynchronous"].update(fields)


def roles(**ranks: int) -> Edit:
    return telling(roles={name: {"ranks": count, "busy_seconds": 0.5} for name, count in ranks.items()})


def test_a_period_is_an_iteration_and_its_phases_are_those_of_the_side_that_trains(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    assert record.status == "ok", record.failure
    seconds, rates, phases = record.iterations.seconds[2:], record.throughput, record.phases
    assert rates.samples_per_second.value == pytest.approx(12 * len(seconds) / sum(seconds)), "what was consumed"
    assert rates.samples_per_second.low < rates.samples_per_second.value
    assert rates.tokens_per_second_per_device.value == pytest.approx(rates.tokens_per_second.value / 3)
    assert phases.train.seconds == pytest.approx(0.6 * 2.01, rel=0.01)
    assert {phase.share for phase in (phases.generate, phases.train, phases.sync, phases.other)} == {None}
    assert phases.generate.tokens_per_second is None, "what is waited for is no rate of generation"
    assert phases.train.tokens_per_second > 0


def test_each_role_has_what_it_worked_and_what_it_was_idle(tmp_path: Path) -> None:
    overlap = recorded(tmp_path).overlap
    generation, training = overlap.roles["generation"], overlap.roles["training"]
    assert (generation.ranks, training.ranks) == (1, 2)
    assert (generation.busy_share, generation.idle_share) == pytest.approx((0.8, 0.2), abs=1e-4)
    assert (training.busy_share, training.idle_share) == pytest.approx((0.7, 0.3), abs=1e-4)
    assert training.busy_seconds == pytest.approx(2 * 0.7 * 2.01, rel=0.01), "of all of its ranks"
    assert overlap.generation_busy_seconds == pytest.approx(0.8 * 2.01, rel=0.01)
    assert overlap.exposed_generate_seconds == pytest.approx(0.1 * 2.01, rel=0.01)
    assert overlap.sides["training"].ranks == 2
    assert overlap.sides["training"].busy_seconds == pytest.approx(0.7 * 2.01, rel=0.01), "of one of its ranks"
    assert overlap.sides["generation"].waiting_seconds == pytest.approx(0.2 * 2.01, rel=0.01)


def test_roles_apart_share_the_side_that_trains(tmp_path: Path) -> None:
    def apart(event: Event) -> None:
        event["asynchronous"]["roles"] = {
            name: {"ranks": 1, "busy_seconds": busy * event["seconds"]}
            for name, busy in (("generation", 0.5), ("actor", 0.9), ("critic", 0.3))
        }

    overlap = recorded(tmp_path, apart).overlap
    assert {name: role.busy_share for name, role in overlap.roles.items()} == pytest.approx(
        {"generation": 0.5, "actor": 0.9, "critic": 0.3}, abs=1e-4
    )
    assert overlap.sides["training"].busy_seconds == pytest.approx(0.6 * 2.01, rel=0.01)


def test_staleness_is_a_share_of_the_consumed_samples_and_its_greatest(tmp_path: Path) -> None:
    record = recorded(tmp_path / "even")
    assert (record.staleness, record.overlap.staleness) == (1, {"1": 1.0})
    made = bundle(tmp_path / "mixed", mixed)
    record = derive(made)
    assert record.staleness == 2
    assert record.overlap.staleness == pytest.approx({"0": 4 / 24, "1": 19 / 24, "2": 1 / 24})
    made.write_record(record)
    assert verify(made).status == "equal", "an honest bundle of periods has no finding"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda event: event.pop("asynchronous"), "not told how old its samples were"),
        (telling(staleness={"1": 11}), "told of 11 samples, and 12 were consumed"),
        (telling(staleness={}), "told of 0 samples"),
        (telling(staleness={"1": 11, "3": 1}), "3 publications old, the layout allows 2"),
        (roles(generation=2, training=1), "1 for generation of 3"),
        (roles(generation=1, training=1), "1 for generation of 3"),
        (roles(actor=2, critic=1), "1 for generation of 3"),
        (roles(generation=1), "1 for generation of 3"),
        (lambda event: event["iteration"] < 4 or roles(generation=1, actor=1, critic=1)(event), "the iteration before"),
    ],
    ids=["nothing", "fewer", "none", "older", "swapped", "missing", "unnamed", "alone", "changed"],
)
def test_what_was_not_asked_for_has_no_rate(tmp_path: Path, edit: Edit, says: str) -> None:
    record = recorded(tmp_path, edit)
    assert (record.status, record.counts, record.throughput) == ("failed", None, None)
    assert any(says in note for note in record.notes), record.notes
    assert "\n" not in "".join(record.notes)


def test_ranks_that_tell_other_periods_have_no_rate_and_those_that_tell_the_same_have(tmp_path: Path) -> None:
    asked = bundle(tmp_path).manifest()

    def same(event: Event) -> None:
        first = _seconds(event["iteration"], 0)
        event["asynchronous"] = period_of(asked, event["iteration"], first)

    assert recorded(tmp_path / "same", same, rank=2).throughput is not None

    def another(event: Event) -> None:
        same(event)
        event["asynchronous"]["staleness"] = {"0": 12}

    record = recorded(tmp_path / "other", another, rank=2)
    assert record.throughput is None
    assert any("rank 2 tells other staleness" in note for note in record.notes)


def test_a_synchronous_layout_cannot_hide_an_asynchronous_run(tmp_path: Path) -> None:
    told = {"publication": 2, "staleness": {"1": 12}, "roles": {"generation": {"ranks": 1, "busy_seconds": 1.0}}}
    record = recorded(tmp_path, lambda event: event.update(asynchronous=told), layout=IN_TURN)
    assert record.throughput is None
    assert any("a staleness of 0" in note for note in record.notes)


def test_a_trainer_that_generates_in_turn_on_devices_of_its_own_has_phases_of_one_whole(tmp_path: Path) -> None:
    """Every rank of a led trainer tells all phases; nothing overlaps."""
    record = recorded(tmp_path, layout=IN_TURN)
    assert record.phases.generate.share == pytest.approx(0.5)
    assert record.phases.generate.tokens_per_second is not None
    assert record.overlap.generation_busy_seconds == pytest.approx(record.phases.generate.seconds, rel=1e-3)
    assert set(record.overlap.sides["generation"].phases) == {"generate"}
    assert (record.overlap.roles, record.overlap.staleness, record.staleness) == (None, None, None)


def busy(more: float) -> Edit:
    """All of the time of both ranks, and more."""

    return lambda event: event["asynchronous"]["roles"]["training"].update(busy_seconds=2 * event["seconds"] + more)


def test_a_role_may_work_all_the_time(tmp_path: Path) -> None:
    assert verify(bundle(tmp_path, busy(0.0))).findings == ()


def published(number: Callable[[int], int]) -> Edit:
    return lambda event: event["asynchronous"].update(publication=number(event["iteration"]))


@pytest.mark.parametrize(
    ("edit", "name", "says"),
    [
        (busy(0.1), "role-times", ("training worked for", "2 ranks had")),
        (published(lambda _: 1), "periods", ("ends with publication 1, the one before with 1",)),
        (published(lambda iteration: 2 + 2 * iteration), "periods", ("publication 4, the one before with 2",)),
        (published(lambda iteration: 99 - iteration), "periods", ("the one before with 99",)),
        (published(lambda iteration: iteration), "periods", ("iteration 0 ends with no publication",)),
    ],
    ids=["a role that worked longer than there was", "none", "two at once", "backwards", "before the first"],
)
def test_a_period_that_is_none_is_found(tmp_path: Path, edit: Edit, name: str, says: tuple[str, ...]) -> None:
    made = bundle(tmp_path, edit)
    made.write_record(derive(made))
    result = verify(made)
    assert result.status == "inconsistent", result
    (one,) = result.findings
    assert one.name == name and one.leaves_out and all(words in one.text for words in says)
    assert len(one.text) < 400 and "\n" not in one.text


def test_a_period_that_does_not_end_with_a_publication_is_found(tmp_path: Path) -> None:
    def swap(event: Event) -> None:
        if event.get("phase") in ("sync", "train"):
            event["phase"] = {"sync": "train", "train": "sync"}[event["phase"]]

    made = bundle(tmp_path)
    change(made.path, swap)
    assert [(one.name, "ends with train" in one.text) for one in verify(made).findings] == [("periods", True)]


def test_time_between_periods_in_which_generation_goes_on_is_found(tmp_path: Path) -> None:
    def shorten(event: Event) -> None:
        if event["kind"] == "iteration":
            event["seconds"] -= 0.2
        elif event["kind"] == "phase":
            event["seconds"] *= 0.8

    made = bundle(tmp_path)
    change(made.path, shorten)
    assert "event-times" in {one.name for one in verify(made).findings}


ROLE = {"ranks": 1, "busy_seconds": 0.1}
NO_ROLES = ({}, {"Generation\n": ROLE}, {f"role-{number}": ROLE for number in range(65)})
NO_ROLE = (1, {**ROLE, "ranks": 0}, {**ROLE, "busy_seconds": -0.1}, {**ROLE, "busy_seconds": 1e300}, {"ranks": 1})
NO_AGES = ("01", "-1", "1e3", "9" * 400, "\u0661")


@pytest.mark.parametrize(
    "value",
    [
        *([], {}, {"publication": -1}, {"publication": True}),
        *({"staleness": staleness} for staleness in ([12], {"1": -12}, {"1": 12.0})),
        *({"staleness": {age: 12}} for age in NO_AGES),
        *({"roles": roles} for roles in NO_ROLES),
        *({"roles": {"generation": role}} for role in NO_ROLE),
    ],
)
def test_a_period_told_in_other_words_is_damage(tmp_path: Path, value: Any) -> None:
    def edit(event: Event) -> None:
        event["asynchronous"] = {**event["asynchronous"], **value} if isinstance(value, dict) and value else value

    made = bundle(tmp_path, edit)
    with pytest.raises(
        DamagedBundle, match=r"^events/rank-0.jsonl line \d+: iteration event: asynchronous is"
    ) as caught:
        derive(made)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


HISTOGRAM = st.dictionaries(st.integers(0, 4).map(str), st.integers(0, 12), max_size=4)
ROLES = st.dictionaries(
    st.sampled_from(("generation", "training", "critic")),
    st.fixed_dictionaries({"ranks": st.integers(1, 3), "busy_seconds": st.floats(0, 1e9)}),
    min_size=1,
)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1 << 60), HISTOGRAM, ROLES), min_size=3, max_size=3))
def test_any_periods_that_are_taken_give_a_record(tmp_path_factory: Any, told: list[tuple]) -> None:
    def edit(event: Event) -> None:
        publication, staleness, found = told[event["iteration"] % 3]
        event["asynchronous"] = {"publication": publication, "staleness": staleness, "roles": found}

    made = bundle(tmp_path_factory.mktemp("any"), edit)
    made.write_record(derive(made))
    assert verify(made).status in ("equal", "inconsistent")
