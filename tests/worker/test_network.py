"""The network probe: who exchanges messages with whom, what the figures are, and that it ends in time."""

import json
import os
from typing import Any

import pytest
import torch

from suite.worker import ceilings, session
from suite.worker.ceilings import bus_factor, fitting, scopes
from suite.worker.events import EventLog, Progress
from suite.worker.rank import RankIdentity
from suite.worker.world import World
from tests.worker.tiny import be_rank, tiny_body, told_by_ranks
from tests.worker.written import events_in

CPU = torch.device("cpu")


def rank_program(world: World) -> None:
    """The second measurement shows that the first left nothing in the way."""
    told = [ceilings.measure_network(world) for _ in range(2)]
    torch.distributed.all_reduce(torch.ones(1))
    print(json.dumps(told))


class TestTeams:
    def test_there_are_scopes_inside_and_across_nodes_and_of_all_where_they_differ(self):
        assert scopes(4, 4) == [("within_node", [[0, 1, 2, 3]])]
        assert scopes(3, 1) == [("across_nodes", [[0, 1, 2]])]
        inside, across = ("within_node", [[0, 1], [2, 3]]), ("across_nodes", [[0, 2], [1, 3]])
        assert scopes(4, 2) == [inside, across, ("all_ranks", [[0, 1, 2, 3]])]


class TestFigures:
    @pytest.mark.parametrize(
        ("pattern", "ranks", "factor"),
        [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("send_receive", 8, 1.0)],
    )
    def test_bus_bandwidth_is_nccl_tests(self, pattern, ranks, factor):
        assert bus_factor(pattern, ranks) == pytest.approx(factor)

    @pytest.mark.parametrize("bytes_per_second", [1e8, 1e9, 100e9])
    def test_a_slow_network_leaves_the_large_messages_out(self, monkeypatch, bytes_per_second):
        """The time that 64 MiB of buffer would take is scripted; nothing is sent."""
        sizes = tuple(4**power << 20 for power in range(4))
        spent: list[float] = []

        def slowest(world: World, work: Any, repeats: int) -> list[float]:
            size = 4 if not spent else sizes[len(spent) - 1]
            spent.append((repeats + 1) * size / bytes_per_second)
            return [size / bytes_per_second] * repeats

        monkeypatch.setattr(ceilings, "_slowest_seconds", slowest)
        empty = torch.zeros(sizes[-1] // 4)
        team = ceilings._Team(list(range(8)), 0, None, empty, empty)
        told = ceilings._measure(World(0, 8, 0, 8, CPU), team, "all_reduce", sizes, 1.0)
        assert sum(spent) <= 1.0
        assert [line["bytes"] for line in told["sizes"]] == list(sizes[: len(told["sizes"])])
        assert (len(told["sizes"]) == len(sizes)) == (bytes_per_second > 1e9 / 2)
        for line in told["sizes"]:
            assert line["algorithm_bytes_per_second"] == pytest.approx(bytes_per_second)
            assert line["bus_bytes_per_second"] == pytest.approx(1.75 * bytes_per_second)

    def test_messages_take_a_small_part_of_the_free_memory(self):
        assert fitting((1, 4, 16), 64) == (1, 4)
        assert fitting((1, 4, 16), 128) == (1, 4, 16)
        assert fitting((1, 4, 16), 0) == (1,)
        assert fitting((1, 4, 16), None) == (1, 4, 16)


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_two_nodes_of_two_ranks_measure_all_scopes_and_tell_the_same(tmp_path):
    told = told_by_ranks(["tests.worker.test_network"], 4, tmp_path)
    for facts in told[0]:
        assert (facts["backend"], facts["dtype"]) == ("gloo", "float32")
        measured = facts["measurements"]
        assert [(one["scope"], one["pattern"], one["ranks"]) for one in measured] == [
            (scope, pattern, ranks)
            for scope, ranks in (("within_node", 2), ("across_nodes", 2), ("all_ranks", 4))
            for pattern in ("all_reduce", "all_gather", "send_receive")
        ]
        for one in measured:
            assert one["latency_seconds"] > 0
            assert one["sizes"][0]["bytes"] == 1 << 16
            for line in one["sizes"]:
                assert 0 < line["seconds"] <= line["median_seconds"]
                rate = line["bytes"] / line["seconds"]
                assert line["bus_bytes_per_second"] == pytest.approx(rate * bus_factor(one["pattern"], one["ranks"]))
    without_clock = [[{**facts, "seconds": 0} for facts in pair] for pair in told]
    assert all(pair == without_clock[0] for pair in without_clock), "all ranks tell the slowest rank's time"


def test_a_network_that_fails_fails_the_run_and_the_environment_is_told(tmp_path, monkeypatch):
    """Process group and network are replaced; what the session does about the failure is real."""

    def broken(world: World) -> None:
        raise RuntimeError("connection refused by 10.0.0.7")

    monkeypatch.setattr(session, "join", lambda *_: World(0, 2, 0, 2, CPU))
    monkeypatch.setattr(session, "measure_network", broken)
    log = EventLog(str(tmp_path), 0, mirror=False)
    with pytest.raises(RuntimeError, match="connection refused"):
        session.run(tiny_body(2), RankIdentity(0, 2, 0, 2), log, Progress(), lambda _: pytest.fail)  # type: ignore[arg-type]
    log.close()
    (event,) = events_in(tmp_path)
    assert event["kind"] == "environment"
    assert event["facts"]["host"] and "network" not in event["facts"]


if __name__ == "__main__":
    # four ranks on two nodes
    os.environ.update(LOCAL_RANK=str(int(os.environ["RANK"]) % 2), LOCAL_WORLD_SIZE="2")
    be_rank(rank_program)
