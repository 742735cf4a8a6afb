"""`suite plan` over placements: what is searched, chosen and refused, and what holds of every search of layouts."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.backends.registry import find_backend
from suite.planner.ask import Question, question
from suite.planner.found import layouts as every_layout
from suite.planner.iteration import predict
from suite.planner.predict_manifest import predict_layout
from suite.planner.profiles import PROFILES
from suite.planner.search.answer import best_on, fewest_for, found_again
from suite.planner.search.request import Wishes, answer, make_search
from suite.planner.search.wishes import Pauses, Target, device_kinds, pauses_of, read_prices, target_of, week_of
from suite.planner.show import answer_lines
from suite.planner.simulate.explain import setting_of
from suite.planner.simulate.iteration import simulate
from suite.planner.space import Manner
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.grid import Column, grid_lines
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors, resolve_work

H100 = "H100-SXM-80GB"


def asked(size="Llama-3.1-8B", backend="megatron", device=H100, packing=True, **changes):
    work = find_workload("grpo").changed(changes)
    return question(find_size(size), work, device, backend, manner=Manner("vllm", False, packing))


def search(wishes=None, samples_on=16, **changes):
    return make_search([asked(**changes)], samples_on, wishes or Wishes(kinds=(H100,)), None)


@pytest.fixture(scope="module")
def found():
    one = search()
    return one, one.found(one.questions[0], [8, 16])


def test_an_arrangement_alone_takes_what_it_takes_among_all(found):
    _, columns = found
    picks = np.random.default_rng(0).choice(len(columns), 40, replace=False).tolist()
    told = predict(*columns.only(picks), columns.asked.parameters.values)
    assert told.seconds == pytest.approx(columns.told.seconds[picks])
    assert told.memory.total == pytest.approx(columns.told.memory.total[picks])


def test_both_placements_divide_the_devices_and_the_samples(found):
    one, columns = found
    split, t, g = columns.split, columns.pairs.t, columns.pairs.g
    trains, generates = columns.space.choices["devices"][t], columns.gen.devices[g]
    assert set(columns.devices) == {8.0, 16.0} and (trains + np.where(split, generates, 0) == columns.devices).all()
    assert (generates[~split] == columns.devices[~split]).all()
    assert set(columns.pairs.staleness[~split]) == {0.0} and set(columns.pairs.staleness[split]) == {0.0, 1.0}
    assert set(columns.samples) == {2048.0} and one.work.rollouts == 2048


def test_what_is_called_fitting_is_within_the_device(found):
    _, columns = found
    capacity, memory, fits = asked().hardware.memory_bytes, columns.told.memory, columns.told.fits
    assert (memory.total[fits] <= capacity).all() and (memory.engine[fits] <= capacity).all()
    assert not fits[memory.total > capacity].any() and 0 < fits.sum() < len(columns)


def test_the_fewest_devices_reach_the_target_and_fewer_do_not():
    one = search()
    result = fewest_for(one, Target(20.0, "20 samples/s"), 64)
    best = result.options[0]
    assert result.met and best.samples_per_second >= 20
    fewer = best_on(one, [count for count in (1, 2, 3, 4, 6, 8) if count < best.devices], 1)
    assert fewer.options[0].samples_per_second < 20
    sure = result.kinds[0].sure
    assert sure is None or sure.low >= 20
    band = asked().parameters.bands["iteration"].new
    assert best.low == pytest.approx(best.samples_per_second / band.high), "as wide as stacks that no fit had seen"


def test_the_cheapest_device_need_not_be_the_fewest():
    prices = read_prices(["H100=9", "A100-SXM-80GB=0.5"])
    wishes = Wishes(kinds=(H100, "A100-SXM-80GB"), objective="cost", prices=prices)
    result = fewest_for(make_search([asked()], 16, wishes, None), Target(5.0, "5 samples/s"), 64)
    first, second = result.kinds
    assert (first.device, second.device) == ("A100-SXM-80GB", H100)
    assert first.best.cost_per_hour < second.best.cost_per_hour and first.best.devices >= second.best.devices
    assert "yours" in result.prices
    with pytest.raises(UsageError, match="no price is known"):
        fewest_for(search(Wishes(kinds=(H100,), objective="cost")), Target(5.0, "5"), 8)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"placement": "apart"}, "auto, colocated or split"),
        ({"placement": "colocated", "staleness": 1}, "no sample grows stale"),
        ({"staleness": 5}, "0 to 1"),
        ({"devices": (0,)}, "1 to 16384"),
    ],
)
def test_wishes_that_contradict_each_other_are_refused_with_what_works(wishes, words):
    with pytest.raises(UsageError, match=words):
        search(Wishes(kinds=(H100,), **wishes))


def test_the_stacks_own_loop_has_no_devices_of_its_own():
    own = question(find_size("Llama-3.1-8B"), find_workload("grpo"), H100, "megatron")
    with pytest.raises(UsageError, match="--generation vllm"):
        make_search([own], 16, Wishes(kinds=(H100,), placement="split"), None)
    result = answer(make_search([own], 16, Wishes(kinds=(H100,), devices=(16,)), None), Wishes(devices=(16,)))
    assert {option.generation for option in result.options} == {"hf"} and result.options[0].phases["generate"] > 0


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (("50 samples/s", None, None), 50.0),
        (("50", None, None), 50.0),
        (("12000 tokens/s", None, None), 10.0),
        (("64 s/iteration", None, None), 32.0),
        ((None, "24h", 1350), 32.0),
    ],
)
def test_targets_are_rates_of_samples(given, rate):
    assert target_of(*given, samples=2048, sample_tokens=1200.0).samples_per_second == pytest.approx(rate)


def test_of_all_times_between_checkpoints_the_best_is_taken_and_the_answer_says_what_a_week_comes_to():
    pauses = Pauses(checkpoint=60, restart=600)
    wishes = Wishes(kinds=(H100,), devices=(16,), pauses=pauses)
    result = answer(search(wishes), wishes)
    assert result.week.samples == pytest.approx(result.week.goodput * result.options[0].samples_per_second * 7 * 86400)
    assert "% of a week is work" in "\n".join(answer_lines(result))
    week = week_of(result.options[0].model_copy(update={"devices": 16_384}), pauses)
    assert week.failure_seconds == pytest.approx(54 * 86400 / 419), "Llama 3's own devices and interruptions"

    def lost(interval):
        return 60 / interval + (interval / 2 + 600) / week.failure_seconds

    assert week.goodput == pytest.approx(1 - lost(week.checkpoint_seconds) - 600 / (7 * 86400))
    assert lost(week.checkpoint_seconds) < min(lost(week.checkpoint_seconds * factor) for factor in (0.9, 1.1))


@pytest.mark.parametrize("given", [(60, None), (None, 60), (0, 60), (60, 1e9)])
def test_a_checkpoint_without_a_restart_or_none_at_all_is_refused(given):
    with pytest.raises(UsageError, match="needs --checkpoint and --restart"):
        pauses_of(*given)


def test_another_kind_of_device_may_generate_and_has_its_own_price_memory_and_speed():
    def of(prices, **wished):
        wishes = Wishes(kinds=(H100,), devices=(16,), generation_device="L40S", prices=read_prices(prices), **wished)
        return answer(search(wishes), wishes)

    result = of(["H100=3", "L40S=1"])
    best = result.options[0]
    assert (best.placement, best.device, best.generation_device) == ("split", H100, "L40S")
    assert best.cost_per_hour == pytest.approx(3 * best.training_devices + best.generation_devices)
    assert best.cost_per_1000_samples == pytest.approx(1000 * best.cost_per_hour / 3600 / best.samples_per_second)
    assert best.generation_memory_bytes < 48 * 2**30 and best.label.endswith("on L40S")
    assert any("one kind of device" in note for note in result.notes)
    for words, prices, wished in (("of both kinds", ["H100=3"], {}), ("of their own", [], {"placement": "colocated"})):
        with pytest.raises(UsageError, match=words):
            of(prices, **wished)


def test_any_is_every_device_that_has_a_peak():
    kinds, notes = device_kinds(["any"])
    assert {H100, "A100-SXM-80GB", "MI300X", "B200"} <= set(kinds) and "MI250X-module" in notes[0]
    with pytest.raises(UsageError, match="did you mean"):
        device_kinds(["H100-SXM-80GBB"])


def test_the_simulation_of_an_arrangement_agrees_with_its_prediction_where_that_is_exact():
    """One length, and a place for every sample: else whole waves of samples take longer than the closed form has it."""
    one = search(Wishes(kinds=(H100,), placement="colocated"), lengths="fixed:1024", prompt_tokens=128, rollouts=64)
    exact = 0
    for option in best_on(one, [8], 6).options:
        columns, index = found_again(one, option)
        setting = setting_of(columns, index, drawn_slow=False)
        made = simulate(setting)
        assert sum(made.causes.values()) == pytest.approx(made.seconds)
        if setting.places >= len(setting.lengths[0]):
            exact += 1
            assert made.seconds == pytest.approx(option.seconds, rel=0.002)
        else:
            assert made.seconds > 0.99 * option.seconds
    assert exact


NO_TARGETS = [
    ("0 samples/s", None, None),
    ("5 s", None, None),
    (None, None, 3),
    ("9" * 99, None, None),
    (None, "24h", 0),
]


@pytest.mark.parametrize("given", [*NO_TARGETS, *("-1", "nan", "=3", "H100", "NoSuch=3", "H100=x", "1e3")])
def test_what_is_no_target_and_what_is_no_price_is_refused(given):
    with pytest.raises(UsageError):
        read_prices([given]) if isinstance(given, str) else target_of(*given, samples=2048, sample_tokens=1200.0)


NAMES = [f"{n} split 16+{n} async1, tp2 dp8 sp dist-opt packed, vllm 8 x tp{n}" for n in range(1, 4)]
LIMITS = ["generation: latency of launches and collectives", "generation: keys and values read", "none"]


@pytest.mark.parametrize("most", range(60, 140, 7))
def test_no_line_of_a_table_is_longer_than_the_terminal_and_no_word_is_lost(most):
    names, limits = Column("arrangement", NAMES, left=True), Column("limit", LIMITS, left=True)
    figures = [Column("gen s", ["54.0", "41.2", "41.2"], 6), Column("range", ["44.8 to 65.5"] * 3, 1)]
    lines = list(grid_lines([names, *figures, Column("devices", ["24", "32", "48"]), limits], most))
    assert max(map(len, lines)) <= most
    words = " ".join(lines).split()
    for text in (*NAMES, *LIMITS):
        assert all(words.count(word) >= text.split().count(word) for word in text.split())


GIB = 2**30


def with_memory(asked: Question, gib: float) -> Question:
    return replace(asked, hardware=replace(asked.hardware, memory_bytes=gib * GIB))


@cache
def grpo(backend: str) -> Question:
    work = find_workload("grpo").changed({"lengths": "fixed:512", "rollouts": 8})
    return question(find_size("1.3B"), work, H100, backend, manner=Manner("vllm", False, True))


@settings(max_examples=30)
@given(
    backend=st.sampled_from(sorted(PROFILES)),
    size=st.sampled_from(["1.3B", "6.7B"]),
    count=st.sampled_from([1, 2, 8]),
    gib=st.tuples(st.floats(8, 128), st.floats(8, 128)).map(sorted),
)
def test_more_memory_per_device_unfits_no_layout(backend, size, count, gib):
    asked = question(find_size(size), find_workload("trlx-ds-chat"), H100, backend)
    less, more = (every_layout(with_memory(asked, most), [count]).told for most in gib)
    assert len(less.fits) == len(more.fits) and not (less.fits & ~more.fits).any()
    if asked.manner.generation == "hf":
        assert less.seconds == pytest.approx(more.seconds), "memory that is not needed makes nothing faster"


@settings(max_examples=25)
@given(
    backend=st.sampled_from(["megatron", "deepspeed"]),
    counts=st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3),
    more=st.sets(st.sampled_from([1, 2, 4, 8, 16]), max_size=2),
)
def test_more_numbers_of_devices_to_choose_from_make_the_best_answer_no_slower(backend, counts, more):
    search = make_search([grpo(backend)], 4, Wishes(kinds=(H100,)), None)
    few, many = (best_on(search, sorted(each), 1) for each in (counts, counts | more))
    rates = [each.options[0].samples_per_second if each.options else 0.0 for each in (few, many)]
    assert rates[0] <= rates[1]
    assert many.considered >= few.considered
    front = [each.samples_per_second for each in many.front]
    assert front == sorted(front), "who takes more devices than another gets more for them"


def layouts(devices: int, backend: str) -> list[Layout]:
    """Every layout that can be written down of these settings, made without the search."""
    settings_of = find_backend(backend).settings
    ways = {
        "tensor": (1, 2, 4, 8),
        "pipeline": (1, 2, 4, 8),
        "zero_stage": (0, 1, 2, 3) if "zero_stage" in settings_of else (0,),
        "gather_for_generation": (False, True) if "gather_for_generation" in settings_of else (False,),
        "distributed_optimizer": (False, True),
        "recompute": ("none", "full"),
    }
    found = []
    for body in (dict(zip(ways, chosen, strict=True)) for chosen in product(*ways.values())):
        data, rest = divmod(devices, body["tensor"] * body["pipeline"])
        if rest == 0 and (body["zero_stage"] == 3 or not body["gather_for_generation"]):
            found.append(Layout(devices_per_node=devices, data=data, sequence_parallel=body["tensor"] > 1, **body))
    return found


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize(("backend", "size"), [("megatron", "6.7B"), ("megatron", "1.3B"), ("deepspeed", "6.7B")])
def test_the_best_layout_is_that_of_trying_every_one(backend, size, devices):
    shape, driver = find_size(size), find_backend(backend)
    work = find_workload("trlx-ds-chat").changed({"rollouts": 8, "micro_batch": 4})
    asked = question(shape, work, H100, backend)
    kept = replace(asked, profile=replace(asked.profile, offload_optimizer=False, offload_parameters=False))
    measure, tried = Measure(device="cuda", precision="bf16"), []
    for layout, micro in product(layouts(devices, backend), (1, 2, 4)):
        own = work.model_copy(update={"micro_batch": micro})
        if layout_errors(shape, own, layout) + driver.errors(shape, own, layout, measure):
            continue
        found = predict_layout(shape, own, resolve_work(shape, own, layout), layout, backend, H100)
        tried += [found["samples_per_second"]] if found["fits"] else []
    best = kept.plan([devices]).options
    assert bool(best) == bool(tried)
    if tried:
        assert best[0].samples_per_second == pytest.approx(max(tried))
