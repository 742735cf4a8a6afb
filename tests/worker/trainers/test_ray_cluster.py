"""Ray of a run: nobody else on the network reaches it, nor another run; one that is named and not there is told."""

import os
import socket
import subprocess
from collections.abc import Iterator
from unittest import mock

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.ray_cluster import RayCluster
from tests.needs import require_environment
from tests.worker.trainers.runs import ALONE


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """What it sets for its processes ends with the test."""
    with mock.patch.dict(os.environ):
        yield


@pytest.mark.parametrize("address", ["local", "ray://head:10001", "head", ":6379", "head:port", "head:65536"])
def test_what_is_no_address_of_a_head_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match="wants HOST:PORT of a head"):
        RayCluster(ALONE, "cpu")


def test_an_address_where_nothing_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening, so nobody else answers there either
        address = "127.0.0.1:{}".format(taken.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=f"nothing answers at RAY_ADDRESS={address}"):
            RayCluster(ALONE, "cpu")


def test_one_where_somebody_listens_is_taken_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:{}".format(head.getsockname()[1]))
        cluster = RayCluster(ALONE, "cpu")
        assert cluster.processes is None
        cluster.close()


#: starts Ray as a run of one node does, with an actor, and tells on which addresses it all listens
ALONE_ON_A_NODE = """
import os, sys
import psutil
import torch
from suite.worker.trainers.processes import below
from suite.worker.trainers.ray_cluster import RayCluster
from tests.needs import require_environment
from suite.worker.world import World

cluster = RayCluster(World(0, 1, 0, 1, torch.device("cpu")), "cpu")
ray = cluster.connect(job=4711)
actor = ray.remote(type("Actor", (), {"answer": lambda self: "answered"})).remote()
print(ray.get(actor.answer.remote()), ray.get_runtime_context().get_job_id(), flush=True)
sys.stdin.readline()
found = [psutil.Process(pid).net_connections("tcp") for pid in (os.getpid(), *below(os.getpid()))]
addresses = {each.laddr.ip.replace("::ffff:", "") for some in found for each in some if each.status == "LISTEN"}
print(*sorted(addresses), flush=True)
ray.shutdown()
cluster.close()
"""


@pytest.mark.ranks
@pytest.mark.trainers
@pytest.mark.timeout(400)
def test_two_at_once_on_a_machine_listen_on_loopback_alone_and_do_not_meet() -> None:
    command = [require_environment("verl"), "-c", ALONE_ON_A_NODE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    runs = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    assert [run.stdout and run.stdout.readline() for run in runs] == ["answered 67120000\n"] * 2, "each has its own"
    for run in runs:
        assert run.communicate("\n", 120)[0] == "127.0.0.1\n"
