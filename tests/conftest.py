"""What every test stands on: no network, one thread per process, marks that are true, and Hypothesis's examples."""

import ipaddress
import os
import resource
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.browser import tab  # noqa: F401 - fixture
from tests.built import build_project, docker_api, engines_image, wheelhouse  # noqa: F401 - fixtures
from tests.container_runtime import base_image, runtime  # noqa: F401 - fixtures
from tests.containers import connected, scripted_image  # noqa: F401 - fixtures
from tests.needs import Lacking
from tests.slurm import slurm  # noqa: F401 - fixture

#: a test that lacks something of the machine carries the mark that says what it needs
NEEDS = ("daemon", "packages", "browser", "trainers", "trlx", "gpu")
#: what may take longer than this; the others are told at the end of a run
HEAVY = (*NEEDS, "ranks", "slow", "thorough")
MOST_SECONDS = 2.0
CACHE = Path(os.environ.get("SUITE_TEST_CACHE") or Path.home() / ".cache" / "suite-tests")

# The same examples on every run. `make test-nightly` tries new ones and keeps those that fail, which CI tries again.
settings.register_profile("same", deadline=None, database=None, derandomize=True)
settings.register_profile(
    "kept", deadline=None, database=DirectoryBasedExampleDatabase(CACHE / "hypothesis"), print_blob=True
)
settings.load_profile(os.environ.get("SUITE_TEST_EXAMPLES", "same"))

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and commands in a pipe are as wide as it says

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell. What tests start would inherit it, and be deaf to the Ctrl-C they send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is kept in the home of whoever runs the tests, and nothing there counts."""
    for variable in ("SUITE_CACHE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR"):
        os.environ[variable] = str(tmp_path_factory.mktemp(variable.lower()))


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests take longest come first, so that no process is left alone with them at the end."""
    heavy = {item.path for item in items if _marks(item).intersection(HEAVY)}
    items.sort(key=lambda item: item.path not in heavy)


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the processor time of a test that no mark allows more than MOST_SECONDS."""
    before = _processor_seconds()
    result = yield
    seconds = _processor_seconds() - before
    if seconds > MOST_SECONDS and not _marks(item).intersection(HEAVY):
        _note(item.config, f"{seconds:6.1f} s  {item.nodeid}")
    return result


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


_notes = pytest.StashKey[list[str]]()


def _note(config: pytest.Config, line: str) -> None:
    notes = config.stash.setdefault(_notes, [])
    notes.append(line)
    if hasattr(config, "workeroutput"):  # one of several processes: the first of them tells all
        config.workeroutput["long_tests"] = notes


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(_notes, []).extend(getattr(node, "workeroutput", {}).get("long_tests", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    notes = config.stash.get(_notes, [])
    if notes:
        terminalreporter.section(f"more than {MOST_SECONDS:.0f} s of processor time, and not marked slow")
        terminalreporter.write_line("\n".join(sorted(notes, reverse=True)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that lacks what no mark of its says fails, and so does each skipped one where SUITE_TEST_SKIPS is no."""
    report = yield
    if report.skipped and call.excinfo is not None:
        problem = None
        if isinstance(call.excinfo.value, Lacking) and not _marks(item).intersection(NEEDS):
            problem = f"none of its marks ({', '.join(NEEDS)}) says what it needs"
        elif os.environ.get("SUITE_TEST_SKIPS") == "no":
            problem = "no test may be skipped in this run"
        if problem:
            report.outcome, report.longrepr = "failed", f"{item.nodeid}: {problem}: {call.excinfo.value}"
    return report
