"""A node takes what is its own and leaves what another node of the machine has. No container is started here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kubernetes_server import node
from tests.needs import require_programs

pytestmark = pytest.mark.daemon


@pytest.fixture(autouse=True)
def _root() -> None:
    require_programs("a node needs bridges and mounts", "ip", "iptables", "unshare", "nsenter", root=True)


def links() -> str:
    return subprocess.run(("ip", "-o", "link"), check=True, capture_output=True, text=True).stdout


def test_two_nodes_have_bridges_and_networks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with node._network() as (first, gateway), node._network() as (second, other):
        assert first != second
        assert gateway != other
        assert f" {first}: " in links() and f" {second}: " in links()
        monkeypatch.setattr(node, "SUBNETS", [int(first.removeprefix("suitek"))])
        with pytest.raises(RuntimeError, match="no network for pods"):
            node._make_bridge()
    assert f" {first}: " not in links() and f" {second}: " not in links()


def test_logs_of_pods_are_seen_by_their_own_node_alone(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with node._own_mounts(tmp_path / "one") as inside, node._own_mounts(tmp_path / "other") as elsewhere:
        subprocess.run((*inside, "mkdir", "/var/log/suite-test-pod"), check=True)
        assert (tmp_path / "one" / "log" / "suite-test-pod").is_dir()
        for prefix in (elsewhere, ()):
            assert subprocess.run((*prefix, "test", "-e", "/var/log/suite-test-pod")).returncode == 1


def test_the_last_node_that_lives_takes_the_group_of_containers_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(node, "GROUPS", tmp_path)
    group = tmp_path / "memory" / "k8s.io"
    group.mkdir(parents=True)
    with node._shared_group():
        with node._shared_group():
            pass
        assert group.is_dir()
    assert not group.exists()
