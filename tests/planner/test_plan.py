"""Plans: layouts multiply, fit and are ranked; predictions move as physics says; misses name what is missing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.ask import device_counts, device_range, fewest_devices, largest_micro_batch, question
from suite.planner.curves import curves, look_at
from suite.planner.found import layouts
from suite.planner.hardware import hardware_of
from suite.planner.held import trained_weights
from suite.planner.iteration import TRAINING_LIMITS
from suite.planner.memory import GIB, host_memory
from suite.planner.option import alike, options
from suite.planner.profiles import PROFILES
from suite.planner.training import SWAP_BYTES
from suite.spec.base import UsageError
from suite.spec.catalogue import devices, find_size, find_workload
from suite.spec.manifest import Work
from suite.spec.workload import Critic
from suite.theory.memory import memory_floor
from suite.theory.parameters import parameter_count
from tests.planner.test_modern import table
from tests.theory.shapes import parameters_of, shapes, workloads
from tools.planner.entries import published_hardware

BACKENDS = sorted(PROFILES)
A100 = hardware_of(devices()["A100-SXM-80GB"])


def ask(size="13B", backend="megatron", device="A100-80GB", **changes):
    workload = find_workload("trlx-ds-chat")
    return question(find_size(size), workload.model_copy(update=changes), device, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 12, 32, 16384])
def test_options_multiply_fit_and_come_best_first(backend, count):
    plan = ask("6.7B", backend).plan([count])
    rates = [option.samples_per_second for option in plan.options]
    assert rates == sorted(rates, reverse=True)
    for option in plan.options:
        assert option.layout.ranks == option.devices == count
        assert option.memory_bytes <= option.capacity_bytes
        assert option.tight == (option.memory_bytes * plan.memory_band.high > option.capacity_bytes)
        assert option.memory_bytes == pytest.approx(sum(option.memory.values()), abs=20)
        assert option.seconds == pytest.approx(sum(option.phases.values()))
        assert option.phases["train"] == pytest.approx(sum(option.training.values()), rel=1e-6)
        assert 0 < option.mfu < 1


@settings(max_examples=30)
@given(st.data(), st.sampled_from(BACKENDS), st.sampled_from([1, 2, 4, 8, 16]))
def test_predicted_memory_is_never_below_the_floor(data, backend, count):
    shape = data.draw(shapes())
    workload = data.draw(workloads(shape.layers))
    if workload.trainable_layers is None and data.draw(st.booleans()):
        workload = workload.model_copy(update={"lora_rank": data.draw(st.integers(1, 8))})
    if data.draw(st.booleans()):
        workload = workload.model_copy(update={"critic": Critic(layers=2, hidden=16, ffn=32, heads=2)})
    profile = PROFILES[backend]
    asked = replace(ask(), shape=shape, workload=workload, profile=profile, hardware=A100)
    found = layouts(asked, [count])
    space, total = found.space, found.told.memory.total
    for index in range(len(total)):
        layout = space.layout(index, 8)
        replica, micro = int(space.choices["rollouts"][index]), int(space.choices["micro_batch"][index])
        step = replica // workload.optimizer_steps
        work = Work(
            global_rollouts=replica * layout.data, replica_rollouts=replica, replica_batch=step, micro_batch=micro
        )
        assert total[index] > memory_floor(shape, workload, work, layout, "bf16").bytes


def test_offloading_takes_host_memory_as_deepspeed_counts_it():
    work = find_workload("trlx-ds-chat")
    space, _ = table(ask("13B", "deepspeed"), 8)
    whole, choices = host_memory(space.work), space.choices
    _, trained = parameters_of(find_size("13B"), work)
    states, weights = choices["offload_optimizer"] > 0, choices["offload_parameters"] > 0
    assert whole[~states].max() == 0
    largest = 4 * 8 * max(5120 * 20480, 50257 * 5120)
    for stage, expected in {1: 18 * trained + largest, 2: 20 * trained + largest, 3: 18 * trained}.items():
        # the vocabulary is padded to a multiple of 128: a little more than the model's own parameters
        assert whole[states & ~weights & (choices["zero_stage"] == stage)] == pytest.approx(expected, rel=1e-4)
    reference = parameter_count(find_size("13B")).total
    assert whole[weights] == pytest.approx(20 * trained + 2 * reference, rel=1e-3)
    node = next(option for option in ask("66B", "deepspeed").plan([32]).options if option.layout.offload_optimizer)
    assert node.layout.nodes == 4
    assert node.layout.zero_stage == 3
    assert node.host_memory_bytes == pytest.approx(18 * parameters_of(find_size("66B"), work)[1] / 4, rel=1e-4)


def test_megatrons_offloaded_optimizer_leaves_fp32_weights_and_gradients_on_the_device():
    asked = ask("6.7B", "megatron")
    space, predicted = table(asked, 1)
    rows = (space.choices["micro_batch"] == 4) & (space.choices["recompute"] == 3)
    offloads = space.choices["offload_optimizer"]
    host, device = (int(np.flatnonzero(rows & (offloads == offload))[0]) for offload in (1, 0))
    _, trained = parameters_of(find_size("6.7B"), find_workload("trlx-ds-chat"))
    for row, optimizer in ((host, 4), (device, 12)):
        assert predicted.memory.parts["optimizer states"][row] == pytest.approx(optimizer * trained, rel=1e-3)
        assert predicted.memory.parts["gradients"][row] >= 4 * trained
    on_host = host_memory(space.work)
    assert on_host[host] == pytest.approx(16 * trained, rel=1e-3) and on_host[device] == 0
    # fp32 gradients go down and fp32 weights come up, 4 bytes each at 24 GB/s, beside the update on the host
    assert predicted.training["optimizer"][host] > trained * 8 / 24e9
    offered = asked.plan([2], most=64).options
    assert {"dp2 dist-opt offload-opt", "tp2 sp dist-opt offload-opt"} <= {option.label for option in offered}


def test_candidates_with_one_prediction_are_one_option_that_names_the_others():
    found = layouts(ask("1.3B", "deepspeed"), [8])
    first, second = found.ranked("throughput")[:2].tolist()
    one, other = options(found, alike(found, [first, first, second], 8), None)
    assert one.twins == [one.label] and not other.twins and other.label != one.label


def test_a_miss_says_by_how_much_and_what_takes_the_room():
    plan = ask("66B", "deepspeed").plan([32])
    assert plan.options
    miss = plan.misses[0]
    assert miss.samples_per_second > plan.options[0].samples_per_second
    assert f"misses by {miss.missing_bytes / GIB:.1f} GiB per device" in miss.text
    assert miss.largest_part in miss.text


def test_the_largest_micro_batch_fits_and_its_double_does_not():
    asked = ask("13B", "deepspeed")
    for label, micro in largest_micro_batch(asked, 8).items():
        assert micro >= 1
        doubled = ask("13B", "deepspeed", micro_batch=2 * micro, rollouts=max(16, 2 * micro)).plan([8], most=64)
        assert not any(option.label == label and option.micro_batch == 2 * micro for option in doubled.options)


def test_every_part_of_training_counts_for_a_limit():
    known = {part for parts in TRAINING_LIMITS.values() for part in parts}
    for backend in BACKENDS:
        work = find_workload("ds-chat-step3") if backend == "deepspeed" else find_workload("trlx-ds-chat")
        plan = question(find_size("13B"), work, "A100-80GB", backend).plan([32])
        assert {part for option in plan.options for part in option.training} <= known


def test_the_fewest_devices_fit_and_on_fewer_the_nearest_is_named():
    asked = ask("66B")
    fewest = fewest_devices(asked)
    assert asked.plan([fewest]).options
    for plan in (asked.plan([count]) for count in device_counts() if count < fewest):
        assert not plan.options
        assert plan.nearest is None or plan.nearest.memory_bytes > plan.nearest.capacity_bytes


def test_each_objective_has_its_own_best():
    asked, counts = ask("13B"), [8, 16, 32, 64]
    assert asked.plan(counts, "throughput").options[0].devices == 64
    costs = [option.cost_per_1000_samples for option in asked.plan(counts, "cost", price=2.0).options]
    assert costs == sorted(costs)
    latencies = [option.seconds for option in asked.plan(counts, "latency", most=50).options]
    assert latencies[0] == min(latencies)


def curve(asked, counts):
    points = curves(look_at(asked), counts, asked.workload, "a")
    return [[point for point in points if point.scaling == kind] for kind in ("weak", "strong")]


def test_weak_scaling_keeps_the_rate_per_device_and_strong_scaling_loses_it_until_the_batch_ends():
    weak, strong = curve(ask("13B"), [8, 64, 512])
    assert weak[-1].efficiency > 0.8 and strong[-1].efficiency < 0.5
    assert all(point.limit for point in weak + strong)
    last = curve(ask("1.3B", "deepspeed", rollouts=4), [1, 2, 64])[1][-1]
    assert last.best is None and last.limit == "global batch too small"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ask(device="A100-81GB"), "no device"),
        (lambda: ask(device="A100"), ".*".join(device for device in devices() if device.startswith("A100"))),
        (lambda: ask(backend="megatrom"), "did you mean 'megatron'"),
        (lambda: ask().plan([20000]), "1 to 16384"),
        (lambda: ask(trainable_layers=99), "99 trainable layers"),
        (lambda: ask(prompt_tokens=5000), "positions"),
        (lambda: device_range("8"), "is a range such as"),
        (lambda: device_range("8..4"), "goes from"),
    ],
)
def test_what_cannot_be_planned_is_one_clear_line(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_a_short_name_means_the_device_that_is_no_card():
    short = {"H100": "H100-SXM-80GB", "h200": "H200-141GB", "A100 PCIe 40GB": "A100-PCIe-40GB"}
    assert {name: ask("1.3B", device=name).hardware.name for name in short} == short


def test_every_device_of_the_catalogue_can_be_planned_and_no_other():
    assert published_hardware("TPU v5p", 95) is None and published_hardware("", None) is None
    assert {ask("1.3B", "megatron", name).plan([8]).device for name in devices()} == set(devices())


def test_what_a_name_says_of_power_and_memory_counts_and_a_bridge_between_two_cards_is_no_link_of_a_node():
    limited = published_hardware("H100 SXM 96GB HBM2e 500W", 96)
    assert limited.power_share == pytest.approx(500 / 700)
    assert limited.memory_bandwidth < devices()["H100-SXM-80GB"].memory_bytes_per_second
    cards = {"A100-SXM": (300e9, 25e9), "A100-PCIe": (32e9, 25e9), "H100-PCIe": (64e9, 50e9), "V100": (150e9, 6.25e9)}
    for name, rates in cards.items():
        hardware = published_hardware(name, None)
        assert (hardware.link, hardware.network) == rates


def test_the_reference_of_trlx_nemo_takes_longer_than_scoring_by_the_swap_and_its_casts():
    """Tensor parallelism divides the swap: the policy's 2 bytes out, the reference's 4 in, and 2 back."""
    options = ask("6.7B", "trlx-nemo").plan([8], most=64).options
    whole = SWAP_BYTES * parameter_count(find_size("6.7B")).total / 24e9
    for one in options:
        more = one.phases["reference"] - one.phases["score"]
        assert whole < more * one.layout.tensor < 2 * whole, "casts are a few passes over the weights"
    assert len({one.layout.tensor for one in options}) > 2


def test_only_what_trains_is_swapped():
    size = find_size("6.7B")
    work = find_workload("trlx-ds-chat")
    half = work.model_copy(update={"trainable_layers": 16})
    assert trained_weights(size, work) == parameter_count(size).total
    assert trained_weights(size, half) == 16 * parameter_count(size).per_layer + parameter_count(size).final_norm


def test_the_fp32_reference_counts_in_the_memory_of_its_phase():
    """With everything recomputed its pass is the fullest: 4 bytes a parameter, 2 in other phases."""
    options = ask("6.7B", "trlx-nemo").plan([8], most=64).options
    option = next(one for one in options if one.label == "dp8 dist-opt recompute")
    assert option.memory["reference"] == pytest.approx(4 * parameter_count(find_size("6.7B")).total, rel=1e-9)


def test_host_memory_is_stated_for_a_replica():
    (note,) = [note for note in ask("6.7B", "trlx-nemo").plan([8], most=64).notes if "host memory" in note]
    assert "40 GB for each data parallel replica" in note, "6 bytes for each of 6.66e9 parameters; eight replicas: 320"
    assert not [note for note in ask("6.7B").plan([8], most=64).notes if "host memory" in note]
