"""The network of one run, as `--smoke` tells it: by message size, beside what it should be, and slow ones warned of."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from suite.cli.app import app
from suite.cli.options.handing_over import HandingOver, tell_network
from suite.conduct.cluster.smoke import smoke_plan, smoke_root
from suite.launch.cluster.launcher import NodeSetup
from suite.launch.ports import free_port
from suite.report.facts.network_check import CONVENTION, network_checks
from suite.spec.layout import Layout
from tests import toy_cluster
from tests.conduct.cluster.test_smoke import Waiting
from tests.report import entries as made
from tests.report.test_network import run
from tests.synthetic import facts_of, synthetic_manifest
from tests.worker.test_network import PROBE
from tests.worker.tiny import ROOT, clean_environment

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


def measured_by_gloo() -> dict[str, Any]:
    """The facts of two real ranks on this machine."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROBE],
            cwd=ROOT,
            env={
                **clean_environment(),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PYTHONPATH": str(ROOT),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return told[0][-1]


@pytest.mark.ranks
def test_two_real_ranks_are_told_by_submit_and_by_collect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gloo is real; the cluster that hands its figures over is a toy."""
    network = measured_by_gloo()
    (measured,) = [one for one in network["measurements"] if one["pattern"] == "all_reduce"]
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    monkeypatch.setattr("tests.synthetic.facts_of", lambda manifest: {**facts_of(manifest), "network": network})
    for module in ("suite.conduct.cluster.standing", "suite.conduct.cluster.collect"):
        monkeypatch.setattr(f"{module}.find_scheduler", lambda name: toy_cluster.ToyScheduler(), raising=False)
    first = smoke_plan(
        [synthetic_manifest(layout=Layout(nodes=1, devices_per_node=2, data=2))], STACKS, {"deepspeed": None}, tmp_path
    )
    handing = HandingOver(Waiting(toy_cluster.ToyOptions("fast"), NodeSetup(python="python")), False, False)
    assert handing.smoke(first, tmp_path)
    said = capsys.readouterr().out
    assert "network within a node, 2 ranks by gloo: all-reduce " in said and "64 KiB " in said
    ((told,),) = handing.first["network"].values()
    assert told["sizes"] == [[one["bytes"], one["bus_bytes_per_second"]] for one in measured["sizes"]]
    for one in measured["sizes"]:
        assert one["bus_bytes_per_second"] == pytest.approx(one["bytes"] / one["seconds"])  # 2(n-1)/n of two is one
    shutil.rmtree(smoke_root(tmp_path) / first[0].run.id)
    done = CliRunner().invoke(app, ["collect", "--runs", str(smoke_root(tmp_path))], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "network within a node, 2 ranks by gloo: all-reduce " in done.output
