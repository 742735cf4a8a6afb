"""A real Slurm for the tests that need one: two logical nodes on this machine, with pretended GPUs and its own munge.

Nothing of it is installed as a service or reaches beyond the loopback interface, or, where each node has a host of its
own (``tests.hosts``), beyond those two; it ends with the test session. Where none can be started such tests fail in CI
and are skipped elsewhere, with the reason in pytest's summary.
"""

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from suite.launch.local import free_port
from tests.hosts import Host
from tests.needs import require_programs, started_or_skipped
from tests.waiting import ended, logged, wait_until

CANNOT_START = "a Slurm cluster cannot be started here"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
END_SECONDS = 60.0
NODES = ("n1", "n2")
CONTROLLER = ("slurmctld", "-D")
GPUS_PER_NODE = 8

#: Two nodes that do not resolve by name, and a partition of both and of one.
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}({first_address})
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
GresTypes=gpu
ReturnToService=2
KillWait={kill_wait}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr={first_address} Port={first_port} CPUs=8 Gres=gpu:8
NodeName=n2 NodeHostname={host} NodeAddr={second_address} Port={second_port} CPUs=8 Gres=gpu:8
PartitionName=gpu Nodes=n1,n2 Default=YES MaxTime=00:30:00 State=UP OverSubscribe=NO
PartitionName=one Nodes=n1 MaxTime=00:30:00 State=UP OverSubscribe=NO
"""


@dataclass(frozen=True)
class Slurm:
    """A controller and its nodes, and what a command needs to find them."""

    folder: Path
    #: where its nodes are; the first has the controller, and whoever calls its commands
    hosts: tuple[Host, Host] | None = None
    #: by command, as they were last started
    daemons: dict[tuple[str, ...], subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def argv(self, command: Sequence[str], node: str = NODES[0]) -> list[str]:
        return list(command) if self.hosts is None else self.hosts[NODES.index(node)].networked(command)

    def call(self, *command: str, **options: Any) -> subprocess.CompletedProcess:
        """One of Slurm's commands; output as text."""
        argv = self.argv(command)
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60, **options)

    def jobs(self) -> list[str]:
        return self.call("squeue", "--noheader", "--format=%i").stdout.split()

    def start(self, command: tuple[str, ...]) -> None:
        """One of its daemons, also where it was started before and has ended."""
        log = self.folder / f"{'-'.join(command)}.log"
        node = next((name for name in NODES if command == node_daemon(name)), NODES[0])
        self.daemons[command] = logged(self.argv(command, node), log, env={**self.environment, "PATH": PATH})

    def stop(self) -> None:
        for process in reversed(self.daemons.values()):
            ended(process, END_SECONDS)

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-1000:]}" for path in self.folder.glob("*.log")
        )


@contextmanager
def started_slurm(hosts: tuple[Host, Host] | None = None, kill_wait: int = 2) -> Iterator[Slurm]:
    """A cluster while the block runs, on this machine or with a host for each node.

    ``kill_wait``: seconds from SIGTERM to SIGKILL; Slurm's own are 30. Raises RuntimeError with the ends of its logs
    when it does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    slurm = Slurm(folder, hosts)
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        _configure(slurm, kill_wait)
        ending.enter_context(_munge(folder))
        ending.callback(slurm.stop)
        for command in (CONTROLLER, *map(node_daemon, NODES)):
            slurm.start(command)
        wait_until_idle(slurm)
        ending.callback(_end_jobs, slurm)
        yield slurm


def _configure(slurm: Slurm, kill_wait: int) -> None:
    folder = slurm.folder
    folder.chmod(0o755)
    (folder / "state").mkdir()
    devices = folder / "devices"
    devices.mkdir()
    for index in range(GPUS_PER_NODE):
        os.mknod(devices / f"gpu{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    ports = free_ports(3)
    addresses = ("127.0.0.1",) * 2 if slurm.hosts is None else tuple(host.address for host in slurm.hosts)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            folder=folder,
            kill_wait=kill_wait,
            first_address=addresses[0],
            second_address=addresses[1],
            controller_port=ports[0],
            first_port=ports[1],
            second_port=ports[2],
        )
    )
    (folder / "gres.conf").write_text(
        f"AutoDetect=off\nNodeName=n[1-2] Name=gpu File={devices}/gpu[0-{GPUS_PER_NODE - 1}]\n"
    )


def free_ports(count: int) -> list[int]:
    """Free a moment ago, and different."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


@contextmanager
def _munge(folder: Path) -> Iterator[None]:
    """munge with a key, a socket and files of its own."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = (
        f"--{name}={folder}/munge.{end}"
        for name, end in (("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
    )
    command = ("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *files)
    process = logged(command, folder / "munged-output.log", env={**os.environ, "PATH": PATH})
    try:
        wait_until(lambda: (folder / "munge.socket").exists())
        yield
    finally:
        ended(process, END_SECONDS)


def node_daemon(node: str) -> tuple[str, ...]:
    return ("slurmd", "-D", "-N", node)


def wait_until_idle(slurm: Slurm) -> None:
    """Until both nodes take jobs. Raises RuntimeError."""
    states = ("sinfo", "--noheader", "--partition=gpu", "--format=%T %D")
    try:
        wait_until(lambda: slurm.call(*states).stdout.strip() == "idle 2")
    except AssertionError:
        raise RuntimeError(f"Slurm does not come up: {slurm.logs()}") from None


def _end_jobs(slurm: Slurm) -> None:
    """What a job still has on its nodes goes with the job, and would outlive the daemons."""

    def is_over() -> bool:
        if jobs := slurm.jobs():
            slurm.call("scancel", "--signal=KILL", "--full", *jobs)
            slurm.call("scancel", *jobs)
        return not jobs

    wait_until(is_over)


def require_slurm() -> None:
    require_programs(CANNOT_START, *PROGRAMS, root=True)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    require_slurm()
    with started_or_skipped(CANNOT_START, started_slurm()) as started:
        yield started
