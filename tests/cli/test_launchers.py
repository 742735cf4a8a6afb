"""Where runs are started, as a user says it: options shared by commands, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.cli.app import app
from suite.cli.options.launchers import Where
from suite.launch.docker.settings import DockerSettings
from suite.launch.local import LocalLauncher
from suite.spec.base import UsageError
from suite.spec.typed import size

RUN = ("run", "--device", "cpu", "--size", "1M", "--dry-run")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*RUN, "--launcher", "dokcer"), "did you mean 'docker'"),
        ((*RUN, "--image", "x"), "--image means nothing to the local launcher"),
        ((*RUN, "--shm-size", "1g"), "--shm-size means nothing to the local launcher"),
        ((*RUN, "--gpu-ids", "0"), "--device cpu leaves no use for --gpu-ids"),
        ((*RUN, "--device", "auto", "--gpu-ids", "first"), "'first' is no GPU id"),
        ((*RUN, "--device", "auto", "--gpu-ids", "7"), "there is no GPU 7; this host shows none to this process"),
        ((*RUN, "--gpus", "1"), "--gpus means nothing to the local launcher"),
        ((*RUN, "--start", "fokr"), "--start is auto, fork or spawn, not 'fokr', did you mean 'fork'?"),
        ((*RUN, "--launcher", "docker", "--start", "fork"), "--start means nothing to the docker launcher"),
        (("rerun", "nowhere", "--launcher", "docker"), "nowhere does not exist"),
        ((*RUN, "--launcher", "docker", "--shm-size", "big"), "'big' is no size"),
        ((*RUN, "--launcher", "docker", "--ulimit", "memlok=1"), "no limit 'memlok'"),
        ((*RUN, "--launcher", "docker", "--ulimit", "memlock=much"), "ulimits.memlock"),
        ((*RUN, "--launcher", "docker", "--cpuset", "all"), "no set of CPUs"),
        ((*RUN, "--launcher", "docker", "--env", "NO_SUCH_VARIABLE"), "--env NO_SUCH_VARIABLE"),
        ((*RUN, "--launcher", "docker", "--pull", "perhaps"), "pull"),
        ((*RUN, "--launcher", "docker", "--gpus", "2", "--gpu-ids", "0"), "not both"),
        ((*RUN, "--launcher", "docker", "--gpus", "2"), "--device cpu leaves no use for --gpus"),
        ((*RUN, "--launcher", "docker"), "no container runtime answers at unix:///nowhere/docker.sock"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(SystemExit) as ended:
        app(arguments, prog_name="suite")
    printed = capsys.readouterr()
    assert ended.value.code == 2, printed
    assert (
        printed.err.startswith("error: ")
        and words in printed.err
        and printed.err.count("\n") == 1
        and printed.out == ""
    )


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


def test_the_local_launcher_takes_its_interpreter_and_no_container_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


@pytest.mark.parametrize("command", ["run", "rerun"])
def test_every_command_that_starts_runs_offers_the_same(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app([command, "--help"], prog_name="suite")
    printed = capsys.readouterr().out
    for option in ("--launcher", "--python", "--image", "--gpus", "--gpu-ids", "--ulimit", "--copy-back", "--env"):
        assert f"{option} " in printed or f"{option}\n" in printed


def test_results_of_the_dry_run_need_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app([*RUN, "--runs", str(tmp_path / "none")], prog_name="suite")
    assert ended.value.code == 0 and not (tmp_path / "none").exists()
