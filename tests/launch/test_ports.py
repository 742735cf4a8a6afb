"""Ports that stay free until a rank listens there: the driver's, and those that the worker chooses for Ray."""

import socket
from pathlib import Path
from types import ModuleType

import pytest

from suite.launch import local as of_driver
from suite.worker import ports as of_worker

pytestmark = pytest.mark.parametrize("ports", [of_driver, of_worker], ids=["driver", "worker"])


def test_no_connection_that_goes_out_takes_it(ports: ModuleType) -> None:
    first = int(Path(ports.GIVEN_OUT).read_text().split()[0])
    assert all(1024 < ports.free_port() < first for _ in range(20))


def test_one_that_somebody_listens_on_is_passed_over(ports, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "range").write_text(f"{port + 1}\t{port + 9}\n")
        monkeypatch.setattr(ports, "GIVEN_OUT", tmp_path / "range")
        monkeypatch.setattr(ports, "_LOWEST", port)
        assert ports.free_port() != port


@pytest.mark.parametrize("text", [None, "", "many of them", "1024\t65535\n"])
def test_where_the_kernel_does_not_tell_or_gives_out_all_of_them_it_is_any(ports, text, monkeypatch, tmp_path):
    if text is not None:
        (tmp_path / "range").write_text(text)
    monkeypatch.setattr(ports, "GIVEN_OUT", tmp_path / "range")
    assert ports.free_port() > 1024
