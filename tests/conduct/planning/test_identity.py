"""A run is identified by what changes its measurement: variables of its ranks, their starter, the image by content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster import image_file
from suite.conduct.cluster.image_file import content_name
from suite.conduct.planning.plan import make_plan
from suite.conduct.planning.variables import measured_with, require_same_variables
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Measure
from tests.conduct.requests import STACKS, request

TREE = {"NCCL_ALGO": "Tree"}


def planned(variables: dict[str, str] | None = None, **given: Any) -> Manifest:
    measure = Measure(device="cpu", precision="fp32", warmup=1, iterations=3, variables=variables or {})
    wanted = request(backends=("deepspeed",), ranks=(1,), repeats=1, measure=measure)
    return make_plan(wanted, STACKS, **given).manifests[0]


def test_variables_are_in_the_manifest_and_in_its_hash_and_other_manifests_are_what_they_were() -> None:
    plain, tree = planned(), planned(TREE)
    assert "variables" not in plain.model_dump_json()
    assert plain.hash != tree.hash and plain.run.id != tree.run.id
    assert plain.work_hash == tree.work_hash, "the same work, so both may be compared"
    assert Manifest.model_validate_json(tree.model_dump_json(by_alias=True)).measure.variables == TREE


def test_the_manner_of_the_start_is_in_the_runs_id_and_not_in_the_manifest() -> None:
    plain, by_srun = planned(), planned(manner=("srun",))
    assert plain.hash == by_srun.hash
    assert by_srun.run.id == plain.run.id.removesuffix("r1") + "srun-r1"
    beside = planned(manner=("2-at-once",), images={"deepspeed": "sha256:1"})
    assert beside.run.id.endswith("-2-at-once-r1") and "-i" in beside.run.id


def test_secrets_and_guards_are_no_part_of_a_measurement() -> None:
    given = {"NCCL_ALGO": "Tree", "HF_TOKEN": "hf_x", "DB_PASSWORD": "x", "SUITE_REQUIRE_IDLE": "1", "A": "1"}
    assert list(measured_with(given).items()) == [("A", "1"), ("NCCL_ALGO", "Tree")]


@pytest.mark.parametrize(("name", "option"), [("OMP_NUM_THREADS", "--threads"), ("CUDA_VISIBLE_DEVICES", "--gpu-ids")])
def test_what_the_manifest_says_otherwise_is_not_taken_as_a_variable(name: str, option: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: give it by {option}"):
        measured_with({name: "4"})


def test_a_manifest_does_not_give_variables_to_programs_by_itself() -> None:
    """One that somebody else wrote could have them load what it likes."""
    tree = planned(TREE)
    require_same_variables(tree, TREE)
    with pytest.raises(UsageError, match="its ranks need again: --env NCCL_ALGO=Tree"):
        require_same_variables(tree, {})
    with pytest.raises(UsageError, match="--env NCCL_ALGO=Tree"):
        require_same_variables(tree, {"NCCL_ALGO": "Ring"})
    with pytest.raises(UsageError, match="measured without --env NCCL_PROTO"):
        require_same_variables(tree, {**TREE, "NCCL_PROTO": "LL"})


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "engines.sqsh"
    path.write_bytes(b"first")
    return path


def test_an_image_file_is_known_by_what_it_holds(image: Path, tmp_path: Path) -> None:
    name = content_name(str(image))
    assert name == f"sha256:{hashlib.sha256(b'first').hexdigest()}"
    copy = tmp_path / "copy.sqsh"
    copy.write_bytes(b"first")
    assert content_name(str(copy)) == name, "wherever it lies"
    image.write_bytes(b"built again")
    assert content_name(str(image)) != name


def test_an_image_file_is_read_once(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = content_name(str(image))
    monkeypatch.setattr(image_file.hashlib, "sha256", lambda: pytest.fail("it is many gigabytes"))
    assert content_name(str(image)) == name
    (image_file._place() or image).write_text("no JSON")
    monkeypatch.undo()
    assert content_name(str(image)) == name, "what was kept is no more than a short cut"


def test_a_file_that_is_not_there_has_no_name_and_names_in_registries_are_what_they_are(
    image: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no such file or directory; a run is identified by what its image holds"):
        content_name(str(tmp_path / "none.sqsh"))
    assert content_name("registry.example/suite:1") == "registry.example/suite:1"
    assert content_name(str(tmp_path)) == str(tmp_path), "an unpacked image"
