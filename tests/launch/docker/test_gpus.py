"""Which GPUs runs in containers may use, listed by this host's driver or by a short container."""

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from suite.launch.docker import offers
from suite.launch.docker.settings import DockerSettings
from suite.launch.probe import LocalDevice
from suite.spec.base import UsageError

HERE = tuple(LocalDevice(index=index, uuid=f"GPU-{index}a", name="A100", memory_bytes=80 << 30) for index in range(2))
SLICES = ("MIG-1b", "MIG-2c")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A runtime on this host, whose driver shows two GPUs."""
    monkeypatch.setattr(offers, "local_devices", lambda: HERE)
    facts = SimpleNamespace(remote=False)
    return SimpleNamespace(api=None, facts=facts, info={})


def usable(runtime: Any, **settings: Any) -> tuple[LocalDevice, ...]:
    return offers.usable_gpus(runtime, DockerSettings(**settings), "image")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, HERE), ({"gpu_ids": ("1",)}, HERE[1:]), ({"gpu_ids": ("GPU-1a", "0")}, HERE[::-1])],
)
def test_gpus_are_those_that_were_named_or_all(runtime: Any, settings: dict, wanted: tuple) -> None:
    assert usable(runtime, **settings) == wanted


def test_a_runtime_elsewhere_lists_whole_gpus_and_leaves_slices_as_they_were_named(runtime, monkeypatch):
    found = [(gpu.uuid, gpu.memory_bytes) for gpu in usable(runtime, gpu_ids=SLICES)]
    assert found == [(name, None) for name in SLICES], "a slice is no whole one"
    runtime.facts.remote = True
    listed = "GPU 0: A100 (UUID: GPU-0a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1b)\n"
    answer(monkeypatch, nvidia_smi=listed)
    assert [gpu.uuid for gpu in usable(runtime, gpu_ids=SLICES[:1])] == ["MIG-1b"]
    assert [gpu.uuid for gpu in usable(runtime)] == ["GPU-0a"]


def answer(monkeypatch: pytest.MonkeyPatch, **answers: str | Exception) -> None:
    """What each program prints in a container, or why the runtime does not start it."""

    def ask(api: Any, image: str, command: tuple[str, ...], **host: Any) -> bytes:
        answer = answers[command[0].rpartition("/")[2].replace("-", "_")]
        if isinstance(answer, Exception):
            raise answer
        return answer.encode()

    monkeypatch.setattr(offers, "ask", ask)


NOT_FOUND = APIError("400", explanation='exec: "nvidia-smi": executable file not found in $PATH: unknown')
NO_DRIVER = APIError("500", explanation='could not select device driver "" with capabilities: [[gpu]]')


@pytest.mark.parametrize(
    ("settings", "answers", "words"),
    [
        ({"gpu_ids": ("7",)}, {"nvidia_smi": NO_DRIVER}, "GPU 7 "),
        ({}, {"nvidia_smi": NO_DRIVER}, "any GPU to"),
        ({}, {"nvidia_smi": NOT_FOUND}, r"any GPU to .*nvidia-smi.*; describe GPUs for CDI \(nvidia-ctk"),
    ],
)
def test_what_a_runtime_does_not_give_is_named_and_no_lack_of_the_suite(runtime, monkeypatch, settings, answers, words):
    runtime.facts.remote = True
    answer(monkeypatch, **answers)
    with pytest.raises(UsageError, match=words) as told:
        usable(runtime, **settings)
    assert "lacks the suite" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "kind", "access"),
    [
        ("gpus.yaml", "kind: nvidia.com/gpu", "cdi"),
        ("nvidia.json", '{"kind": "nvidia.com/gpu"}', "cdi"),
        ("nvidia.com-imex-channel.yaml", "kind: nvidia.com/imex-channel", "nvidia"),
    ],
)
def test_cdi_is_asked_where_a_file_describes_gpus_whatever_its_name(runtime, name, kind, access, tmp_path):
    (tmp_path / name).write_text(kind)
    runtime.info["CDISpecDirs"] = [str(tmp_path)]
    assert offers.access_of(runtime, "auto") == access
