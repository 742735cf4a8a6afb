"""Rows: which runs are one, what their figures are, where they were measured, and that other work stands apart."""

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from suite.bundle.record import Wait
from suite.report.compare import compare_entries
from suite.report.facts.entry import Entry
from suite.report.facts.environment import environment_differences, facts_of
from suite.report.facts.model import build
from suite.report.facts.pool import Row
from suite.report.facts.scaling import series_of
from suite.report.terminal import print_headline
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths
from suite.stats.intervals import RunSeconds, pooled_mean, pooled_rate
from tests.report import entries as made
from tests.report.conftest import Columns
from tests.report.reports import families

GPU_A = made.GPU_FACTS
GPU_B = {**GPU_A, "device": {**GPU_A["device"], "name": "NVIDIA A100-SXM4-80GB"}}


def row_of(*entries: Entry) -> Row:
    (row,) = build(entries).rows
    return row


def machine_of(*entries: Entry) -> dict[str, tuple[str, ...]]:
    """The facts of the one machine."""
    (machine,) = build(entries).machines
    return machine.facts


def remembered(entry: Entry, **fields: Any) -> Entry:
    """The same run with other figures of its memory."""
    return made.recorded(entry, memory=structs.replace(entry.record.memory, **fields))


class TestFigures:
    def test_the_repeats_of_one_manifest_are_one_row_with_their_pooled_rate(self) -> None:
        entries = made.repeats(3)
        row = row_of(*entries)
        runs = [RunSeconds(8, one.record.iterations.seconds[2:]) for one in entries]
        assert row.samples_per_second == pooled_rate(runs)
        assert (row.runs, row.runs_ok) == (3, 3)
        assert row.tokens_per_second.value == pytest.approx(32 * row.samples_per_second.value)
        wide = row_of(made.entry(ranks=4))
        assert wide.tokens_per_second_per_device.value == pytest.approx(wide.tokens_per_second.value / 4)

    def test_only_runs_that_ended_well_count_but_all_are_told(self) -> None:
        row = row_of(made.entry(repeat=2), made.failed(repeat=1), made.failed("interrupted", repeat=3))
        assert (row.runs, row.runs_ok, len(row.entries)) == (3, 1, 3)
        assert row.samples_per_second == row_of(made.entry(repeat=2)).samples_per_second
        assert row.shown.path.endswith("-r2"), "a run that ended well is named to reproduce the row"

    def test_phases_have_the_interval_of_their_runs_and_shares_that_add_up(self) -> None:
        entries = made.repeats(3, spread=0.03)
        row = row_of(*entries)
        train = next(phase for phase in row.phases if phase.name == "train")
        seconds = [one.record.phases.train.seconds for one in entries]
        assert (train.interval, train.by_run) == (pooled_mean(seconds, [6, 6, 6]), tuple(seconds))
        assert train.low < min(seconds) < max(seconds) < train.high, "Student's t pays for three runs"
        assert sum(phase.share for phase in row.phases) == pytest.approx(1)
        assert [phase.name for phase in row.phases] == list(made.SHARES)

    def test_ranks_that_wait_are_idle_for_a_share_of_the_iteration(self) -> None:
        entries = made.repeats(2, ranks=2, spread=0)
        assert row_of(*entries).idle is None and "idle %" not in render(build(entries), {})
        train = Wait(longest_seconds=0, mean_seconds=0)
        told = [
            made.recorded(one, waits={"generate": Wait(longest_seconds=0.02, mean_seconds=seconds), "train": train})
            for one, seconds in zip(entries, (0.01, 0.03), strict=True)
        ]
        row = row_of(*told)
        assert row.idle.seconds == pytest.approx(0.02)
        assert row.idle.share == pytest.approx(0.02 / row.iteration_seconds)
        assert f"{100 * row.idle.share:.1f}, generate" in render(build(told), {})
        assert row_of(told[0], entries[1]).idle is None, "one of the runs does not tell"

    def test_hfu_with_causal_attention_stands_beside_the_other_where_it_is_known(self) -> None:
        entry = made.entry(device="cuda")
        compute = structs.replace(entry.record.compute, hfu_causal=0.35, hardware_flops_causal=0.9e12)
        causal = made.recorded(entry, compute=compute)
        found = row_of(causal).utilisation
        assert (found["hfu"], found["hfu_causal"]) == (pytest.approx(0.41), pytest.approx(0.35))
        assert "38 / 41 / 35 / 22" in render(build([causal]), {})


class TestMemory:
    def test_the_peak_is_the_greatest_over_runs_with_an_interval_of_them_and_efficiency_follows(self) -> None:
        entries = [made.entry(repeat=one, peak_factor=factor) for one, factor in enumerate((2.0, 3.0, 2.1), 1)]
        memory = row_of(*entries).memory
        peaks = [one.record.memory.peak_allocated_bytes for one in entries]
        assert memory.peak_bytes == max(peaks) == 3 * memory.floor_bytes
        assert memory.efficiency == pytest.approx(1 / 3)
        assert memory.run_peak_bytes == pooled_mean(peaks, [1, 1, 1])
        assert (memory.peak_is, memory.floor_phase) == ("resident", "train")

    def test_on_a_gpu_the_peak_is_what_the_allocator_reserved(self) -> None:
        first, second = made.repeats(2, device="cuda", size="1.3B")
        memory = row_of(first, second).memory
        assert memory.peak_is == "reserved"
        assert memory.allocated_bytes < memory.peak_bytes < memory.device_bytes
        memory = row_of(first, remembered(second, peak_device_bytes=None)).memory
        assert memory.device_bytes is None and memory.allocated_bytes is not None, "what one run does not know"
        memory = row_of(made.entry()).memory
        assert (memory.allocated_bytes, memory.device_bytes) == (None, None)

    def test_each_phase_has_the_peaks_of_its_runs_against_its_own_floor(self) -> None:
        entries = [made.entry(repeat=one, device="cuda", peak_factor=factor) for one, factor in ((1, 2.0), (2, 2.2))]
        peaks = [one.record.memory.by_phase["train"].peak_allocated_bytes for one in entries]
        (train,) = row_of(*entries).memory.by_phase
        assert (train.name, train.peak_bytes, train.run_peak_bytes) == ("train", max(peaks), pooled_mean(peaks, [1, 1]))
        assert train.efficiency == entries[0].record.memory.floor.by_phase["train"] / max(peaks)
        assert row_of(remembered(entries[0], by_phase={}), entries[1]).memory.by_phase == ()


IMAGE = "sha256:" + "4" * 64
PUSHED = "registry/suite-engines@sha256:" + "5" * 64
OF_IMAGE, OF_PUSHED = f"image={IMAGE[:19]}", f"image=registry/suite-engines@sha256:{'5' * 12}"
TREE = {"NCCL_ALGO": "Tree"}
FORKED = {**made.CPU_FACTS, "started": "forked"}


def in_image(entry: Entry, image: str, digest: str | None = None) -> Entry:
    engine = {"name": "Docker Engine", "version": "26.1"}
    return made.driven(entry, "docker", image={"id": image, "digest": digest}, engine=engine)


def in_images(image: str, count: int, first: int = 1) -> list[Entry]:
    return [in_image(one, image) for one in made.repeats(count, first)]


def driven(count: int, launcher: str = "docker", rate: float = 20.0, **facts: Any) -> list[Entry]:
    return [made.driven(one, launcher, **facts) for one in made.repeats(count, rate=rate)]


#: Three runs and two, and by what their rows are told apart.
OTHERWISE: dict[str, tuple[list[Entry], list[Entry], str, str]] = {
    "container": (driven(3, "local"), in_images(IMAGE, 2), "image=none launcher=local", f"{OF_IMAGE} launcher=docker"),
    "image": (in_images(IMAGE, 3), in_images(PUSHED, 2, 4), OF_IMAGE, OF_PUSHED),
    "forked": (made.repeats(3), made.repeats(2, facts=FORKED), "started=spawned", "started=forked"),
    "together": (driven(3, runs_at_once=1), driven(2, rate=8, runs_at_once=2), "at once=1 run", "at once=2 runs"),
    "srun": (driven(3, "slurm"), driven(2, "slurm", starter="srun"), "started=spawned", "started=srun"),
    "variables": (made.repeats(3), made.repeats(2, variables=TREE), "NCCL_ALGO unset", "NCCL_ALGO=Tree"),
}


class TestWhatIsOneRow:
    @pytest.mark.parametrize(("some", "others", "first", "second"), OTHERWISE.values(), ids=OTHERWISE)
    def test_runs_that_were_made_otherwise_are_rows_of_their_own_that_say_so(self, some, others, first, second):
        rows = build([*some, *others]).rows
        assert {(row.runs, row.variant) for row in rows} == {(3, first), (2, second)}
        hashes = {series_of(row) for row in rows}
        assert len(hashes) == 2, "no scaling curve goes from one to the other"
        assert hashes >= {series_of(row) for row in build(some).rows}, "older rows keep theirs"

    def test_equal_manifests_on_unlike_hardware_are_not_pooled(self) -> None:
        model = build([made.entry(device="cuda", facts=GPU_A), made.entry(device="cuda", repeat=2, facts=GPU_B)])
        assert [row.setting.machine for row in model.rows] == ["A", "B"]
        assert len(model.machines) == 2
        assert not model.ranking.groups

    @pytest.mark.parametrize(
        ("entry", "lost"),
        [
            (made.entry(), made.undescribed(made.failed("image_missing", repeat=2))),
            (made.entry(facts=FORKED), made.undescribed(made.failed(repeat=2))),
            (in_image(made.entry(), IMAGE), made.driven(made.failed("interrupted", repeat=2), None)),
        ],
        ids=["early", "forked", "never launched"],
    )
    def test_a_run_that_never_told_how_it_was_started_stays_with_its_repeats(self, entry: Entry, lost: Entry) -> None:
        row = row_of(entry, lost)
        assert (row.runs, row.runs_ok, row.setting.machine) == (2, 1, "A")

    def test_rows_are_in_the_order_of_their_sizes_whatever_the_order_of_the_entries(self) -> None:
        entries = made.matrix(sizes=("66B", "1M", "13B"), runs=1)
        forward, backward = build(entries), build(entries[::-1])
        assert list(dict.fromkeys(row.size for row in forward.rows)) == ["1M", "13B", "66B"]
        assert forward == backward

    def test_an_image_that_was_pushed_between_two_runs_is_one_image(self) -> None:
        before, after = in_image(made.entry(), IMAGE), in_image(made.entry(repeat=2), IMAGE, PUSHED)
        row = row_of(before, after)
        assert (row.runs, row.variant) == (2, "")
        assert machine_of(before, after)["image in its registry"] == (PUSHED,), "for whoever wants to fetch it"
        assert environment_differences([before.record], [after.record]) == ()


class TestWhereItWasMeasured:
    def test_the_machine_names_the_container_runtime_and_the_suite_that_drove_each_run(self) -> None:
        assert machine_of(in_image(made.entry(), IMAGE))["container runtime"] == ("Docker Engine",)
        commits = ("a" * 40, "a" * 40, f"{'b' * 40}+changes")
        runs = [
            made.driven(made.entry(repeat=repeat), suite_version="0.1.0", git_commit=commit)
            for repeat, commit in enumerate(commits, 1)
        ]
        told = machine_of(*runs)
        assert told["suite"] == ("0.1.0",)
        assert told["suite's commit"] == (f"{'a' * 12} (2 runs)", f"{'b' * 12} with changes (1 run)")
        assert "suite's commit" not in machine_of(made.driven(made.entry(), suite_version="0.1.0", git_commit=None))

    def test_the_command_of_a_row_names_its_launcher_and_the_options_of_its_cluster(self) -> None:
        local, docker = made.driven(made.entry()), in_image(made.entry(), IMAGE)
        text = render(build([local, docker]), {})
        assert text.count("manifest.json --launcher docker #") == 1 and text.count("suite rerun") == 2
        image = {"reference": "/images/our engines.sqsh", "digest": IMAGE}
        run = made.driven(made.entry(variables=TREE), "slurm", starter="srun", image=image)
        text = render(build([run]), {})
        command = "--launcher slurm --env NCCL_ALGO=Tree --image '/images/our engines.sqsh' -- --starter srun #"
        assert f"manifest.json {command}" in text
        bound = made.driven(made.entry(), "slurm", starter="srun cpu-bind=cores", image=image)
        assert " -- --starter srun --cpu-bind=cores #" in render(build([bound]), {})

    def test_code_is_told_with_version_commit_and_where_it_lies(self) -> None:
        told = {"digest": "0123456789abcdef", "commit": "3340c2f3a56d" + 28 * "0", "changed": True, "editable": True}
        found = facts_of([made.entry(facts={**made.CPU_FACTS, "code": {"deepspeed": told}}).record])
        assert found["deepspeed code"][1] == ("0.19.8 01234567 (commit 3340c2f3a56d with changes, editable)",)


VLLM = Layout(devices_per_node=2, data=2, zero_stage=2, generation="vllm")


def section(text: str, heading: str) -> str:
    """What is below one heading of the report; empty where there is none."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def on_llama(runs: int = 3, **asked: Any) -> list[Entry]:
    return made.repeats(runs, size="1M-llama", ranks=2, work=made.grpo(), **asked)


def test_rows_of_each_kind_are_ranked_in_a_table_of_their_own_under_a_line_of_their_work() -> None:
    text = section(render(build(families()), {}), "Ranking")
    ppo, grpo = re.split(r"\n### GRPO on Llama\n", text)
    assert "\n### PPO on GPT-2\n" in ppo
    assert "1M-llama" not in ppo and "| 1M " not in grpo
    assert [line.split("|")[3].strip() for line in ppo.splitlines() if "| faster " in line] == ["R2", "R4"]


def test_samples_of_other_lengths_are_never_ranked_together_even_where_the_distribution_is_the_same() -> None:
    """The hash of the work has the seed of the lengths, not the lengths that a version of the suite drew by it."""

    def shuffled(one: Entry) -> Entry:
        drawn = one.manifest.work.lengths
        lengths = SampleLengths(prompt=drawn.prompt, response=drawn.response[::-1])
        work = one.manifest.work.model_copy(update={"lengths": lengths})
        return replace(one, manifest=one.manifest.model_copy(update={"work": work, "hash": "0" * 64}))

    both = [*on_llama(), *on_llama(backend="megatron")]
    assert len(build(both).ranking.groups) == 1
    model = build([*both[:3], *map(shuffled, both[3:])])
    assert not model.ranking.groups and len({row.lengths_hash for row in model.rows}) == 2
    assert len({row.work_hash for row in model.rows}) == 1


def test_what_the_longest_sample_costs_is_a_mean_over_runs_that_all_tell() -> None:
    runs = [
        *on_llama(1, rollout={"idle_slot_seconds": 0.2, "idle_slot_share": 0.5}, spread=0),
        *on_llama(1, first=2, rollout={"idle_slot_seconds": 0.4}, spread=0),
    ]
    found = build(runs).rows[0].rollout
    assert found.idle_slot_seconds == pytest.approx(0.3) and found.idle_slot_share is None
    assert re.search(r"\| +0.300 \| +19 \|", section(render(build(runs), {}), "Lengths and padding")), "of 1.6 s"


def test_the_memory_of_an_engine_is_shown_by_phase_although_sync_has_no_floor() -> None:
    (row,) = build(on_llama(2, layout=VLLM)).rows
    by_phase = {one.name: one for one in row.memory.by_phase}
    assert list(by_phase) == ["sync", "generate", "train"]
    assert (by_phase["sync"].floor_bytes, by_phase["sync"].efficiency) == (None, None)
    assert by_phase["sync"].peak_bytes == by_phase["generate"].peak_bytes < by_phase["train"].peak_bytes


@pytest.mark.parametrize("width", [80, 100, None])
def test_the_headline_has_a_table_for_each_kind_of_work(width: int | None, columns: Columns) -> None:
    lines = columns(width, lambda: print_headline(build(families())))
    assert width is None or max(map(len, lines)) <= width
    ppo, grpo = "\n".join(lines).split("GRPO in groups of 4 on Llama")
    assert ppo.startswith("PPO on GPT-2:") and "llama" not in ppo
    assert grpo.count("1M-llama") == 5


def test_compare_names_rows_that_look_alike_and_did_other_work() -> None:
    before = [*made.repeats(2), *made.repeats(2, size="3M"), *made.repeats(2, size="8M")]
    after = [
        *made.repeats(2, first=11),
        *made.repeats(2, size="3M", work=made.workload(algorithm="grpo", group=4)),
        *made.repeats(2, size="8M", work=made.workload(rollouts=16)),
        *made.repeats(2, size="25M"),
    ]
    found = compare_entries(before, after)
    assert [row.size for row in found.rows] == ["1M"]
    told = {(one.side, one.name.split()[1]): one.detail for one in found.unjudged}
    assert {*told} == {("before", "3M"), ("before", "8M"), ("after", "3M"), ("after", "8M"), ("after", "25M")}
    assert told["before", "8M"] == "nearest is deepspeed 8M zero2 on 1 rank: rollouts 8 / 16, samples 8 / 16"
    assert "work PPO on GPT-2 / GRPO in groups of 4 on GPT-2" in told["before", "3M"]
