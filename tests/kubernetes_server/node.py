"""A real node on this machine, for as long as a test session: containerd, CNI's bridge and a kubelet, all of their own.

One node takes all pods of a run, which a cluster's scheduler would spread; each has a network namespace of its own.
Several nodes may live on the machine: none sees or touches what is another's (``_own_mounts``, ``_network``,
``_shared_group``).
"""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes.client import ApiException, CoreV1Api

from suite.launch.local import free_port
from tests.kubernetes_server import names, node_image
from tests.kubernetes_server.server import BUILT, Server, killed
from tests.waiting import answering, ended, logged, wait_until

#: Its address too: by it the API server reaches the kubelet for logs.
NAME = "127.0.0.1"
#: names the folder of a kubelet that was built elsewhere
VARIABLE = "SUITE_TEST_KUBELET"
PROGRAMS = ("kubelet", "pause")
PLUGINS = Path("/usr/lib/cni")
START_SECONDS, END_SECONDS = 120.0, 120.0
#: what every node of the machine holds while it lives
LOCK = Path("/run/suite-test-nodes.lock")
GROUPS = Path("/sys/fs/cgroup")
#: third numbers of the networks 172.30.0.0/24 that nodes take
SUBNETS = range(200, 255)
#: a container's log is cut when it is larger; the kubelet looks every ten seconds
LOG_MEBIBYTES, LOG_FILES = 2, 3
#: containerd writes moments of log lines in its own zone, and a node need not have UTC
ZONE = "Asia/Kolkata"

CONTAINERD = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/container.json"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/net.d"
"""


def missing() -> list[str]:
    """What a node would need and this machine lacks; empty where one can be started."""
    lacks = [name for name in ("containerd", "ctr", "runc", "ip", "iptables") if shutil.which(name) is None]
    lacks += [f"{PLUGINS / name}" for name in ("bridge", "host-local", "loopback") if not (PLUGINS / name).exists()]
    lacks += [f"{_built(name)} (make test-all builds it)" for name in PROGRAMS if not _built(name).is_file()]
    return [*lacks, *(["root"] if os.geteuid() != 0 else [])]


def _built(program: str) -> Path:
    return Path(os.environ.get(VARIABLE, BUILT)) / program


@dataclass
class Node:
    """A running node."""

    folder: Path
    server: Server
    core: CoreV1Api
    bridge: str
    gateway: str
    #: before each program of the node, so that it sees the node's own mounts
    inside: tuple[str, ...]
    kubelet: subprocess.Popen | None = None
    containerd: subprocess.Popen | None = None
    port: int = field(default_factory=free_port)

    @property
    def logs(self) -> Path:
        """Where the kubelet keeps a folder for each pod's logs."""
        return self.folder / "log" / "pods"

    def start_kubelet(self) -> None:
        """Raises RuntimeError with the end of its log when the node is not ready in time."""
        self.kubelet = self._start("kubelet", self._kubelet_command())
        answering(self.kubelet, self.folder / "kubelet.log", lambda: _is_ready(self.core), START_SECONDS)

    def start_containerd(self) -> None:
        command = ["containerd", "--config", str(self.folder / "containerd.toml")]
        self.containerd = self._start("containerd", command, TZ=ZONE)
        log = self.folder / "containerd.log"
        answering(self.containerd, log, lambda: self.ctr("version").returncode == 0, START_SECONDS)

    def kill_kubelet(self) -> None:
        """Without a warning; containers go on."""
        killed(self.kubelet)

    def kill_containerd(self) -> None:
        """Without a warning; containers go on."""
        killed(self.containerd)

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess:
        command = ("ctr", "--address", f"{self.folder}/containerd.sock", "--namespace", "k8s.io", *arguments)
        return subprocess.run(command, capture_output=True, text=True)

    def running(self) -> list[str]:
        """Ids of the containers that run, those that hold namespaces among them."""
        lines = [line.split() for line in self.ctr("tasks", "list").stdout.splitlines()[1:]]
        return [words[0] for words in lines if words[2] == "RUNNING"]

    def clear(self) -> None:
        """Delete all pods, and wait until the kubelet has ended them and given back their addresses."""
        for pod in self.core.list_pod_for_all_namespaces().items:
            try:
                self.core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=1)
            except ApiException as error:
                if error.status != 404:  # gone with its Job
                    raise
        wait_until(
            lambda: not self.running() and not self.core.list_pod_for_all_namespaces().items,
            END_SECONDS,
            lambda: f"{self.running()} do not end",
        )

    def end(self) -> None:
        """Whatever of it is left on this machine goes, also when it never came up."""
        self.kill_kubelet()
        if self.containerd is not None and self.containerd.poll() is None:
            for one in self.ctr("containers", "list", "--quiet").stdout.split():
                self.ctr("tasks", "kill", "--signal", "SIGKILL", one)
                self.ctr("tasks", "delete", "--force", one)
                self.ctr("containers", "delete", one)
            ended(self.containerd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        return logged((*self.inside, *command), self.folder / f"{name}.log", env={**os.environ, **more})

    def _kubelet_command(self) -> list[str]:
        socket = f"unix://{self.folder}/containerd.sock"
        return [
            *(str(_built("kubelet")), "--kubeconfig", str(self.server.kubeconfig()), f"--hostname-override={NAME}"),
            *("--address=127.0.0.1", f"--port={self.port}", "--healthz-port=0", "--read-only-port=0"),
            *("--container-runtime=remote", f"--container-runtime-endpoint={socket}"),
            *("--cgroup-driver=cgroupfs", "--cgroups-per-qos=false", "--enforce-node-allocatable="),
            *(f"--root-dir={self.folder}/kubelet", f"--cert-dir={self.folder}/pki", "--fail-swap-on=false"),
            f"--volume-plugin-dir={self.folder}/plugins",
            *(f"--cluster-dns={self.gateway}", f"--cluster-domain={names.DOMAIN}"),
            # no rules and no folders of the machine's own; and a full disk of the machine is not the tests' matter
            *("--make-iptables-util-chains=false", "--feature-gates=DevicePlugins=false"),
            *("--eviction-hard=memory.available<1Mi", "--image-gc-high-threshold=100"),
            *(f"--container-log-max-size={LOG_MEBIBYTES}Mi", f"--container-log-max-files={LOG_FILES}"),
            "--node-status-update-frequency=2s",
        ]


@contextmanager
def started_node(server: Server) -> Iterator[Node]:
    """A node of this API server while the block runs. Raises RuntimeError where one of its programs does not start."""
    core = server.core()
    folder = Path(tempfile.mkdtemp(prefix="kubelet-"))  # short: the name of a socket has 107 characters at most
    with _shared_group(), _network() as (bridge, gateway), _own_mounts(folder) as inside:
        node = Node(folder, server, core, bridge, gateway, inside)
        try:
            _configure(node)
            node.start_containerd()
            for archive in node_image.write_images(folder, _built("pause")):
                done = node.ctr("images", "import", "--snapshotter", "native", str(archive))
                if done.returncode != 0:
                    raise RuntimeError(f"{archive.name}: {done.stderr}")
            node.start_kubelet()
            with names.serving_names(core, gateway):
                yield node
                node.clear()
        finally:
            node.end()


def _configure(node: Node) -> None:
    folder = node.folder
    config = CONTAINERD.format(folder=folder, pause=node_image.PAUSE, plugins=PLUGINS)
    (folder / "containerd.toml").write_text(config)
    (folder / "container.json").write_text(json.dumps(node_image.container_specification()))
    ranges = [[{"subnet": node.gateway.rpartition(".")[0] + ".0/24", "gateway": node.gateway}]]
    addresses = {"type": "host-local", "dataDir": f"{folder}/addresses", "ranges": ranges}
    addresses["routes"] = [{"dst": "0.0.0.0/0"}]
    plugin = {"type": "bridge", "bridge": node.bridge, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    (folder / "net.d").mkdir()
    network = {"cniVersion": "0.4.0", "name": "suite", "plugins": [plugin]}
    (folder / "net.d" / "10-suite.conflist").write_text(json.dumps(network))


@contextmanager
def _network() -> Iterator[tuple[str, str]]:
    """A bridge and its address, over which pods reach each other also where Docker forbids forwarding."""
    bridge, gateway = _make_bridge()
    rule = ("FORWARD", "--in-interface", bridge, "--out-interface", bridge, "--jump", "ACCEPT")
    try:
        for command in (
            ("ip", "addr", "add", f"{gateway}/24", "dev", bridge),
            ("ip", "link", "set", bridge, "up"),
            ("iptables", "--wait", "--insert", *rule),
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        yield bridge, gateway
    finally:
        subprocess.run(("iptables", "--wait", "--delete", *rule), capture_output=True)
        subprocess.run(("ip", "link", "delete", bridge), capture_output=True)


def _make_bridge() -> tuple[str, str]:
    """One whose name holds the number of its subnet, and the address that it is to have.

    The kernel gives a name once, so that of two nodes that start at one moment each has a subnet of its own.
    """
    taken = subprocess.run(("ip", "-o", "-4", "addr"), check=True, capture_output=True, text=True).stdout
    refused = ""
    for number in SUBNETS:
        if f"172.30.{number}." in taken:
            continue
        bridge = f"suitek{number}"
        done = subprocess.run(("ip", "link", "add", bridge, "type", "bridge"), capture_output=True, text=True)
        if done.returncode == 0:
            return bridge, f"172.30.{number}.1"
        refused = done.stderr
    raise RuntimeError(f"no network for pods: {refused or 'all subnets are taken'}")


@contextmanager
def _own_mounts(folder: Path) -> Iterator[tuple[str, ...]]:
    """What to put before a command for it to see mounts of the node's own, which nothing else of the machine sees.

    The kubelet keeps the logs of pods in /var/log, which no option moves, and removes there what belongs to no pod that
    it knows: those of another kubelet. So /var/log is a folder of the node's there. The mounts, among them those of
    containers and volumes, are gone with the last process that sees them.
    """
    (folder / "log").mkdir()
    script = 'mount --bind "$0" /var/log && echo made && read _'
    command = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", script, str(folder / "log"))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as maker:
        if maker.stdout.readline() != "made\n":
            raise RuntimeError(f"no mounts of its own for a node: {maker.stderr.read()}")
        held = os.open(f"/proc/{maker.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        maker.stdin.close()
    try:
        yield ("nsenter", f"--mount=/proc/{os.getpid()}/fd/{held}")
    finally:
        os.close(held)


@contextmanager
def _shared_group() -> Iterator[None]:
    """containerd makes control groups of all containers below one of a name that no option changes.

    It goes with the last node of the machine that lives.
    """
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with suppress(BlockingIOError):  # another node lives
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for group in (*GROUPS.glob("k8s.io"), *GROUPS.glob("*/k8s.io")):
                    with suppress(OSError):  # somebody else's
                        group.rmdir()


def _is_ready(core: CoreV1Api) -> bool:
    conditions = [
        one for node in core.list_node().items if node.metadata.name == NAME for one in node.status.conditions or ()
    ]
    return any(one.type == "Ready" and one.status == "True" for one in conditions)
