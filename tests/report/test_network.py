"""The network in reports and as `--smoke` tells it: beside what it should be, slow ones told, facts of any shape."""

import shutil
from typing import Any
from unittest.mock import Mock

import pytest

from suite.cli.submit import HandingOver, tell_network
from suite.conduct.cluster.hand_over import ToDo
from suite.conduct.cluster.smoke import smoke_plan, smoke_root
from suite.launch.cluster.launcher import NodeSetup
from suite.report.facts.entry import Entry
from suite.report.facts.environment import environment_differences
from suite.report.facts.model import build
from suite.report.facts.network import CONVENTION, network_checks
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from tests import toy_cluster
from tests.command import suite
from tests.conduct.cluster.test_smoke import Waiting
from tests.report import entries as made
from tests.report.reports import EVIL
from tests.synthetic import facts_of, synthetic_manifest

HDR = {"state": "ACTIVE", "bits_per_second": 400e9, "link_layer": "InfiniBand", "name": "mlx5_0", "port": "1"}
NVLINKS = {"links": 18, "active": 18, "to_ranks": 18, "version": 4}
LOGS = "NCCL_DEBUG=INFO shows whether NCCL takes them (NET/IB) or TCP (NET/Socket)"


def gpu(**nvlinks: Any) -> dict[str, Any]:
    pcie = {"generation": 1, "max_generation": 5, "width": 16, "max_width": 16}
    return {"pci": "0000:3b:00.0", "pcie": pcie, "nvlinks": {**NVLINKS, **nvlinks}}


def run(ranks=16, rates=None, gpus=None, adapters=(HDR,) * 8, variables=None, **asked: Any) -> Entry:
    """A run on H100s in nodes of eight, whose network is a good one but for what is given."""
    topology = {"gpus": [gpu()] * 8 if gpus is None else gpus, "adapters": list(adapters), "nvidia_peermem": True}
    facts = {
        **made.GPU_FACTS,
        "network": made.network({"within_node": 400e9, "across_nodes": 45e9, **(rates or {})}),
        "topology": topology,
        "variables": variables or {},
    }
    return made.entry(**{"ranks": ranks, "device": "cuda", "size": "1.3B", "facts": facts, **asked})


def caveats(*entries: Entry) -> tuple[str, ...]:
    return build(entries).caveats


class TestFigures:
    def test_lines_are_medians_over_the_runs_of_equal_ranks_and_nodes(self) -> None:
        entries = [run(repeat=1), run(repeat=2, rates={"across_nodes": 35e9}), run(repeat=3, backend="megatron")]
        within, across = build([*entries, made.entry()]).networks
        assert (within.scope, within.rows, within.runs, within.ranks, within.nodes) == ("within_node", (2, 3), 3, 16, 2)
        assert within.bus_bytes_per_second["all_reduce"] == 400e9
        assert across.bus_bytes_per_second["all_reduce"] == 45e9
        assert across.latency_seconds == pytest.approx(20e-6)
        assert within.expected_bytes_per_second == 450e9, "one direction of the 900 GB/s of the data sheet"
        assert across.expected_bytes_per_second == 50e9, "a card of 400 Gb/s for each device"

    def test_a_cpu_has_measurements_alone_and_is_not_judged(self) -> None:
        model = build([made.entry(ranks=2, facts={**made.CPU_FACTS, "network": made.network({"within_node": 1.5e9})})])
        (line,) = model.networks
        assert (line.bus_bytes_per_second["all_reduce"], line.expected_bytes_per_second, model.caveats) == (
            1.5e9,
            None,
            (),
        )

    def test_a_machine_has_its_links_and_adapters_and_others_are_another_machine(self) -> None:
        (machine,) = build([run(gpus=[gpu()] * 7 + [gpu(active=17)]), made.failed(device="cuda")]).machines
        assert machine.facts["NVLinks"] == ("17 of 18 NVLinks; 18 NVLinks",)
        assert machine.facts["network adapters"] == ("8 x 400 Gb/s InfiniBand",)
        assert len(build([run(), run(ranks=8, gpus=[gpu()])]).machines) == 1
        for changed in ({"gpus": [gpu(active=0)] * 8}, {"adapters": [HDR | {"link_layer": "Ethernet"}]}):
            other = run(repeat=2, **changed)
            assert [row.runs for row in build([run(), other]).rows] == [1, 1]
            (difference,) = environment_differences([run().record], [other.record])
            assert difference.kind == "machine"


SLOW = {"ranks": 2, "rates": {"within_node": 100e9}}
CAUSES: dict[str, tuple[dict[str, Any], str | None]] = {
    "a good one": ({}, None),
    "few adapters": ({"adapters": (HDR,), "rates": {"across_nodes": 5e9}}, None),
    "few and slow": ({"adapters": (HDR,), "rates": {"across_nodes": 1e9}}, "16 % of the 6.25 GB/s of a device's share"),
    "no adapter": ({"adapters": (), "rates": {"across_nodes": 1e9}}, "adapter, so messages go over TCP"),
    "links down": (
        {"rates": {"within_node": 200e9}, "gpus": [gpu(active=9, to_ranks=9)] * 8},
        "44 % of the 450 GB/s of the links, one direction; 9 of 18 NVLinks of a device are up",
    ),
    "links off": ({"rates": {"within_node": 200e9}, "variables": {"NCCL_P2P_DISABLE": "1"}}, "NCCL_P2P_DISABLE is set"),
    "slow links": (SLOW, "the network within a node is slow"),
    "links to others": ({**SLOW, "gpus": [gpu(to_ranks=4)] * 2}, None),
    "links unknown": ({**SLOW, "gpus": []}, None),
}


class TestSlowNetworks:
    def test_tcp_beside_active_adapters_is_told_with_what_to_look_at(self) -> None:
        (line,) = caveats(run(rates={"across_nodes": 2e9}), run(repeat=2))
        assert line == (
            "R1 (1 run): the network across nodes is slow: all-reduce has a bus bandwidth of 2.0 GB/s, 4.0 % of the "
            f"50.0 GB/s of a device in its maker's own systems; 8 adapters of the first node are active: {LOGS}"
        )

    @pytest.mark.parametrize(("asked", "told"), CAUSES.values(), ids=CAUSES)
    def test_a_slow_network_is_told_with_its_cause_and_not_for_what_the_run_could_not_use(self, asked, told):
        found = caveats(run(**asked))
        assert len(found) == (told is not None) and all(told in line for line in found)

    @pytest.mark.parametrize("variables", [{"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}])
    def test_a_switched_off_adapter_is_told_even_where_the_rate_is_fine(self, variables: dict[str, str]) -> None:
        (line,) = caveats(run(variables=variables))
        assert "the network across nodes is not the one that the nodes have: NCCL_" in line
        assert line.endswith(" is set, so messages go over TCP")
        assert caveats(run(variables=variables, adapters=())) == ()
        assert caveats(run(variables={"NCCL_IB_DISABLE": "0"})) == ()

    def test_an_unknown_device_is_judged_by_its_adapters_alone(self) -> None:
        unknown = {"name": "Some Accelerator 9000", "memory_bytes": 80 << 30, "count": 8}
        entry = run(rates={"within_node": 1e6, "across_nodes": 1e6})
        facts = {**entry.record.environment.worker, "device": unknown}
        (line,) = caveats(run(facts=facts))
        assert "across nodes" in line


HOSTILE = [
    None,
    7,
    "network",
    [],
    {"measurements": 7},
    {"measurements": [None, "x", 3, [], {}]},
    {"measurements": [{"scope": ["within_node"], "pattern": {"a": 1}, "sizes": 3}]},
    {"measurements": [{"scope": "</td>", "pattern": "all_reduce", "sizes": [{"bus_bytes_per_second": 1.0}]}]},
    *(
        {"measurements": [{"scope": "within_node", "pattern": "all_reduce", "sizes": [{"bus_bytes_per_second": rate}]}]}
        for rate in ("1e9<script>", True, -1, 0, 1e300, 10**40)
    ),
]
SHAPELESS = {
    "gpus": [{"nvlinks": {"links": EVIL, "active": EVIL}, "pcie": {"max_generation": EVIL, "width": True}}],
    "adapters": [{"state": "ACTIVE", "bits_per_second": 10**30, "link_layer": EVIL, "name": [EVIL]}],
}


@pytest.mark.parametrize("told", HOSTILE, ids=range(len(HOSTILE)))
def test_facts_that_are_no_measurement_show_nothing(told: Any) -> None:
    entry = run(facts={**made.GPU_FACTS, "network": told, "topology": told, "variables": told})
    model = build([entry])
    assert (model.networks, model.caveats) == ((), ()) and "## Network" not in render(model, {})
    assert network_checks(entry.record) == ()


@pytest.mark.parametrize(
    "told", [*HOSTILE, {"gpus": HOSTILE, "adapters": HOSTILE}, {"gpus": [{"nvlinks": 3}] * 8}, SHAPELESS]
)
def test_topology_of_any_shape_leaves_the_figures(told: Any) -> None:
    slow = made.network({"within_node": 1e9, "across_nodes": 1e9})
    model = build([run(facts={**made.GPU_FACTS, "network": slow, "topology": told, "variables": told})])
    assert [line.scope for line in model.networks] == ["within_node", "across_nodes"]
    assert any("across nodes is slow" in line for line in model.caveats)
    assert render(model, {})


STACKS = {"deepspeed": {"torch": "2.13.0", "deepspeed": "0.18.0", "transformers": "5.19.0"}}


def test_each_scope_is_told_by_size_beside_what_it_should_reach() -> None:
    within, across = network_checks(run().record)
    assert str(within) == (
        "network within a node: all-reduce 400 GB/s, 89 % of the 450 GB/s of the links, one direction "
        "(1 MiB 0.391, 1 GiB 400)"
    )
    assert (across.scope, across.expected_bytes_per_second, across.warning) == ("across_nodes", 50e9, None)


def test_less_than_half_of_it_is_a_warning_that_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    record = run(rates={"across_nodes": 20e9}, variables={"NCCL_IB_DISABLE": "1"}).record
    lines: list[str] = []
    told = tell_network(record, lines.append)
    assert CONVENTION in lines[0] and "40 % of the 50" in lines[2]
    warning = " ".join(capsys.readouterr().err.split())
    assert warning == (
        "warning: the network across nodes is slow: all-reduce has a bus bandwidth of 20 GB/s, 40 % of the 50.0 GB/s "
        "of a device in its maker's own systems; NCCL_IB_DISABLE is set, so messages go over TCP"
    )
    assert [one["warning"] is None for one in told] == [True, False]


def test_a_run_of_several_ranks_without_figures_says_so_and_one_rank_is_silent(capsys):
    assert tell_network(made.entry(ranks=2).record, print) == []
    assert "tells no network" in capsys.readouterr().err
    assert tell_network(made.entry(ranks=1).record, print) == []
    assert tell_network(made.failed(ranks=2).record, print) == []
    assert capsys.readouterr() == ("", "")


def test_it_is_told_by_submit_and_by_collect(tmp_path, monkeypatch, capsys):
    """On a toy cluster, whose run tells these figures of two ranks."""
    network = {**made.network({"within_node": 2e9}), "backend": "gloo"}
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    monkeypatch.setattr("tests.synthetic.facts_of", lambda manifest: {**facts_of(manifest), "network": network})
    monkeypatch.setattr("suite.conduct.cluster.standing.find_scheduler", lambda name: toy_cluster.ToyScheduler())
    manifest = synthetic_manifest(layout=Layout(nodes=1, devices_per_node=2, data=2))
    machine = Mock(**{"stacks.return_value": STACKS, "images.return_value": {"deepspeed": None}})
    machine.device_memory_bytes = None
    first = smoke_plan([manifest], machine, tmp_path)
    waiting = Waiting(toy_cluster.ToySettings(lane="fast"), NodeSetup(python="python"))
    handing = HandingOver(waiting, ToDo((), {}), print)
    assert handing.smoke(first, tmp_path)
    told = "network within a node: all-reduce 2.00 GB/s"
    assert told in capsys.readouterr().out
    ((check,),) = handing.first["network"].values()
    assert check["sizes"] == [[1 << 20, 2e9 / 1024], [1 << 30, 2e9]]
    shutil.rmtree(smoke_root(tmp_path) / first[0].run.id)
    done = suite("collect", "--runs", smoke_root(tmp_path))
    assert done.exit_code == 0 and told in done.output
