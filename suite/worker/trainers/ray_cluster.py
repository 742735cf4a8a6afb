"""Ray for the length of one run: a head beside rank 0, a node beside the first rank of each other host.

The ranks of a run are started by a launcher, one for each device; Ray is started beside them and ends with them
(``guardian``). Where ``RAY_ADDRESS`` names a cluster, as on Kubernetes with KubeRay, that one is used and left alone.

Ray and the trainer's processes listen on loopback alone where there is one node. Several meet by the address that the
nodes have for each other; what Ray says there needs a token, which every run draws anew.
"""

import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any, List, Optional

import torch.distributed as dist

from suite.worker.manifest import declared
from suite.worker.ports import free_port
from suite.worker.rank import ConfigError
from suite.worker.trainers.guardian import STARTED
from suite.worker.trainers.processes import Processes
from suite.worker.trainers.scratch import Guarded, use_own_folder
from suite.worker.world import World

ADDRESS_VARIABLE = "RAY_ADDRESS"
#: no reports home, no monitor that kills workers and starts them anew within a measurement, no colours in logs; workers
#: of the priority that a rank has (Ray's own is the lowest but four), and none that nobody asked for; and patience,
#: because a machine with much to do starts processes slowly, and by itself a node ends whose agent is not there in 30 s
_VARIABLES = declared("ray")
_LOOPBACK = "127.0.0.1"
#: Ray would look up another address of the machine in its place, as on systems where it has no clusters it does not
_LOOPBACK_VARIABLES = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": _LOOPBACK,
}
#: ``ray`` without its server for clients elsewhere, which it starts on a fixed port and has no option against
_RAY = (
    "from ray.scripts import scripts; scripts.get_ray_client_dependency_error = lambda: 'not asked for'; scripts.main()"
)
#: Ray's own CPUs are slots for its processes, not cores: a trainer asks for a few of them for each device.
_SLOTS_PER_RANK, _LEAST_SLOTS = 16, 32
#: Of shared memory for Ray's objects: between the first two, and at most the share of what /dev/shm has free.
_LEAST_STORE_BYTES, _SHARE_OF_SHARED_MEMORY = 80 << 20, 0.5
_STORE_BYTES = {"cpu": 512 << 20, "cuda": 16 << 30}
_START_SECONDS = 300.0
_LAST_LINES = 2
#: for a head that is there
_ANSWER_SECONDS = 30.0
#: where it is slow all the same
_TOO_SLOW, _ATTEMPTS = "timed out during startup", 3
#: the first of the device numbers on a CPU
_NO_DEVICE = 1000


class RayCluster:
    """Ray on the nodes of this run. Collective over all ranks: made, and closed, by each at the same time."""

    def __init__(self, world: World, device_type: str) -> None:
        """Raises ConfigError where Ray does not start or a node does not join, with its last words."""
        self._world, self._device_type = world, device_type
        self._guardian: Optional[Guarded] = None
        #: of this rank's own, removed with it, however it ends
        self.folder = use_own_folder()
        os.environ.update(_VARIABLES)
        self.address = os.environ.get(ADDRESS_VARIABLE, "")
        self.processes: Optional[Processes] = None
        if self.address:
            _raise_first("", gathered(_no_ray_at(self.address), world))
            return
        # Ray's head takes a token where it finds one in somebody's home, and those who connect do not look there
        token = gathered(secrets.token_hex(32), world)[0]
        os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
        self.address = self._start_all()
        pids = gathered(None if self._guardian is None else self._guardian.pid, world)
        self.processes = Processes(pids[world.rank - world.local_rank])

    def connect(self, job: Optional[int] = None, **options: Any) -> Any:
        """``ray.init`` on this cluster, in the process that leads; the module ``ray``. Raises ConfigError.

        ``job``: the number of Ray's job, where the cluster is this run's own.
        """
        import ray
        from ray._private import state, worker

        show = worker.print_to_stdstream
        # standard output is rank 0's events
        worker.print_to_stdstream = lambda data, *others, **named: show({**data, "is_err": True}, *others, **named)
        if job is not None and self.processes is not None:
            state.next_job_id = lambda: ray.JobID.from_int(job)
        try:
            ray.init(address=self.address, include_dashboard=None, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError("no connection to Ray at {}: {}".format(self.address, error)) from error
        return ray

    def close(self) -> None:
        """End what was started here, on this rank's node; nothing where another rank started it, or nobody did."""
        if self._guardian is not None:
            self._guardian.close()

    def _start_all(self) -> str:
        """The head first, then the other nodes; its address. Every rank takes part."""
        world = self._world
        # as other nodes see it: the head itself may know it by another name
        own = socket.gethostbyname(os.environ["MASTER_ADDR"]) if world.rank != world.local_rank else None
        outside = [seen for seen in gathered(own, world) if seen is not None]
        if not outside:
            os.environ.update(_LOOPBACK_VARIABLES)
        address, error = None, None
        if world.rank == 0:
            address = "{}:{}".format(outside[0] if outside else _LOOPBACK, free_port())
            host, _, port = address.rpartition(":")
            error = self._start(["--head", "--port", port], host, os.path.join(self.folder, "ray"))
        address, folder, error = gathered((address, self.folder, error), world)[0]
        if error is None and world.rank and world.local_rank == 0:
            # Ray uses the head's folder by its name on every node
            shared = os.path.join(self.folder, "ray") if os.path.exists(folder) else folder
            error = self._start(["--address", address], _own_address(address), shared)
        errors = gathered(error, world)
        if any(errors):
            self.close()
        _raise_first("Ray did not start: ", errors)
        return address

    def _start(self, arguments: List[str], own_address: str, folder: str) -> Optional[str]:
        """One node, whose end takes the folder away; why it did not start, or None."""
        for _ in range(_ATTEMPTS):
            error = self._attempt(arguments, own_address, folder)
            if error is None or _TOO_SLOW not in error:
                break
        return error

    def _attempt(self, arguments: List[str], own_address: str, folder: str) -> Optional[str]:
        ranks = self._world.local_world_size
        command = [sys.executable, "-c", _RAY, "start", *arguments]
        command += ["--node-ip-address", own_address, "--num-gpus", str(ranks)]
        command += ["--num-cpus", str(max(os.cpu_count() or 1, _SLOTS_PER_RANK * ranks, _LEAST_SLOTS))]
        command += ["--object-store-memory", str(store_bytes(self._device_type)), "--disable-usage-stats"]
        # any that are free: from its own range Ray takes what another Ray on this machine has
        command += ["--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"]
        if "--head" in arguments:
            command += ["--include-dashboard", "false", "--no-monitor", "--temp-dir", folder]
        environment = dict(os.environ)
        if self._device_type == "cpu":
            # Ray hands these numbers to its processes; no driver knows them, so that none of them finds a GPU
            numbers = range(_NO_DEVICE, _NO_DEVICE + ranks)
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, numbers))
        with tempfile.TemporaryFile() as log:
            self._guardian = Guarded(folder, command, stdout=subprocess.PIPE, stderr=log, env=environment)
            output = self._guardian.process.stdout
            said = output.readline() if select.select([output], [], [], _START_SECONDS)[0] else b""
            log.seek(0)
            text = log.read().decode(errors="replace")
        sys.stderr.write(text)
        if said == STARTED:
            return None
        self.close()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "; ".join(lines[-_LAST_LINES:]) or "no answer within {:.0f} s".format(_START_SECONDS)


def store_bytes(device_type: str) -> int:
    room = int(shutil.disk_usage("/dev/shm").free * _SHARE_OF_SHARED_MEMORY) if os.path.isdir("/dev/shm") else 0
    return max(_LEAST_STORE_BYTES, min(_STORE_BYTES[device_type], room))


def gathered(value: Any, world: World) -> List[Any]:
    """What every rank has, by rank."""
    if world.world_size == 1:
        return [value]
    values: List[Any] = [None] * world.world_size
    dist.all_gather_object(values, value)
    return values


def _raise_first(what: str, errors: List[Optional[str]]) -> None:
    for error in filter(None, errors):
        raise ConfigError(what + error)


def _no_ray_at(address: str) -> Optional[str]:
    """Why no Ray is reached there, or None: Ray itself asks again and again for longer than a run may take."""
    if address == "auto":
        return None  # Ray finds one on this machine, or says at once that there is none
    host, _, port = address.rpartition(":")
    try:
        assert host, "no host"  # of which this machine would be made
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (AssertionError, OSError, OverflowError, ValueError) as error:
        return "nothing answers at {}={} ({}); it wants HOST:PORT of a head, without it a run starts its own".format(
            ADDRESS_VARIABLE, address, error
        )
    return None


def _own_address(head: str) -> str:
    """This node's address on the way to the head."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((head.rpartition(":")[0], 9))
        return probe.getsockname()[0]
