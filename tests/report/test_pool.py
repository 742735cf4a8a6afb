from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from suite.bundle.record import Estimate, Wait
from suite.report.facts.environment_differences import environment_differences
from suite.report.facts.model import build
from suite.report.text.markdown import render
from suite.stats.intervals import RunSeconds, pooled_mean, pooled_rate
from tests.report import entries as made

GPU_A = made.GPU_FACTS
GPU_B = {**GPU_A, "device": {**GPU_A["device"], "name": "NVIDIA A100-SXM4-80GB"}}


def test_the_repeats_of_one_manifest_are_one_row_with_their_pooled_rate() -> None:
    entries = made.repeats(3)
    (row,) = build(entries).rows
    runs = [RunSeconds(8, one.record.iterations.seconds[2:]) for one in entries]
    assert row.samples_per_second == pooled_rate(runs)
    assert (row.runs, row.runs_ok) == (3, 3)
    assert row.tokens_per_second.value == pytest.approx(32 * row.samples_per_second.value)


def test_warm_up_iterations_do_not_count() -> None:
    (row,) = build([made.entry()]).rows
    assert [len(run.seconds) for run in row.measured] == [6]
    assert row.iteration_seconds == pytest.approx(statistics.mean(made.entry().record.iterations.seconds[2:]))


def test_only_runs_that_ended_well_count_but_all_are_told() -> None:
    alone = build([made.entry()]).rows[0]
    (row,) = build([made.entry(), made.failed(repeat=2), made.failed("interrupted", repeat=3)]).rows
    assert (row.runs, row.runs_ok) == (3, 1)
    assert row.samples_per_second == alone.samples_per_second
    assert len(row.run_ids) == 3


def test_a_row_names_a_run_that_ended_well_to_reproduce_it() -> None:
    (row,) = build([made.failed(repeat=1), made.entry(repeat=2)]).rows
    assert row.path.endswith("-r2")


def test_per_device_is_the_rate_over_all_ranks() -> None:
    (row,) = build([made.entry(ranks=4)]).rows
    assert row.tokens_per_second_per_device.value == pytest.approx(row.tokens_per_second.value / 4)


def test_the_peak_is_the_greatest_over_runs_and_efficiency_follows_from_it() -> None:
    (row,) = build([made.entry(peak_factor=2.0), made.entry(repeat=2, peak_factor=3.0)]).rows
    assert row.memory.peak_bytes == 3 * row.memory.floor_bytes
    assert row.memory.efficiency == pytest.approx(1 / 3)
    assert (row.memory.peak_is, row.memory.floor_phase) == ("resident", "train")


def test_on_a_gpu_the_peak_is_what_the_allocator_reserved() -> None:
    (row,) = build([made.entry(device="cuda", size="1.3B"), made.entry(repeat=2, device="cuda", size="1.3B")]).rows
    assert row.memory.peak_is == "reserved"
    assert row.memory.allocated_bytes < row.memory.peak_bytes < row.memory.device_bytes


def test_what_a_run_does_not_know_of_the_device_is_not_told_of_the_row() -> None:
    first, second = made.entry(device="cuda"), made.entry(repeat=2, device="cuda")
    deaf = second.record.memory.model_copy(update={"peak_device_bytes": None})
    second = replace(second, record=second.record.model_copy(update={"memory": deaf}))
    (row,) = build([first, second]).rows
    assert row.memory.device_bytes is None and row.memory.allocated_bytes is not None
    (row,) = build([made.entry()]).rows
    assert (row.memory.allocated_bytes, row.memory.device_bytes) == (None, None)


def test_unknown_utilisation_stays_unknown_and_says_why() -> None:
    on_cpu, on_gpu = build([made.entry()]).rows[0], build([made.entry(device="cuda")]).rows[0]
    assert (on_cpu.mfu, on_cpu.hfu, on_cpu.mbu) == (None, None, None)
    assert "CPU" in on_cpu.unknown_utilisation
    assert on_gpu.mfu == pytest.approx(0.38)
    assert on_gpu.unknown_utilisation is None


def test_hfu_with_causal_attention_stands_beside_the_other_where_it_is_known() -> None:
    entries = made.repeats(2, device="cuda")
    text = render(build(entries), {})
    assert "as PaLM does" in text and "MFU / HFU / MBU %" in text and "HFU causal" not in text
    told = []
    for one in entries:
        compute = one.record.compute.model_copy(update={"hfu_causal": 0.35, "hardware_flops_causal": 0.9e12})
        told.append(replace(one, record=one.record.model_copy(update={"compute": compute})))
    (row,) = build(told).rows
    assert (row.hfu, row.hfu_causal) == (pytest.approx(0.41), pytest.approx(0.35))
    text = render(build(told), {})
    assert "MFU / HFU / HFU causal / MBU %" in text and "38 / 41 / 35 / 22" in text and "HFU causal counts" in text
    assert "HFU" not in render(build([made.entry()]), {}).split("## Conventions")[1]


def test_ranks_that_wait_are_idle_for_a_share_of_the_iteration() -> None:
    entries = made.repeats(2, ranks=2, spread=0)
    assert build(entries).rows[0].idle is None
    waits = [
        {"generate": Wait(longest_seconds=0.02, mean_seconds=seconds), "train": Wait(longest_seconds=0, mean_seconds=0)}
        for seconds in (0.01, 0.03)
    ]
    told = [
        replace(one, record=one.record.model_copy(update={"waits": wait}))
        for one, wait in zip(entries, waits, strict=True)
    ]
    (row,) = build(told).rows
    assert row.idle.seconds == pytest.approx(0.02)
    assert row.idle.share == pytest.approx(0.02 / row.iteration_seconds)
    assert f"{100 * row.idle.share:.1f}, most in generate" in render(build(told), {})
    assert build([told[0], entries[1]]).rows[0].idle is None, "one of the runs does not tell"
    assert "idle %" not in render(build(entries), {})


def test_phase_shares_add_up_to_one() -> None:
    (row,) = build(made.repeats(3)).rows
    assert sum(phase.share for phase in row.phases) == pytest.approx(1)
    assert [phase.name for phase in row.phases] == list(made.SHARES)


def test_every_phase_has_the_interval_of_its_runs() -> None:
    entries = made.repeats(3, spread=0.03)
    (row,) = build(entries).rows
    train = next(phase for phase in row.phases if phase.name == "train")
    seconds = [one.record.phases.train.seconds for one in entries]
    expected = pooled_mean(seconds, [6, 6, 6])
    assert (train.interval, train.by_run) == (expected, tuple(seconds))
    assert train.low < min(seconds) < max(seconds) < train.high, "Student's t pays for three runs"


def test_a_phase_of_one_run_has_the_interval_of_its_iterations_where_its_record_has_it() -> None:
    alone = made.entry()
    (row,) = build([alone]).rows
    assert {(phase.low, phase.high) for phase in row.phases} == {(None, None)}
    told = {"train": Estimate(value=row.phases[4].seconds, low=0.1, high=0.2)}
    (row,) = build([replace(alone, record=alone.record.model_copy(update={"phase_intervals": told}))]).rows
    assert [(phase.low, phase.high) for phase in row.phases if phase.name == "train"] == [(0.1, 0.2)]
    assert {phase.low for phase in row.phases if phase.name != "train"} == {None}


def test_the_peaks_of_runs_have_an_interval_and_the_greatest_is_still_the_peak() -> None:
    entries = [made.entry(repeat=one, peak_factor=factor) for one, factor in enumerate((2.0, 2.2, 2.1), 1)]
    (row,) = build(entries).rows
    peaks = [one.record.memory.peak_allocated_bytes for one in entries]
    assert row.memory.run_peak_bytes == pooled_mean(peaks, [1, 1, 1])
    assert row.memory.peak_bytes == max(peaks)
    assert "mean of runs [95 %]" in render(build(entries), {})
    assert "mean of runs [95 %]" not in render(build(entries[:1]), {})


def test_each_phase_has_the_peaks_of_its_runs_against_its_own_floor() -> None:
    entries = [made.entry(repeat=one, device="cuda", peak_factor=factor) for one, factor in enumerate((2.0, 2.2), 1)]
    (row,) = build(entries).rows
    peaks = [one.record.memory.by_phase["train"].peak_allocated_bytes for one in entries]
    (train,) = row.memory.by_phase
    assert (train.name, train.peak_bytes, train.run_peak_bytes) == ("train", max(peaks), pooled_mean(peaks, [1, 1]))
    assert train.efficiency == entries[0].record.memory.floor.by_phase["train"] / max(peaks)
    blind = entries[0].record.memory.model_copy(update={"by_phase": {}})
    entries[0] = replace(entries[0], record=entries[0].record.model_copy(update={"memory": blind}))
    assert build(entries).rows[0].memory.by_phase == ()


def test_equal_manifests_on_unlike_hardware_are_not_pooled() -> None:
    model = build([made.entry(device="cuda", facts=GPU_A), made.entry(device="cuda", repeat=2, facts=GPU_B)])
    assert [row.setting.machine for row in model.rows] == ["A", "B"]
    assert len(model.machines) == 2
    assert not model.ranking.groups


def test_a_run_that_died_early_belongs_to_the_machine_of_its_repeats() -> None:
    died = made.failed("image_missing", repeat=2)
    died = made.Entry(died.manifest, died.record.model_copy(update={"environment": made.no_environment()}), died.path)
    (row,) = build([made.entry(), died]).rows
    assert (row.runs, row.setting.machine) == (2, "A")


def test_rows_that_look_alike_say_what_sets_them_apart() -> None:
    model = build([made.entry(iterations=6), made.entry(iterations=9), made.entry(backend="megatron")])
    assert sorted(row.variant for row in model.rows) == ["", "iterations=6", "iterations=9"]


def test_rows_are_in_the_order_of_their_sizes_whatever_the_order_of_the_entries() -> None:
    entries = made.matrix(sizes=("66B", "1M", "13B"), runs=1)
    forward, backward = build(entries), build(entries[::-1])
    assert list(dict.fromkeys(row.size for row in forward.rows)) == ["1M", "13B", "66B"]
    assert forward == backward


IMAGE = "sha256:" + "4" * 64


def in_place(one: made.Entry, launcher: str | None, image: str | None, digest: str | None = None) -> made.Entry:
    """The same run, started elsewhere."""
    driver = {"image": {"id": image, "digest": digest}, "engine": {"name": "Docker Engine", "version": "26.1"}}
    environment = one.record.environment.model_copy(update={"driver": driver if image else None})
    run = one.record.run.model_copy(update={"launcher": launcher})
    record = one.record.model_copy(update={"run": run, "environment": environment})
    return made.Entry(one.manifest, record, f"{launcher}/{one.path}")


def test_runs_in_a_container_and_beside_it_are_rows_of_their_own() -> None:
    local = [in_place(one, "local", None) for one in made.repeats(3)]
    docker = [in_place(one, "docker", IMAGE) for one in made.repeats(3)]
    rows = build(local + docker).rows
    assert [(row.runs, row.variant) for row in rows] == [
        (3, f"image={IMAGE[:19]} launcher=docker"),
        (3, "image=none launcher=local"),
    ]
    assert len({row.series_hash for row in rows}) == 2, "no scaling curve goes from one to the other"
    text = render(build(local + docker), {})
    assert text.count("manifest.json --launcher docker") == 1 and text.count("suite rerun") == 2


def test_another_image_is_another_row_and_its_digest_says_so() -> None:
    other = "registry/suite-engines@sha256:" + "5" * 64
    entries = [in_place(made.entry(), "docker", IMAGE), in_place(made.entry(repeat=2), "docker", other)]
    assert {row.variant for row in build(entries).rows} == {
        f"image={IMAGE[:19]}",
        f"image=registry/suite-engines@sha256:{'5' * 12}",
    }


def test_an_image_that_was_pushed_between_two_runs_is_one_image() -> None:
    pushed = "registry/suite-engines@" + "sha256:" + "5" * 64
    before = in_place(made.entry(), "docker", IMAGE)
    after = in_place(made.entry(repeat=2), "docker", IMAGE, pushed)
    model = build([before, after])
    (row,) = model.rows
    assert (row.runs, row.variant) == (2, "")
    facts = {fact.name: fact.values for fact in model.machines[0].facts}
    assert facts["image in its registry"] == (pushed,), "for whoever wants to fetch it"
    assert environment_differences([before.record], [after.record]) == ()


def test_an_image_that_one_side_names_by_digest_alone_is_the_other_sides() -> None:
    pushed = "registry/suite-engines@" + "sha256:" + "5" * 64
    one = in_place(made.entry(), "docker", IMAGE, pushed)
    named = one.record.environment.model_copy(update={"driver": {}, "worker": {**made.CPU_FACTS, "image": pushed}})
    other = one.record.model_copy(update={"environment": named})
    names = [found.name for found in environment_differences([one.record], [other])]
    assert "image" not in names
    unknown = {"driver": {}, "worker": {**made.CPU_FACTS, "image": pushed.replace("5", "6")}}
    third = one.record.model_copy(update={"environment": named.model_copy(update=unknown)})
    assert "image" in [found.name for found in environment_differences([one.record], [third])]


def test_a_run_that_was_never_launched_stays_with_its_repeats() -> None:
    lost = in_place(made.failed("interrupted", repeat=2), None, None)
    (row,) = build([in_place(made.entry(), "docker", IMAGE), lost]).rows
    assert (row.runs, row.runs_ok) == (2, 1)


FORKED = {**made.CPU_FACTS, "started": "forked"}


def test_runs_of_forked_ranks_are_rows_of_their_own() -> None:
    spawned, forked = made.repeats(3), [made.entry(repeat=repeat, facts=FORKED) for repeat in (1, 2)]
    plain, rows = build(spawned).rows, build(spawned + forked).rows
    assert sorted((row.runs, row.variant) for row in rows) == [(2, "started=forked"), (3, "started=spawned")]
    assert len({row.series_hash for row in rows}) == 2, "no scaling curve goes from one to the other"
    assert {row.series_hash for row in rows} > {row.series_hash for row in plain}, "older rows keep theirs"


def test_a_run_that_never_told_how_it_was_started_stays_with_its_repeats() -> None:
    lost = made.failed(repeat=2)
    record = lost.record.model_copy(update={"environment": made.no_environment()})
    (row,) = build([made.entry(facts=FORKED), replace(lost, record=record)]).rows
    assert (row.runs, row.runs_ok) == (2, 1)


def test_the_machine_names_the_container_runtime_and_the_image() -> None:
    (machine,) = build([in_place(made.entry(), "docker", IMAGE)]).machines
    facts = {fact.name: fact.values for fact in machine.facts}
    assert facts["container runtime"] == ("Docker Engine 26.1",)


def test_the_machine_names_the_suite_that_drove_each_run() -> None:
    def driven(repeat: int, commit: str | None) -> made.Entry:
        one = made.entry(repeat=repeat)
        driver = {"suite_version": "0.1.0", "git_commit": commit}
        environment = one.record.environment.model_copy(update={"driver": driver})
        return replace(one, record=one.record.model_copy(update={"environment": environment}))

    (machine,) = build([driven(1, "a" * 40), driven(2, "a" * 40), driven(3, f"{'b' * 40}+changes")]).machines
    (told,) = (fact.values for fact in machine.facts if fact.name == "suite")
    assert told == (
        f"0.1.0, commit {'a' * 12} (2 runs)",
        f"0.1.0, commit {'b' * 12} with changes (1 run)",
    )
    (machine,) = build([driven(1, None)]).machines
    assert ("suite", ("0.1.0",)) in [(fact.name, fact.values) for fact in machine.facts]


def test_a_measured_product_of_another_precision_than_the_runs_says_so() -> None:
    def told(dtype: str | None) -> set[str]:
        ceilings = {"matmul_flops": 7e14, "copy_bytes_per_second": 2e12, **({"matmul_dtype": dtype} if dtype else {})}
        (machine,) = build([made.entry(device="cuda", facts={**made.GPU_FACTS, "ceilings": ceilings})]).machines
        return {fact.name for fact in machine.facts if fact.name.startswith("measured")}

    assert told(None) == told("bfloat16") == {"measured matrix product (bf16 runs)", "measured copy (bf16 runs)"}
    assert told("float16") == {"measured matrix product (in fp16, bf16 runs)", "measured copy (bf16 runs)"}


def with_driver(one: made.Entry, launcher: str, **facts: object) -> made.Entry:
    """The same run, of which its driver tells this."""
    environment = one.record.environment.model_copy(update={"driver": facts})
    run = one.record.run.model_copy(update={"launcher": launcher})
    return replace(one, record=one.record.model_copy(update={"environment": environment, "run": run}))


def test_runs_beside_each_other_are_not_pooled_with_quiet_ones() -> None:
    quiet = [with_driver(one, "docker", runs_at_once=1) for one in made.repeats(3)]
    beside = [with_driver(one, "docker", runs_at_once=2) for one in made.repeats(2, rate=8.0)]
    rows = build(quiet + beside).rows
    assert sorted((row.runs, row.variant) for row in rows) == [(2, "at once=2 runs"), (3, "at once=1 run")]
    assert len({row.series_hash for row in rows}) == 2, "no scaling curve goes from one to the other"
    assert {row.series_hash for row in rows} > {row.series_hash for row in build(quiet).rows}, "older rows keep theirs"


def test_runs_that_slurm_itself_started_are_rows_of_their_own() -> None:
    by_torchrun = [with_driver(one, "slurm") for one in made.repeats(2)]
    by_srun = [with_driver(one, "slurm", starter="srun") for one in made.repeats(2)]
    rows = build(by_torchrun + by_srun).rows
    assert {row.variant for row in rows} == {"started=spawned", "started=srun"}


def with_variables(one: made.Entry, **variables: str) -> made.Entry:
    measure = one.manifest.measure.model_copy(update={"variables": variables})
    return replace(one, manifest=one.manifest.model_copy(update={"measure": measure, "hash": f"{variables}"}))


def test_variables_that_differ_are_in_the_heads_of_rows() -> None:
    model = build([made.entry(), with_variables(made.entry(), NCCL_ALGO="Tree")])
    assert {row.variant for row in model.rows} == {"NCCL_ALGO unset", "NCCL_ALGO=Tree"}
    assert len({row.series_hash for row in model.rows}) == 2


def test_the_command_of_a_clusters_row_names_what_the_cluster_is_to_be_told() -> None:
    image = {"reference": "/images/our engines.sqsh", "digest": IMAGE}
    run = with_driver(with_variables(made.entry(), NCCL_ALGO="Tree"), "slurm", starter="srun", image=image)
    text = render(build([run]), {})
    assert (
        "manifest.json --launcher slurm --env NCCL_ALGO=Tree --image '/images/our engines.sqsh' -- --starter srun\n"
        in text
    )
    assert "follow a `--`" in text
    bound = with_driver(made.entry(), "slurm", starter="srun cpu-bind=cores", image=image)
    assert " -- --starter srun --cpu-bind=cores\n" in render(build([bound]), {})
    assert "follow a `--`" not in render(build([made.entry()]), {})
