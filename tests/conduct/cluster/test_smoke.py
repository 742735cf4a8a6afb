"""The short run before a ladder; and a manifest once more: what is added, what would be another measurement."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from suite.cli.submit import HandingOver
from suite.conduct.cluster.hand_over import ToDo
from suite.conduct.cluster.machine import ClusterMachine, cluster_machine, plan_again, require_layout
from suite.conduct.cluster.smoke import smoke_plan, smoke_root
from suite.launch.cluster.launcher import Document, NodeSetup
from suite.launch.cluster.submission import Submission, write_submission
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count
from tests import toy_cluster
from tests.conduct.cluster.test_collect import submission
from tests.planner.test_predict_manifest import manifest
from tests.synthetic import make_bundle, synthetic_manifest

STACKS = {"deepspeed": {"torch": "2.13.0", "deepspeed": "0.18.0", "transformers": "5.19.0"}}
IMAGES = {"deepspeed": "registry.example/engines"}
MACHINE = Mock(**{"stacks.return_value": STACKS, "images.return_value": IMAGES, "device_memory_bytes": None})


def planned(size: str, nodes: int) -> Manifest:
    return manifest(size, Layout(nodes=nodes, devices_per_node=8, data=8 * nodes))


def test_it_is_the_smallest_size_or_a_small_one_of_the_family_on_the_most_nodes_for_two_iterations(tmp_path):
    (first,) = smoke_plan([planned("1.3B", 1), planned("6.7B", 4)], MACHINE, tmp_path)
    assert (first.size.name, first.layout.nodes, first.layout.ranks) == ("1.3B", 4, 32)
    assert (first.measure.warmup, first.measure.iterations) == (1, 1)
    assert first.limits.run_seconds <= 1800
    (first,) = smoke_plan([planned("66B", 4)], MACHINE, tmp_path)
    assert first.size.architecture == "gpt2" and parameter_count(first.size).total < 2e9
    assert first.layout.nodes == 4


def test_each_time_is_another_repeat(tmp_path):
    (first,) = smoke_plan([planned("1.3B", 1)], MACHINE, tmp_path)
    (smoke_root(tmp_path) / first.run.id).mkdir(parents=True)
    (second,) = smoke_plan([planned("1.3B", 1)], MACHINE, tmp_path)
    assert (first.run.repeat, second.run.repeat, second.hash) == (1, 2, first.hash)


class Waiting(toy_cluster.ToyLauncher):
    waits = True

    def submit(self, document: Document, earlier: Sequence[Submission]) -> tuple[Submission, ...]:
        (submission,) = document.submissions
        job = f"{self._lane}-0"  # the toy's slow lane ends every run as if it were cancelled
        toy_cluster.JOBS[job] = "over"
        return (submission.with_scheduler(job=job, lane=self._lane),)


@pytest.mark.parametrize(("lane", "goes_on"), [("fast", True), ("slow", False)])
def test_where_runs_are_waited_for_a_failed_one_stops_the_rest(tmp_path, monkeypatch, capsys, lane, goes_on):
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    monkeypatch.setattr("suite.conduct.cluster.standing.find_scheduler", lambda name: toy_cluster.ToyScheduler())
    launcher = Waiting(toy_cluster.ToySettings(lane=lane), NodeSetup(python="python"))
    first = smoke_plan([planned("1.3B", 1)], MACHINE, tmp_path)
    handing = HandingOver(launcher, ToDo((), {}), print)
    assert handing.smoke(first, tmp_path) is goes_on
    assert list(handing.first["smoke"].values()) == ["ok" if goes_on else "interrupted"]
    assert (smoke_root(tmp_path) / first[0].run.id / "record.json").exists()
    assert ("nothing else was submitted" in capsys.readouterr().err) is not goes_on


def test_a_cluster_that_cannot_keep_runs_back_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    launcher = toy_cluster.ToyLauncher(toy_cluster.ToySettings(), NodeSetup(python="python"))
    handing = HandingOver(launcher, ToDo((), {}), print)
    with pytest.raises(UsageError, match="toy cannot have runs wait"):
        handing.smoke(smoke_plan([planned("1.3B", 1)], MACHINE, tmp_path), tmp_path)
    assert toy_cluster.JOBS == {} and list(tmp_path.iterdir()) == []


MANIFEST = synthetic_manifest()


def machine(**changes: Any) -> ClusterMachine:
    body = {"device": "cpu", "gpu": None, "python": "python", "image": None, "max_ranks": 1}
    return cluster_machine(**{**body, "given": {"torch": "1", "deepspeed": "1.0", "transformers": "1"}, **changes})


def test_runs_follow_those_that_are_there_and_those_that_the_cluster_has(tmp_path):
    make_bundle(tmp_path, MANIFEST)
    first = plan_again(MANIFEST, tmp_path, 2, machine())
    assert [each.run.repeat for each in first.manifests] == [2, 3]
    for each in first.manifests:
        write_submission(tmp_path, submission(each))
    assert plan_again(MANIFEST, tmp_path, 2, machine()).manifests == first.manifests, "the same command goes on"
    more = plan_again(MANIFEST, tmp_path, 3, machine())
    assert [each.run.repeat for each in more.manifests] == [4, 5, 6], "what the cluster has is not taken for free"


def test_what_would_be_another_measurement_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"measured with deepspeed 1\.0 \(here 2\.0\)"):
        plan_again(MANIFEST, tmp_path, 1, machine(given={"torch": "1", "deepspeed": "2.0", "transformers": "1"}))
    with pytest.raises(UsageError, match=r"measured with no --env: .* and no other variable"):
        plan_again(MANIFEST, tmp_path, 1, machine(variables={"NCCL_ALGO": "Tree"}))
    require_layout(MANIFEST, (), 1)
    with pytest.raises(UsageError, match="--nodes 2: the manifest has 1"):
        require_layout(MANIFEST, (2,), None)
