"""Where runs are started, as a user says it: options that all commands share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.cli.options.launchers import Where
from suite.launch.docker.settings import DockerSettings
from suite.launch.local import LocalLauncher
from suite.spec.base import UsageError
from suite.spec.typed import size


def test_what_is_typed_becomes_the_containers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    where = Where(
        launcher="docker",
        gpu_ids="0,GPU-8f6a",
        shm_size="1.5g",
        ulimit=["memlock=unlimited", "nofile=4096"],
        env=["NCCL_DEBUG", "A=b=c"],
        memory="512m",
    )
    assert where.settings() == DockerSettings(
        gpu_ids=("0", "GPU-8f6a"),
        shm_bytes=3 << 29,
        ulimits={"memlock": -1, "nofile": 4096},
        env={"NCCL_DEBUG": "INFO", "A": "b=c"},
        memory_bytes=512 << 20,
    )
    assert Where(launcher="docker").settings() == DockerSettings(), "an option's default is the setting's"


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
    assert size(f"{number}{unit}") == number << {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit.lower()[:1]]


@given(st.text(max_size=8))
def test_any_text_is_a_size_or_a_clear_error(text: str) -> None:
    try:
        assert size(text) >= 0
    except UsageError as error:
        assert "is no size" in str(error)
