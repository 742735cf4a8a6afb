"""What a planned run is identified by, and how many iterations and how much time it has."""

import hashlib
from typing import Any

import pytest

from suite.bundle.cache.database import FILE
from suite.conduct.cluster import machine as machines
from suite.conduct.cluster.machine import content_name
from suite.conduct.planning.machine import measured_with, require_same_variables
from suite.conduct.planning.plan import make_joint_plan
from suite.conduct.planning.prediction import (
    LONGEST_LIMIT,
    MARGIN,
    START_SECONDS,
    counted_iterations,
    limits_for,
    run_seconds,
)
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Limits, Manifest, Measure
from tests.conduct.requests import STACKS, make_plan, request

TREE = {"NCCL_ALGO": "Tree"}


def planned(asked: dict[str, Any] | None = None, **given: Any) -> Manifest:
    measure = Measure(device="cpu", precision="fp32", warmup=1, iterations=3, **asked or {})
    wanted = request(backends=("deepspeed",), ranks=(1,), repeats=1, measure=measure)
    return make_plan(wanted, STACKS, **given).manifests[0]


@pytest.mark.parametrize(("name", "usual", "asked"), [("variables", {}, TREE), ("profile", False, True)])
def test_what_is_asked_for_is_in_the_manifest_and_its_hash_and_other_manifests_are_what_they_were(name, usual, asked):
    plain, unasked, made = planned(), planned({name: usual}), planned({name: asked})
    assert plain.model_dump_json() == unasked.model_dump_json() and name not in plain.model_dump_json()
    assert plain.hash != made.hash and plain.run.id != made.run.id
    assert plain.work_hash == made.work_hash, "the same work, so both may be compared"
    assert getattr(Manifest.model_validate_json(made.model_dump_json(by_alias=True)).measure, name) == asked


def test_the_manner_of_the_start_is_in_the_runs_id_and_not_in_the_manifest():
    plain, by_srun = planned(), planned(manner=("srun",))
    assert plain.hash == by_srun.hash
    assert by_srun.run.id == plain.run.id.removesuffix("r1") + "srun-r1"
    beside = planned(manner=("2-at-once",), images={"deepspeed": "sha256:1"})
    assert beside.run.id.endswith("-2-at-once-r1") and "-i" in beside.run.id


def test_secrets_and_guards_are_no_part_of_a_measurement_and_other_options_values_no_variables():
    given = {"NCCL_ALGO": "Tree", "HF_TOKEN": "hf_x", "DB_PASSWORD": "x", "SUITE_REQUIRE_IDLE": "1", "A": "1"}
    assert list(measured_with(given).items()) == [("A", "1"), ("NCCL_ALGO", "Tree")]
    for name, option in (("OMP_NUM_THREADS", "--threads"), ("CUDA_VISIBLE_DEVICES", "--gpu-ids")):
        with pytest.raises(UsageError, match=f"{name}: give it by {option}"):
            measured_with({name: "4"})
    with pytest.raises(UsageError, match="holds bytes that are no UTF-8"):
        measured_with({"A": "\udcff"})


def test_a_manifest_does_not_give_variables_to_programs_by_itself():
    """One that somebody else wrote could have them load what it likes."""
    tree = planned({"variables": TREE})
    require_same_variables(tree, TREE)
    for given, words in (
        ({}, "measured with --env NCCL_ALGO=Tree: its ranks need that again"),
        ({"NCCL_ALGO": "Ring"}, "--env NCCL_ALGO=Tree"),
        ({**TREE, "NCCL_PROTO": "LL"}, "and no other variable"),
    ):
        with pytest.raises(UsageError, match=words):
            require_same_variables(tree, given)


def test_an_image_file_is_known_by_what_it_holds_and_read_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    image, copy = tmp_path / "engines.sqsh", tmp_path / "copy.sqsh"
    for path in (image, copy):
        path.write_bytes(b"first")
    name = content_name(str(image))
    assert name == content_name(str(copy)) == f"sha256:{hashlib.sha256(b'first').hexdigest()}", "wherever it lies"
    with monkeypatch.context() as patched:
        patched.setattr(machines.hashlib, "file_digest", lambda *given: pytest.fail("it is many gigabytes"))
        assert content_name(str(image)) == name
    (tmp_path / "cache" / FILE).write_text("no database")
    assert content_name(str(image)) == name, "what was kept is no more than a short cut"
    image.write_bytes(b"built again")
    assert content_name(str(image)) != name
    with pytest.raises(UsageError, match="no such file or directory; a run is identified by what its image holds"):
        content_name(str(tmp_path / "none.sqsh"))
    with pytest.raises(UsageError, match="is not a regular file"):
        machines.file_digest(tmp_path)
    for other in ("registry.example/suite:1", str(tmp_path)):  # in a registry, or unpacked
        assert content_name(other) == other


OPEN = ("iterations", "run_seconds", "silence_seconds")
CUDA = Measure(device="cuda", precision="bf16")
A100 = "A100-SXM-80GB"


@pytest.mark.parametrize(
    ("seconds", "iterations"),
    [
        *(([0.1], 50), ([1.0], 20), ([2.5], 8), ([100.0], 8), ([200.0], 7), ([549.0], 3), ([5000.0], 3)),
        ([1.0, 549.0], 3),  # the slowest of equal work sets the number for all
        ([], 8),
    ],
)
def test_fast_iterations_are_more_and_slow_ones_fewer(seconds, iterations):
    assert counted_iterations(CUDA, OPEN, seconds) == iterations


def test_what_was_asked_for_or_cannot_be_expected_stands():
    slow = {"iteration_seconds": 549.0, "phases": {"train": 400.0}}
    assert counted_iterations(CUDA, ("run_seconds",), [549.0]) == 8
    assert limits_for(CUDA, Limits(), OPEN, None) == Limits()
    asked = Limits(run_seconds=61, silence_seconds=7)
    assert limits_for(CUDA, asked, ("iterations",), slow) == asked


@pytest.mark.parametrize("seconds", [0.5, 8.0, 47.0, 549.0, 2066.0, 90_000.0])
def test_limits_leave_twice_the_time_and_room_to_start_and_are_no_more_than_a_day(seconds):
    limits = limits_for(CUDA, Limits(), OPEN, {"iteration_seconds": seconds, "phases": {"train": 0.9 * seconds}})
    enough = START_SECONDS + MARGIN * run_seconds(CUDA, seconds)
    assert min(enough, LONGEST_LIMIT) <= limits.run_seconds <= LONGEST_LIMIT == 86_400
    assert limits.run_seconds % 60 == 0
    assert 600 <= limits.silence_seconds <= limits.run_seconds
    assert limits.silence_seconds >= min(MARGIN * 0.9 * seconds, LONGEST_LIMIT)


def test_rows_of_equal_work_count_the_same_iterations_and_have_limits_of_their_own():
    work = {"sizes": (find_size("66B"),), "workload": find_workload("trlx-ds-chat"), "measure": CUDA, "repeats": 1}
    where = {"ranks": (32,), "nodes": 4, "device_memory_bytes": 80 << 30, "device_name": A100}
    slow, fast = make_joint_plan((request(**work, **where, left_open=OPEN),), STACKS).manifests
    assert slow.measure == fast.measure and slow.measure.iterations < 8
    assert slow.limits.run_seconds > fast.limits.run_seconds


def test_what_a_plan_is_made_by_is_no_part_of_its_identity():
    plain = request()
    known = plain.model_copy(update={"device_name": A100, "left_open": OPEN, "preset": "ladder"})
    assert make_joint_plan((plain,), STACKS).id == make_joint_plan((known,), STACKS).id
    assert make_joint_plan((plain,), STACKS).manifests == make_joint_plan((known,), STACKS).manifests, "a CPU's"
