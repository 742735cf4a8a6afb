"""A manifest once more, on a cluster: the runs that are added, and what would be another measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster.again import plan_again, require_layout
from suite.conduct.cluster.machine import ClusterMachine, cluster_machine
from suite.launch.cluster.submission import write_submission
from suite.spec.base import UsageError
from tests.conduct.cluster.test_collect import submission
from tests.synthetic import make_bundle, synthetic_manifest

MANIFEST = synthetic_manifest()


def machine(**changes: Any) -> ClusterMachine:
    body = {"device": "cpu", "gpu": None, "python": "python", "image": None, "ranks": 1}
    return cluster_machine(**{**body, "stack": {"torch": "1", "deepspeed": "1.0", "transformers": "1"}, **changes})


def test_runs_follow_those_that_are_there_and_those_that_the_cluster_has(tmp_path: Path) -> None:
    make_bundle(tmp_path, MANIFEST)
    first = plan_again(MANIFEST, tmp_path, 2, machine())
    assert [each.run.repeat for each in first.manifests] == [2, 3]
    for each in first.manifests:
        write_submission(tmp_path, submission(each))
    assert plan_again(MANIFEST, tmp_path, 2, machine()).manifests == first.manifests, "the same command goes on"
    more = plan_again(MANIFEST, tmp_path, 3, machine())
    assert [each.run.repeat for each in more.manifests] == [4, 5, 6], "what the cluster has is not taken for free"


def test_ranks_of_another_starter_are_another_row(tmp_path: Path) -> None:
    (by_srun,) = plan_again(MANIFEST, tmp_path, 1, machine(manner=("srun",))).manifests
    assert by_srun.run.id.endswith("-srun-r1") and by_srun.hash == MANIFEST.hash


def test_what_would_be_another_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"measured with deepspeed 1\.0 \(here 2\.0\)"):
        plan_again(MANIFEST, tmp_path, 1, machine(stack={"torch": "1", "deepspeed": "2.0", "transformers": "1"}))
    with pytest.raises(UsageError, match="measured without --env NCCL_ALGO"):
        plan_again(MANIFEST, tmp_path, 1, machine(variables={"NCCL_ALGO": "Tree"}))
    require_layout(MANIFEST, (), 1)
    with pytest.raises(UsageError, match="--nodes 2: the manifest has 1"):
        require_layout(MANIFEST, (2,), None)
