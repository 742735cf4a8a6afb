"""The network of one run, as `--smoke` tells it: by message size, beside what it should be, and slow ones warned of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from suite.cli.options.handing_over import HandingOver, tell_network
from suite.conduct.cluster.smoke import smoke_plan, smoke_root
from suite.launch.cluster.launcher import NodeSetup
from suite.report.facts.network_check import CONVENTION, network_checks
from suite.spec.layout import Layout
from tests import toy_cluster
from tests.command import suite
from tests.conduct.cluster.test_smoke import Waiting
from tests.report import entries as made
from tests.report.test_network import run
from tests.synthetic import facts_of, synthetic_manifest

STACKS = {"deepspeed": {"torch": "2.13.0", "deepspeed": "0.18.0", "transformers": "4.57.0"}}


def test_each_scope_is_told_by_size_beside_what_it_should_reach() -> None:
    within, across = network_checks(run().record)
    assert str(within) == (
        "network within a node, nccl: all-reduce 400 GB/s, 89 % of the 450 GB/s of the links, one direction "
        "(1 MiB 0.391, 1 GiB 400)"
    )
    assert (across.scope, across.expected_bytes_per_second, across.warning()) == ("across_nodes", 50e9, None)


def test_less_than_half_of_it_is_a_warning_that_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    record = run(rates={"across_nodes": 20e9}, variables={"NCCL_IB_DISABLE": "1"}).record
    lines: list[str] = []
    told = tell_network(record, lines.append)
    assert CONVENTION in lines[0] and "40 % of the 50" in lines[2]
    warning = " ".join(capsys.readouterr().err.split())
    assert warning == (
        "warning: the network across nodes reaches less than 50 % of what it should: NCCL_IB_DISABLE is set, so "
        "messages go over TCP"
    )
    assert [one["look"] is None for one in told] == [True, False]


def test_a_run_of_several_ranks_without_figures_says_so_and_one_rank_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tell_network(made.entry(ranks=2).record, print) == []
    assert "tells no network" in capsys.readouterr().err
    assert tell_network(made.entry(ranks=1).record, print) == []
    assert tell_network(made.failed(ranks=2).record, print) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("network", [[], "nccl", {"measurements": 3}, {"backend": 7, "measurements": [{}, 1]}])
def test_facts_that_nobody_could_have_measured_are_left_out(network: Any) -> None:
    assert network_checks(made.entry(ranks=2, facts={**made.GPU_FACTS, "network": network}).record) == ()
    sizes = [{"bytes": 1 << 20, "bus_bytes_per_second": rate} for rate in (-1, "fast", None, float("1e30"))]
    wild = [{"scope": "within_node", "pattern": "all_reduce", "ranks": "two", "sizes": sizes}]
    facts = {**made.GPU_FACTS, "network": {"backend": "\x1b[31m", "measurements": wild}}
    assert network_checks(made.entry(ranks=2, facts=facts).record) == ()
    wild[0]["sizes"] = [{"bytes": 1 << 20, "bus_bytes_per_second": 1e9}]
    (check,) = network_checks(made.entry(ranks=2, facts=facts).record)
    assert str(check).isprintable() and check.ranks is None


def test_it_is_told_by_submit_and_by_collect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a toy cluster, whose run tells these figures of two ranks."""
    network = {**made.network({"within_node": 2e9}), "backend": "gloo"}
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    monkeypatch.setattr("tests.synthetic.facts_of", lambda manifest: {**facts_of(manifest), "network": network})
    for module in ("suite.conduct.cluster.standing", "suite.conduct.cluster.collect"):
        monkeypatch.setattr(f"{module}.find_scheduler", lambda name: toy_cluster.ToyScheduler(), raising=False)
    manifest = synthetic_manifest(layout=Layout(nodes=1, devices_per_node=2, data=2))
    first = smoke_plan([manifest], STACKS, {"deepspeed": None}, tmp_path)
    handing = HandingOver(Waiting(toy_cluster.ToyOptions("fast"), NodeSetup(python="python")), False, False)
    assert handing.smoke(first, tmp_path)
    told = "network within a node, gloo: all-reduce 2.00 GB/s"
    assert told in capsys.readouterr().out
    ((check,),) = handing.first["network"].values()
    assert check["sizes"] == [[1 << 20, 2e9 / 1024], [1 << 30, 2e9]]
    shutil.rmtree(smoke_root(tmp_path) / first[0].run.id)
    done = suite("collect", "--runs", smoke_root(tmp_path))
    assert done.exit_code == 0 and told in done.output
