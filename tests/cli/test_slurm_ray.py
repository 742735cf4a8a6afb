"""A trainer on Ray through a real Slurm, whose nodes are hosts that see each other and nothing else. The batch script
starts the ranks, and they start Ray: on two nodes the second joins by the address that the script found out."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from suite.bundle.record import Record, text_of
from suite.bundle.store import Bundle, find_bundles
from tests.backends.test_example_backend import site
from tests.hosts import INTERFACE, Host, hosts
from tests.needs import require_environment, started_or_skipped
from tests.slurm import CANNOT_START, Slurm, require_slurm, started_slurm
from tests.waiting import wait_until

__all__ = ["hosts", "site"]
pytestmark = [pytest.mark.daemon, pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
ASKED = ("--backend", "example-ray", "--size", "1M", "--device", "cpu", "--repeats", "1", "--warmup", "1")
LIMITS = ("--no-exclusive", "--timeout", "8m", "--allowance", "1m")
#: the name of a host resolves to its loopback interface, by which the other is not reached
REACHED = ("--env", f"GLOO_SOCKET_IFNAME={INTERFACE}")
ENDLESS = "100000"
START_SECONDS = 400.0
RAYS = ("gcs_server", "raylet")

Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(hosts: tuple[Host, Host]) -> Iterator[Slurm]:
    require_slurm()
    with started_or_skipped(CANNOT_START, started_slurm(hosts)) as started:
        yield started


@pytest.fixture
def suite(cluster: Slurm, site: Path) -> Suite:
    """The command on the first node, with the toy installed."""
    python = require_environment("verl")
    environment = {**cluster.environment, "PYTHONPATH": str(site), "TMPDIR": "/tmp"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        chosen = ("--python", python) if arguments[0] == "submit" else ()
        argv = cluster.argv([sys.executable, "-m", "suite", *arguments, *chosen])
        return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=START_SECONDS)

    return call


def submitted(suite: Suite, runs: Path, nodes: int, iterations: str) -> None:
    shape = ("--nodes", str(nodes), "--gpus-per-node", str(2 // nodes), "--iterations", iterations)
    done = suite("submit", "slurm", *ASKED, *LIMITS, *shape, *REACHED, "--runs", str(runs))
    assert done.returncode == 0, done.stderr


def collected(suite: Suite, runs: Path, exit_code: int) -> tuple[Record, Bundle]:
    done = suite("collect", "--wait", "--runs", str(runs))
    assert done.returncode == exit_code, done.stdout + done.stderr + output_of(runs)
    (bundle,) = find_bundles([runs])
    record = bundle.record()
    assert record is not None
    assert suite("verify", str(bundle.path)).returncode == 0
    return record, bundle


def output_of(runs: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in (runs / ".submitted").glob("*.out"))


def processes() -> dict[str, list[psutil.Process]]:
    """Ray's on this machine, by name."""
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter(("name",)):
        if process.info["name"] in RAYS or (process.info["name"] or "").startswith("ray::"):
            found.setdefault(process.info["name"], []).append(process)
    return found


def left_behind() -> set[str]:
    """Ray's processes, what is in shared memory, and the folders of Ray and of tasks."""
    names = {f"{each.pid} {name}" for name, some in processes().items() for each in some}
    kept = (path for pattern in ("suite-ray-*", "suite.*") for path in Path("/tmp").glob(pattern))
    return names | {str(path) for path in (*kept, *Path("/dev/shm").iterdir())}


@pytest.mark.parametrize("nodes", [1, 2])
def test_ranks_of_a_batch_script_start_ray_and_leave_nothing(suite: Suite, nodes: int, tmp_path: Path) -> None:
    before = left_behind()
    submitted(suite, tmp_path, nodes, "3")
    record, bundle = collected(suite, tmp_path, 0)
    assert (record.status, record.run.launcher, record.run.ranks) == ("ok", "slurm", 2)
    assert (record.run.layout.nodes, record.run.layout.devices_per_node) == (nodes, 2 // nodes)
    ranks = bundle.events().ranks
    kinds = [[(event["kind"], event.get("phase"), event.get("iteration")) for event in ranks[rank]] for rank in (0, 1)]
    assert kinds[0] == kinds[1], "the second rank did what the first one did"
    started = [line for line in output_of(tmp_path).splitlines() if "Ray runtime started" in line]
    assert len(started) == nodes, "Ray's head, and a node beside the first rank of the other host"
    wait_until(lambda: left_behind() <= before, told=lambda: left_behind() - before)


@pytest.mark.parametrize("how", ["scancel", "head killed", "node killed"])
def test_nothing_of_ray_stays_behind_a_run_on_two_nodes_that_is_ended(suite: Suite, how: str, tmp_path: Path) -> None:
    before = left_behind()
    submitted(suite, tmp_path, 2, ENDLESS)
    wait_until(lambda: '"kind":"iteration"' in output_of(tmp_path), START_SECONDS, lambda: output_of(tmp_path)[-3000:])
    rays = processes()
    assert (len(rays["gcs_server"]), len(rays["raylet"])) == (1, 2), "a head, and a node on each host"
    if how == "scancel":
        assert suite("cancel", "--all", "--runs", str(tmp_path)).returncode == 0
    elif how == "head killed":
        rays["gcs_server"][0].send_signal(signal.SIGKILL)
    else:
        max(rays["raylet"], key=lambda each: each.create_time()).send_signal(signal.SIGKILL)
    record, _ = collected(suite, tmp_path, 1)
    assert record.status == ("interrupted" if how == "scancel" else "failed")
    assert record.failure is not None and record.failure.evidence, text_of(record)[:2000]
    wait_until(lambda: left_behind() <= before, told=lambda: left_behind() - before)
