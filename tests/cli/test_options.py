"""What a user types, read into values: ranks, where runs are started, and options that follow from declarations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.cli.options.fields import LayoutOptions, WorkloadOptions, layout_choices, settings_of, workload_changes
from suite.cli.options.launchers import Where
from suite.cli.options.reading import rank_counts
from suite.cli.options.work import Work
from suite.launch.docker.settings import DockerSettings
from suite.launch.local import LocalLauncher
from suite.spec.base import UsageError
from suite.spec.catalogue import find_workload
from suite.spec.fields import declared
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.typed import size
from suite.spec.workload import Workload
from tests.command import refused, suite, told

PLAN = ("run", "--size", "1M", "--backend", "deepspeed", "--repeats", "1", "--dry-run")
UNEVEN = "lognormal:mean=6,sigma=0.6,cap=8"


@pytest.fixture(autouse=True)
def _any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = lambda python, packages: dict.fromkeys(packages, "5.19.0")  # noqa: E731
    monkeypatch.setattr("suite.conduct.planning.machine.stack_versions", versions)
    monkeypatch.setattr("suite.conduct.planning.machine.stack_code", lambda python, packages: {})


def test_all_ranks_are_as_many_as_there_are_places() -> None:
    assert rank_counts(["1", "all", "4"], most=8) == (1, 8, 4)


@pytest.mark.parametrize(
    ("text", "words"), [*((text, "a number or all") for text in ("some", "-1", "1.5", "")), ("0", "at least 1, not 0")]
)
def test_what_is_no_number_of_ranks_is_refused_with_its_value(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rank_counts(["2", text], most=8)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--workload", ""), "there is no workload ''"),
        (("--runs", ""), "--runs '' names no folder"),
        (("--runs=",), "--runs '' names no folder"),
    ],
)
def test_an_option_that_is_given_nothing_is_refused_instead_of_being_left_out(words: tuple[str, ...], line: str):
    assert line in refused(*PLAN, *words)


def test_threads_places_and_free_devices_of_a_clusters_ranks() -> None:
    stack = [word for package in ("torch", "megatron-core") for word in ("--stack", f"{package}=1")]

    def rendered(*more: str) -> str:
        done = suite(
            "submit", "slurm", "-o", "-", "--backend", "megatron", "--size", "125M", "--repeats", "1", *stack, *more
        )
        assert done.exit_code == 0, done.stderr
        return done.stdout

    usual = rendered()
    assert "OMP_NUM_THREADS=8 " in usual and '"threads_per_rank":8,"bind":"near-gpu"' in usual
    assert "SUITE_REQUIRE_IDLE" not in usual
    changed = rendered("--threads", "12", "--no-bind", "--require-idle")
    assert "OMP_NUM_THREADS=12 " in changed and '"threads_per_rank":12,"warmup"' in changed
    assert "SUITE_REQUIRE_IDLE=1 " in changed
    on_cpus = rendered("--device", "cpu", "--workload", "cpu")
    assert "OMP_NUM_THREADS=1 " in on_cpus and "bind" not in on_cpus.split("<<'SUITE_MANIFEST'")[1].split("limits")[0]


def test_what_is_typed_becomes_the_containers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    where = Where(
        launcher="docker",
        gpu_ids="0,GPU-8f6a",
        shm_bytes="1.5g",
        ulimits=["memlock=unlimited", "nofile=4096"],
        env=["NCCL_DEBUG", "A=b=c"],
        memory_bytes="512m",
    )
    assert settings_of(where, DockerSettings) == DockerSettings(
        gpu_ids=("0", "GPU-8f6a"),
        shm_bytes=3 << 29,
        ulimits={"memlock": -1, "nofile": 4096},
        env={"NCCL_DEBUG": "INFO", "A": "b=c"},
        memory_bytes=512 << 20,
    )
    assert settings_of(Where(launcher="docker"), DockerSettings) == DockerSettings()


def test_the_local_launcher_takes_its_interpreter_and_no_container_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    machine, launcher = Where(python=["/x/python"]).open("cpu", ("megatron",))
    assert isinstance(launcher, LocalLauncher) and machine.python == "/x/python"


def test_an_interpreter_of_this_machine_is_not_sought_in_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr("suite.conduct.running.containers.open_containers", lambda *given: asked.append(given[4]))
    monkeypatch.setenv("SUITE_PYTHON", "/here/python")
    Where(launcher="docker", python=[]).open("cpu", ("megatron",))
    Where(launcher="docker", python=["/image/python"]).open("cpu", ("megatron",))
    assert asked == [None, "/image/python"]


@given(st.integers(0, 1 << 20), st.sampled_from(["", "b", "k", "kib", "M", "m", "g", "GiB", "t"]))
def test_a_size_is_read_in_units_of_1024(number: int, unit: str) -> None:
    bits = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit.lower()[:1]]
    assert size("--memory", f"{number}{unit}") == number << bits


def planned(*options: str) -> list[dict]:
    return told(*PLAN, *options)["runs"]


def test_nothing_given_changes_nothing() -> None:
    assert workload_changes(WorkloadOptions()) == {}
    assert LayoutChoices(**layout_choices(LayoutOptions())) == LayoutChoices()


def test_every_declared_option_is_one_of_the_commands() -> None:
    names = {name for model in (Workload, Layout) for name, fact in declared(model) if fact.option}
    assert names <= set(vars(Work()))


def test_the_work_is_set_from_the_command_line() -> None:
    (usual,), (changed,) = planned(), planned("--rollouts", "6", "--micro-batch", "3")
    assert (usual["samples"], changed["samples"]) == (4, 6)
    assert usual["run"] != changed["run"]
    (same,) = planned("--prompt-tokens", str(find_workload("cpu").prompt_tokens))
    assert usual["run"] == same["run"], "a value that the workload has anyway"


def test_values_to_compare_are_crossed_and_switches_are_switched() -> None:
    rows = planned("--zero", "1", "--zero", "2", "--recompute", "--ranks", "1")
    assert [row["layout"] for row in rows] == ["zero1 recompute", "zero2 recompute"]


def test_work_that_cannot_be_is_refused_in_one_line() -> None:
    assert "--lengths (at most 800)" in refused(*PLAN, "--lengths", "lognormal:mean=6,sigma=0.6,cap=800")
    assert "grpo compares the samples of a prompt: --gro" in refused(*PLAN, "--algorithm", "grpo", "--group", "1")


def test_a_trainer_refuses_work_that_it_would_leave_out() -> None:
    workload = find_workload("cpu").changed({"algorithm": "grpo", "lengths": UNEVEN, "prompt_lengths": UNEVEN})
    (error,) = unknown_work(find_backend("trlx-ddp"), workload)
    assert error == (
        "the trlx-ddp backend has no algorithm grpo, no groups of 4 samples, no prompts of uneven length and no "
        "responses of uneven length, which workload cpu asks for"
    )
