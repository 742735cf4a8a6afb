"""Which GPUs runs use: CUDA's rules for its variable, what a user names, and no card for a screen."""

import re
from pathlib import Path

import pytest

from suite.conduct.planning import machine as planning
from suite.conduct.planning.machine import look_at_machine
from suite.launch.local import LocalLauncher, rank_variables
from suite.launch.probe import LocalDevice, local_choice, named_gpus, one_kind, visible_gpus
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.launch.ranks import make_folder, make_job
from tests.synthetic import synthetic_manifest

UUIDS = ("GPU-1a2b", "GPU-1c3d", "GPU-2e4f", "GPU-9a0b")
GPUS = tuple(
    LocalDevice(index=index, uuid=uuid, name="NVIDIA A100-SXM4-80GB", memory_bytes=80 << 30)
    for index, uuid in enumerate(UUIDS)
)
SCREEN = LocalDevice(index=0, uuid="GPU-5c5c", name="NVIDIA T400", memory_bytes=4 << 30)
WITH_SCREEN = (SCREEN, *(gpu.model_copy(update={"index": gpu.index + 1}) for gpu in GPUS))


def indices(text: str) -> list[int]:
    return [gpu.index for gpu in visible_gpus(GPUS, {"CUDA_VISIBLE_DEVICES": text})]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("3,2", [3, 2]), (" 1 , 0", [1, 0]), ("GPU-9a0b,GPU-1a2b", [3, 0]), ("GPU-1", [])),
        *(("GPU-9,GPU-1c", [3, 1]), ("GPU-2e,0", [2, 0]), ("0,GPU-77,1", [0]), ("0,4,1", [0]), ("2,-1,3", [2])),
        *(("0,,1", [0]), ("-1", []), ("", []), ("NoDevFiles", []), ("0,1,0", []), ("0,GPU-1a2b", [])),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(text: str, shown: list[int]) -> None:
    assert indices(text) == shown
    assert visible_gpus(GPUS, {}) == GPUS, "without it all are shown"


def test_of_slices_a_process_gets_one_of_which_nothing_is_guessed() -> None:
    (found,) = visible_gpus(GPUS, {"CUDA_VISIBLE_DEVICES": "MIG-77,MIG-78"})
    assert (found.uuid, found.name, found.memory_bytes) == ("MIG-77", "MIG device", None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("4", "0"), "there is no GPU 4; this host has 0 to 3"),
        (("GPU-1",), "there is no GPU GPU-1;"),
        (("0", "GPU-1a2b"), "named twice in 0,GPU-1a2b"),
    ],
)
def test_gpus_are_named_by_index_or_uuid_and_one_that_is_not_there_is_refused(names: tuple, words: str) -> None:
    assert named_gpus(GPUS, ("3", "GPU-1a2b")) == (GPUS[3], GPUS[0])
    with pytest.raises(UsageError, match=re.escape(words)):
        named_gpus(GPUS, names)


def test_neither_a_gpu_that_the_variable_hides_nor_two_slices_can_be_named() -> None:
    hiding = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert local_choice(GPUS, ("3",), hiding) == (GPUS[3],)
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=2,3 hides GPU 0"):
        local_choice(GPUS, ("0", "3"), hiding)
    assert local_choice(GPUS, ("MIG-77",), {})[0].uuid == "MIG-77"
    with pytest.raises(UsageError, match="one slice of a GPU"):
        local_choice(GPUS, ("MIG-77", "0"), {})


def test_a_card_for_a_screen_is_left_out_unless_it_is_named() -> None:
    assert local_choice(WITH_SCREEN, (), {}) == WITH_SCREEN[1:]
    assert local_choice(WITH_SCREEN, ("0",), {}) == (SCREEN,)
    assert local_choice(WITH_SCREEN, (), {"CUDA_VISIBLE_DEVICES": "0,1"}) == WITH_SCREEN[:2]
    assert one_kind(()) == ()


class TestTheMachine:
    @pytest.fixture(autouse=True)
    def four_gpus_and_a_screen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(planning, "local_devices", lambda: WITH_SCREEN)
        monkeypatch.setattr(planning, "usable_cpus", lambda: tuple(range(1000, 1032)))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def test_has_one_device_name_and_as_many_places_as_gpus_that_are_used(self) -> None:
        found = look_at_machine("python", "auto")
        assert (found.device, found.max_ranks, found.device_name) == ("cuda", 4, GPUS[0].name)
        assert (found.device_memory_bytes, found.device_names, found.threads_per_rank) == (80 << 30, UUIDS, 8)
        assert look_at_machine("python", "auto", gpu_ids=("2", "1")).device_names == UUIDS[1::-1]

    def test_keeps_to_the_variable_and_leaves_the_hidden_gpus_their_cores(self, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
        found = look_at_machine("python", "auto")
        assert (found.max_ranks, found.device_names, found.threads_per_rank) == (2, UUIDS[2:], 8)

    def test_has_no_cuda_where_the_variable_is_empty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert look_at_machine("python", "auto").device == "cpu"
        with pytest.raises(UsageError, match="this host has 5 GPUs, but CUDA_VISIBLE_DEVICES= hides all; unset it"):
            look_at_machine("python", "cuda")


def test_ranks_see_the_first_of_the_chosen_gpus_by_their_names(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=Layout(devices_per_node=2, data=2), device="cuda", precision="bf16")
    launcher = LocalLauncher(gpus=UUIDS[1:])
    site = launcher.site(manifest, tmp_path, "python")
    job = make_job(make_folder(tmp_path), "", ranks=2).model_copy(update={"devices": site.devices})
    assert launcher.facts(job) == {"devices": {"ids": UUIDS[1:3]}}
    for rank in (0, 1):
        variables = rank_variables(job, rank, 1)
        assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-1c3d,GPU-2e4f"
        assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
