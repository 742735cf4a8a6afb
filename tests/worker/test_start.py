"""What a rank checks before it imports a stack: its rank, its manifest, its packages and whose they are, its GPUs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.launch.probe import stack_code
from suite.worker import devices
from suite.worker.devices import DeviceError, check_devices, check_torch_devices, seen_gpus, show_devices_by_number
from suite.worker.failures import failure_evidence, failure_kind
from suite.worker.identity import identity, package_digest
from suite.worker.manifest import check_code, check_stack, check_world_size, read_manifest
from suite.worker.rank import ConfigError, RankIdentity, read_rank
from tests.worker.tiny import rank_environment, start_rank, tiny_body, tiny_manifest, wait_for, write_manifest
from tests.worker.written import write


class TestRank:
    @pytest.mark.parametrize("missing", ["WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
    def test_half_a_launcher_is_named(self, missing):
        environment = rank_environment(0, 2, 29500)
        del environment[missing]
        with pytest.raises(ConfigError, match=missing):
            read_rank(environment)

    @pytest.mark.parametrize(("name", "value"), [("RANK", "one"), ("RANK", "2"), ("LOCAL_RANK", "-1")])
    def test_ranks_that_make_no_sense_are_refused(self, name, value):
        with pytest.raises(ConfigError):
            read_rank({**rank_environment(0, 2, 29500), name: value})


class TestManifest:
    @pytest.mark.parametrize(
        ("text", "message"),
        [("{", "cannot read"), ("[]", "schema None"), ('{"schema": "suite/manifest/9"}', "suite/manifest/9")],
    )
    def test_another_file_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "manifest.json"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_manifest(str(path))

    def test_the_world_must_be_the_layouts(self) -> None:
        manifest = tiny_body(2)
        check_world_size(manifest, RankIdentity(1, 2, 1, 2))
        with pytest.raises(ConfigError, match=r"2 ranks .* started 1"):
            check_world_size(manifest, RankIdentity(0, 1, 0, 1))

    def test_every_wrong_package_is_told_with_both_versions(self) -> None:
        with pytest.raises(ConfigError, match=r"no-such-package 1\.0 wanted, none found; torch 0\.1 wanted, \d"):
            check_stack({"torch": "0.1", "no-such-package": "1.0"})


class TestFailuresBeforeTheStackIsImported:
    def test_a_wrong_stack_is_a_config_failure_with_its_proof(self, tmp_path: Path) -> None:
        path = write_manifest(tiny_manifest(stack={"torch": "0.1"}), tmp_path)
        run = wait_for([start_rank(path)], tmp_path)
        assert run.exit_codes == [1]
        assert [event["kind"] for event in run.events()] == ["start", "failure", "end"]
        failure, end = run.events()[1:]
        assert (failure["failure"], failure["phase"], failure["iteration"]) == ("config", "setup", None)
        assert "torch 0.1 wanted" in failure["evidence"][0]
        assert (end["status"], end["iterations"]) == ("failed", 0)
        assert "Traceback" in run.errors[0]
        mirrored = [line.removeprefix("::suite:: ") for line in run.outputs[0].splitlines()]
        assert [json.loads(line) for line in mirrored] == run.events(), "rank 0 speaks on standard output"

    def test_a_manifest_that_is_not_there_ends_in_one_line(self, tmp_path: Path) -> None:
        run = wait_for([start_rank(tmp_path / "none.json")], tmp_path)
        assert run.exit_codes == [1]
        assert len(run.errors[0].splitlines()) == 1
        assert "none.json" in run.errors[0]


COMMIT = "3340c2f3" * 5


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one that is called forked-stack."""
    files = {
        "forked_stack/__init__.py": "STEP = 1\n",
        "forked_stack/csrc/adam.cu": "// kernel\n",
        "forked_stack-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: forked-stack\nVersion: 1.2\n",
        "forked_stack-1.2.dist-info/RECORD": "forked_stack/__init__.py,sha256=0,0\n",
        "forked_stack-1.2.dist-info/direct_url.json": f'{{"vcs_info": {{"commit_id": "{COMMIT}"}}}}',
    }
    site = write(tmp_path / "site", files)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def told() -> dict[str, Any]:
    identity.cache_clear()
    return identity("forked-stack")


@pytest.mark.parametrize("change", ["__init__.py", "csrc/adam.cu", "added.py"])
def test_a_patched_package_of_the_same_version_is_another_and_is_refused_at_the_start(site: Path, change: str) -> None:
    before = stack_code(sys.executable, ("forked-stack", "surely-not-installed"))
    (site / "forked_stack" / "README.md").write_text("read me")
    assert before == {"forked-stack": told()["digest"]}
    assert told() == {**told(), "commit": COMMIT, "changed": False, "editable": False}
    check_code(before)
    (site / "forked_stack" / change).write_text("STEP = 2\n")
    assert told()["digest"] != before["forked-stack"]
    with pytest.raises(ConfigError, match="the code of forked-stack changed since the run was planned"):
        check_code(before)


def test_a_checkout_in_front_of_the_installed_package_is_what_is_told(site, tmp_path, monkeypatch):
    source = write(tmp_path / "source", {"forked_stack/__init__.py": "STEP = 1\n"}) / "forked_stack" / "__init__.py"
    for words in (["init"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path / "source"), *words], check=True, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path / "source")
    clean = told()
    source.write_text("STEP = 2\n")
    assert clean["editable"] and clean["commit"] not in (None, COMMIT) and not clean["changed"]
    assert told() == {**clean, "digest": told()["digest"], "changed": True} and told()["digest"] != clean["digest"]


def test_of_a_large_library_the_ends_are_read(tmp_path: Path) -> None:
    digests = set()
    for content in (bytes(5 << 20), b"1" + bytes((5 << 20) - 1), bytes((5 << 20) - 1) + b"1", bytes(6 << 20)):
        (tmp_path / "large.so").write_bytes(content)
        digests.add(package_digest(str(tmp_path), (".so",)))
    assert len(digests) == 4


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node without GPUs, whose PATH holds nothing but this folder."""
    seen_gpus.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices.glob, "glob", lambda pattern: sorted(map(str, tmp_path.glob("nvidia[0-9c]*"))))
    yield tmp_path
    seen_gpus.cache_clear()


def says(node: Path, *lines: str) -> None:
    """Of the lister of GPUs."""
    (node / "nvidia-smi").write_text("\n".join(["#!/bin/sh", *lines]))
    (node / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, None) for text in ("count:2", "ids:4,5", "ids:GPU-0,GPU-1")),
        ("count:4", "asked for 4 GPUs, sees 2"),
        ("ids:1", "asked for 1 GPUs, sees 2"),
        ("", "asked for 0 GPUs, sees 2"),
        ("ids:GPU-0,GPU-7", "asked for GPU-7, sees other GPUs"),
    ],
)
def test_as_many_as_asked_for_are_well_and_any_others_a_failure_with_the_list(node, text, words):
    gpus = ("GPU 0: H200 (UUID: GPU-0)", "GPU 1: H200 (UUID: GPU-1)")
    says(node, *(f"echo '{gpu}'" for gpu in gpus))
    if words is None:
        check_devices({"SUITE_DEVICES": text})
        return
    with pytest.raises(DeviceError) as caught:
        check_devices({"SUITE_DEVICES": text})
    line = f"{words}: {'; '.join(gpus)}"
    assert str(caught.value) == line
    assert failure_kind(caught.value, "setup") == "gpu_unavailable"
    assert failure_evidence(caught.value) == [f"DeviceError: {line}"]


def test_device_files_count_where_there_is_no_lister(node: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (node / name).touch()
    check_devices({"SUITE_DEVICES": "count:2"})
    with pytest.raises(DeviceError, match="asked for 3 GPUs, sees 2"):
        check_devices({"SUITE_DEVICES": "count:3"})


def test_a_lister_that_fails_shows_no_gpu_and_its_words(node: Path) -> None:
    says(node, "echo 'NVIDIA-SMI has failed'", "exit 9")
    with pytest.raises(DeviceError, match="asked for 1 GPUs, sees 0: NVIDIA-SMI has failed"):
        check_devices({"SUITE_DEVICES": "count:1"})


def test_torch_must_see_as_many() -> None:
    check_torch_devices({"SUITE_DEVICES": "count:2"}, 2)
    check_torch_devices({}, 5)
    with pytest.raises(DeviceError, match="asked for 2 GPUs, torch sees 1"):
        check_torch_devices({"SUITE_DEVICES": "ids:0,3"}, 1)


@pytest.mark.parametrize(
    ("shown", "numbers"),
    [("GPU-7", "1"), ("GPU-7, GPU-3", "1,0"), ("0,1", "0,1"), ("GPU-9", "GPU-9"), ("GPU-", "GPU-"), ("MIG-7", "MIG-7")],
)
def test_whole_gpus_are_shown_by_the_drivers_numbers(node: Path, shown: str, numbers: str) -> None:
    """DeepSpeed 0.19.8 ends with a ValueError where the variable holds a UUID."""
    gpus = ("GPU 0: H200 (UUID: GPU-3)", "GPU 1: H200 (UUID: GPU-7)", "  MIG 1g.10gb Device 0: (UUID: MIG-7)")
    says(node, *(f"echo '{line}'" for line in gpus))
    environment = {"CUDA_VISIBLE_DEVICES": shown}
    show_devices_by_number(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == numbers
    assert environment.get("CUDA_DEVICE_ORDER") == ("PCI_BUS_ID" if numbers != shown else None)
