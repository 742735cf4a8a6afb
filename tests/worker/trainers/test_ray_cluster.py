"""A Ray that is named and not there is told at once, on every rank."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from unittest import mock

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.ray_cluster import RayCluster
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
        assert not cluster.folder
        cluster.close()
