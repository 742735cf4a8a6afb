"""What every test stands on: no network, one thread per process, and the same hypothesis examples on every run."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from typing import Any

import pytest
from hypothesis import settings

from tests.built import build_project, docker_api, engines_image, wheelhouse  # noqa: F401 - fixtures
from tests.container_runtime import base_image, runtime  # noqa: F401 - fixtures
from tests.containers import connected, scripted_image  # noqa: F401 - fixtures
from tests.slurm import slurm  # noqa: F401 - fixture

settings.register_profile("suite", deadline=None, database=None, derandomize=True)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell. What tests start would inherit it, and be deaf to the Ctrl-C they send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is kept in the home of whoever runs the tests, and nothing there counts."""
    os.environ["SUITE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that leaves this machine fails at once, and says which test asked for it."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise OSError(f"a test tried to connect to {address[0]}: tests use no network")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())
