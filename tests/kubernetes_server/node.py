"""A real node on this machine, for as long as a test session: containerd, CNI's bridge and a kubelet, all of their own.

One node takes all pods of a run, which a cluster's scheduler would spread; each has a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes.client import ApiException, CoreV1Api

from suite.launch.ports import free_port
from tests.kubernetes_server import names, node_image
from tests.kubernetes_server.server import BUILT, Server

#: Its address too: by it the API server reaches the kubelet for logs.
NAME = "127.0.0.1"
#: names the folder of a kubelet that was built elsewhere
VARIABLE = "SUITE_TEST_KUBELET"
PROGRAMS = ("kubelet", "pause")
PLUGINS = Path("/usr/lib/cni")
START_SECONDS, END_SECONDS = 60.0, 60.0
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
    lacks += [f"{_built(name)} (make test-kubelet builds it)" for name in PROGRAMS if not _built(name).is_file()]
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
    kubelet: subprocess.Popen | None = None
    containerd: subprocess.Popen | None = None
    port: int = field(default_factory=free_port)

    def start_kubelet(self) -> None:
        """Raises RuntimeError with the end of its log when the node is not ready in time."""
        self.kubelet = self._start("kubelet", self._kubelet_command())
        self._wait(lambda: _is_ready(self.core), self.kubelet, "kubelet")

    def kill_kubelet(self) -> None:
        """Without a warning; containers go on."""
        if self.kubelet is not None:
            self.kubelet.kill()
            self.kubelet.wait()

    def start_containerd(self) -> None:
        command = ["containerd", "--config", str(self.folder / "containerd.toml")]
        self.containerd = self._start("containerd", command, TZ=ZONE)
        self._wait(lambda: self.ctr("version").returncode == 0, self.containerd, "containerd")

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
        deadline = time.monotonic() + END_SECONDS
        while self.running() or self.core.list_pod_for_all_namespaces().items:
            if time.monotonic() > deadline:
                raise RuntimeError(f"containers do not end: {self.running()}; {self._log('kubelet')}")
            time.sleep(0.2)

    def end(self) -> None:
        """Whatever of it is left on this machine goes, also when it never came up."""
        self.kill_kubelet()
        if self.containerd is not None and self.containerd.poll() is None:
            for one in self.ctr("containers", "list", "--quiet").stdout.split():
                network = _network_of(self.ctr("containers", "info", one).stdout)
                self.ctr("tasks", "kill", "--signal", "SIGKILL", one)
                self.ctr("tasks", "delete", "--force", one)
                self.ctr("containers", "delete", one)
                if network:
                    subprocess.run(("ip", "netns", "delete", Path(network).name), capture_output=True)
            self.containerd.terminate()
            self.containerd.wait()
        _unmount_below(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, command: list[str], **more: str) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, env={**os.environ, **more}, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    def _wait(self, answers: Callable[[], bool], process: subprocess.Popen, name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} is not ready: {self._log(name)}")
            time.sleep(0.2)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def _kubelet_command(self) -> list[str]:
        socket = f"unix://{self.folder}/containerd.sock"
        return [
            *(str(_built("kubelet")), "--kubeconfig", str(self.server.kubeconfig()), f"--hostname-override={NAME}"),
            *("--address=127.0.0.1", f"--port={self.port}", "--healthz-port=0", "--read-only-port=0"),
            *("--container-runtime=remote", f"--container-runtime-endpoint={socket}"),
            *("--cgroup-driver=cgroupfs", "--cgroups-per-qos=false", "--enforce-node-allocatable="),
            *(f"--root-dir={self.folder}/kubelet", f"--cert-dir={self.folder}/pki", "--fail-swap-on=false"),
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
    from kubernetes import config

    core = CoreV1Api(config.new_client_from_config(str(server.kubeconfig())))
    folder = Path(tempfile.mkdtemp(prefix="kubelet-"))  # short: the name of a socket has 107 characters at most
    bridge = f"suitek{os.getpid() % 10_000}{folder.name[-4:]}"[:15]
    with _network(bridge) as gateway, _as_before():
        node = Node(folder, server, core, bridge, gateway)
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
def _network(bridge: str) -> Iterator[str]:
    """A bridge with an address of its own, over which pods reach each other also where Docker forbids forwarding."""
    taken = subprocess.run(("ip", "-o", "-4", "addr"), check=True, capture_output=True, text=True).stdout
    subnet = next(f"172.30.{number}" for number in range(200, 255) if f"172.30.{number}." not in taken)
    rule = ("FORWARD", "--in-interface", bridge, "--out-interface", bridge, "--jump", "ACCEPT")
    try:
        for command in (
            ("ip", "link", "add", bridge, "type", "bridge"),
            ("ip", "addr", "add", f"{subnet}.1/24", "dev", bridge),
            ("ip", "link", "set", bridge, "up"),
            ("iptables", "--wait", "--insert", *rule),
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        yield f"{subnet}.1"
    finally:
        subprocess.run(("iptables", "--wait", "--delete", *rule), capture_output=True)
        subprocess.run(("ip", "link", "delete", bridge), capture_output=True)


@contextmanager
def _as_before() -> Iterator[None]:
    """Kubelet and runc have folders that no option moves: what is new in them afterwards goes."""
    places = (*map(Path, ("/var/log/pods", "/var/log/containers")), *Path("/sys/fs/cgroup").glob("*"))
    before = {path for place in places if place.is_dir() for path in place.iterdir()}
    try:
        yield
    finally:
        now = {path for place in places if place.is_dir() for path in place.iterdir()}
        for path in now - before:
            if path.is_relative_to("/var/log"):
                path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
            elif path.name == "k8s.io":
                with suppress(OSError):  # another node of this machine
                    path.rmdir()


def _is_ready(core: CoreV1Api) -> bool:
    conditions = [
        one for node in core.list_node().items if node.metadata.name == NAME for one in node.status.conditions or ()
    ]
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _network_of(information: str) -> str | None:
    """Path of the network namespace that a container was made in."""
    try:
        spaces = json.loads(information)["Spec"]["linux"]["namespaces"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((space.get("path") for space in spaces if space["type"] == "network"), None)


def _unmount_below(folder: Path) -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{folder}/")]):
        subprocess.run(("umount", "--lazy", point), capture_output=True)
