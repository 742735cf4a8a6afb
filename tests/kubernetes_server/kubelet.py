"""What a bare API server lacks, played by the tests: the controller that makes a Job's pods, nodes, and their kubelet.

The pods' processes are real. Unless a test asks otherwise, each rank of a node is tests/scripted_worker.py, started
with the variables that torchrun would set; ``with_torchrun`` starts the pod's own command, torchrun with the suite's
worker, with the paths of the image replaced by those of this machine. Logs are served as a kubelet does, so that they
travel through the API server.
"""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes.client import ApiException, CoreV1Api

from suite.launch.image_paths import PYTHON, PYTHON_PATH
from suite.launch.kubernetes.client import Cluster, Refused
from suite.launch.kubernetes.read_back import expanded
from suite.launch.ports import free_port
from tests.kubernetes_server.controllers import INDEX, delete_owned, pod_of_job, set_end, waited_seconds
from tests.kubernetes_server.scripted_torchrun import rank_commands
from tests.kubernetes_server.server import ROOT, make_certificate

TICK_SECONDS = 0.1
SCRIPTED = ROOT / "tests" / "scripted_worker.py"


@dataclass
class Play:
    """How the pod of one node goes. By default it runs and ends as its processes do."""

    waits: str | None = None  # never placed: the scheduler's message
    waiting: tuple[str, str] | None = None  # placed, but its container cannot start: reason and message
    ends_as: dict[str, Any] | None = None  # status of the pod when its processes have ended
    terminated: dict[str, Any] = field(default_factory=dict)  # replaces fields of how its container ended


@dataclass
class Running:
    """A pod that was made."""

    body: dict[str, Any]
    play: Play
    folder: Path
    processes: list[subprocess.Popen] = field(default_factory=list)
    started: float = 0.0
    is_over: bool = False

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def log(self) -> Path:
        return self.folder / "log"


class StandIn:
    """Plays every Job of a namespace until it is stopped. ``plays``: by number of the node."""

    def __init__(
        self, cluster: Cluster, core: CoreV1Api, folder: Path, plays: dict[int, Play], with_torchrun: bool = False
    ) -> None:
        self._cluster, self._core, self._folder = cluster, core, folder
        self._plays, self._with_torchrun = plays, with_torchrun
        self._port = free_port()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, list[Running]] = {}
        self._stopped = threading.Event()
        self.killed_nodes: set[int] = set()  # whose processes are killed when they have run for a moment
        self.trouble: list[BaseException] = []

    @contextmanager
    def at_work(self) -> Iterator["StandIn"]:
        """Play while the block runs; whatever went wrong in it is raised at its end."""
        server = _log_server(self._folder)
        self._node = f"stand-in-{self._cluster.namespace}"
        _make_node(self._core, self._node, server.server_address[1])
        threads = [threading.Thread(target=server.serve_forever), threading.Thread(target=self._work)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            server.shutdown()
            for thread in threads:
                thread.join()
            server.server_close()
            for pod in [pod for pods in self._pods.values() for pod in pods]:
                _kill(pod)
        if self.trouble:
            raise self.trouble[0]

    def _work(self) -> None:
        try:
            while not self._stopped.wait(TICK_SECONDS):
                jobs = {job["metadata"]["uid"]: job for job in self._cluster.find("Job")}
                for uid, job in jobs.items():
                    if uid not in self._jobs:
                        self._begin(job)
                for uid in set(self._jobs) - set(jobs):
                    self._collect_garbage(uid)
                for uid in set(self._jobs):
                    self._go_on(uid)
                for body in self._cluster.find("Pod", labelSelector="suite/role=reader"):
                    if not body["spec"].get("nodeName"):
                        self._read(body)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.trouble.append(error)

    def _begin(self, job: dict[str, Any]) -> None:
        """The Job controller: one pod for each completion, with its number and its owner."""
        uid = job["metadata"]["uid"]
        self._jobs[uid], self._pods[uid] = job, []
        for index in range(job["spec"]["completions"]):
            play = self._plays.get(index, Play())
            body = pod_of_job(job, index)
            if play.waits is None:
                body["spec"]["nodeName"] = self._node
            body = self._cluster.create(body)
            pod = Running(body, play, self._folder / body["metadata"]["name"])
            shutil.rmtree(pod.folder, ignore_errors=True)  # of an earlier pod of that name
            pod.folder.mkdir(parents=True)
            self._pods[uid].append(pod)
            self._place(pod, job)

    def _place(self, pod: Running, job: dict[str, Any]) -> None:
        if pod.play.waits is not None:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self._tell(pod, {"phase": "Pending", "conditions": [{**condition, "message": pod.play.waits}]})
            self._complain(pod, "FailedScheduling", pod.play.waits)
        elif pod.play.waiting is not None:
            reason, message = pod.play.waiting
            waiting = {"waiting": {"reason": reason, "message": message}}
            self._tell(pod, {"phase": "Pending", **_container(pod, waiting)})
            self._complain(pod, "Failed", f"Error: {reason}")
        else:
            pod.started = time.time()
            pod.processes = self._start(pod, job)
            self._tell(pod, {"phase": "Running", **_container(pod, {"running": {"startedAt": _now()}})})

    def _read(self, body: dict[str, Any]) -> None:
        """A pod of its own that prints what is on a claim: placed, run and over at once."""
        name = body["metadata"]["name"]
        target = {"kind": "Node", "name": self._node}
        binding = {"metadata": {"name": name}, "target": target}
        self._core.create_namespaced_binding(self._cluster.namespace, binding, _preload_content=False)
        pod = Running(body, Play(), self._folder / name)
        pod.folder.mkdir()
        (spec,) = body["spec"]["containers"]
        (mount,) = spec["volumeMounts"]
        here = {mount["mountPath"]: str(self._claim(body["spec"], mount))}
        command = [_replaced(expanded(word, {}), here) for word in spec["command"]]
        with pod.log.open("wb") as log:
            code = subprocess.run(command, stdout=log, stderr=log).returncode
        pod.started = time.time()
        self._over(pod, {"phase": "Failed" if code else "Succeeded"}, code)

    def _claim(self, spec: dict[str, Any], mount: dict[str, Any]) -> Path:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        return self._folder / volumes[mount["name"]]["persistentVolumeClaim"]["claimName"] / mount["subPath"]

    def _complain(self, pod: Running, reason: str, message: str) -> None:
        """An event, which stays when the pod is gone."""
        about = {"kind": "Pod", "name": pod.name, "namespace": self._cluster.namespace}
        event = {"metadata": {"generateName": "event-"}, "involvedObject": about, "type": "Warning"}
        self._core.create_namespaced_event(
            self._cluster.namespace, {**event, "reason": reason, "message": message, "lastTimestamp": _now()}
        )

    def _start(self, pod: Running, job: dict[str, Any]) -> list[subprocess.Popen]:
        """The kubelet: files and folders of the volumes, variables, command."""
        spec = pod.body["spec"]["containers"][0]
        mounts = {mount["mountPath"]: pod.folder / mount["mountPath"].strip("/") for mount in spec["volumeMounts"]}
        for mount in spec["volumeMounts"]:
            if mount["name"] == "run" and "subPath" in mount:
                shared = self._claim(pod.body["spec"], mount)
                mounts[mount["mountPath"]] = shared
                mounts[f"{mount['mountPath']}/manifest.json"] = shared / "manifest.json"
        files = self._cluster.get("ConfigMap", job["metadata"]["name"])
        assert files is not None
        for mount in spec["volumeMounts"]:
            target = mounts[mount["mountPath"]]
            if mount["name"] == "files":
                target.write_text(files["data"][mount["subPath"]])
            else:
                target.mkdir(parents=True, exist_ok=True)
        index = pod.body["metadata"]["annotations"][INDEX]
        variables = {entry["name"]: entry.get("value", index) for entry in spec["env"]}
        command = [expanded(word, variables) for word in spec["command"]]
        env = {name: expanded(value, variables) for name, value in variables.items()}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path[1:]])
        paths = {str(path): str(here) for path, here in mounts.items()} | {PYTHON_PATH: str(ROOT)}
        command = [_replaced(word, paths) for word in command]
        run = (
            [self._own_command(command)]
            if self._with_torchrun
            else rank_commands(command, sys.executable, str(SCRIPTED))
        )
        with pod.log.open("wb") as log:
            return [
                subprocess.Popen(
                    argv, env={**os.environ, **env, **more}, stdout=log, stderr=log, start_new_session=True
                )
                for argv, more in (one if isinstance(one, tuple) else (one, {}) for one in run)
            ]

    def _own_command(self, command: list[str]) -> list[str]:
        """Name service and a network of one's own per pod are what this machine lacks: one address, one free port."""
        assert command[0] == PYTHON
        swap = {"--master_addr": "127.0.0.1", "--master_port": str(self._port)}
        names = [word.partition("=") for word in command[1:]]
        return [
            sys.executable,
            *(f"{name}={swap[name]}" if name in swap else name + sep + value for name, sep, value in names),
        ]

    def _go_on(self, uid: str) -> None:
        job, pods = self._jobs[uid], self._pods[uid]
        if all(pod.is_over for pod in pods) and job.get("played"):
            return
        for pod in pods:
            self._watch(pod)
        failed = [pod for pod in pods if pod.is_over and pod.body["status"]["phase"] == "Failed"]
        if failed:
            self._end_job(uid, "Failed", "PodFailurePolicy", f"Container of pod {failed[0].name} failed")
        elif all(pod.is_over for pod in pods):
            self._end_job(uid, "Complete", "", "")
        elif waited_seconds(job) > job["spec"]["activeDeadlineSeconds"]:
            self._end_job(uid, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")

    def _watch(self, pod: Running) -> None:
        if pod.is_over or not pod.processes:
            return
        if int(pod.body["metadata"]["annotations"][INDEX]) in self.killed_nodes:
            _kill(pod)
        codes = [process.poll() for process in pod.processes]
        if time.time() - pod.started > pod.body["spec"]["activeDeadlineSeconds"]:
            _kill(pod)
            message = "Pod was active on the node longer than the specified deadline"
            self._over(pod, {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}, 137)
        elif all(code is not None for code in codes) or any(codes):
            _kill(pod)
            code = next((code for code in codes if code), 0)
            status = {"phase": "Failed" if code else "Succeeded", **(pod.play.ends_as or {})}
            self._over(pod, status, code if code >= 0 else 128 - code)

    def _over(self, pod: Running, status: dict[str, Any], code: int) -> None:
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "startedAt": _now(pod.started), "finishedAt": _now()}
        pod.is_over = True
        self._tell(pod, {**status, **_container(pod, {"terminated": {**ended, **pod.play.terminated}})})

    def _end_job(self, uid: str, kind: str, reason: str, message: str) -> None:
        """The Job controller at the end: what still runs of a failed Job is deleted with its logs."""
        job = self._jobs[uid]
        job["played"] = True
        set_end(self._cluster, job, kind, reason, message)
        for pod in self._pods[uid]:
            if not pod.is_over:
                self._remove(pod)

    def _collect_garbage(self, uid: str) -> None:
        """The garbage collector: what a deleted Job owned goes with it."""
        del self._jobs[uid]
        for pod in self._pods.pop(uid):
            self._remove(pod)
        delete_owned(self._cluster, uid, ("ConfigMap", "Service"))

    def _remove(self, pod: Running) -> None:
        _kill(pod)
        pod.is_over = True
        try:
            self._core.delete_namespaced_pod(pod.name, self._cluster.namespace, grace_period_seconds=0)
        except ApiException as error:
            if error.status != 404:
                raise

    def _tell(self, pod: Running, status: dict[str, Any]) -> None:
        pod.body["status"] = status
        try:
            self._cluster.patch("Pod", f"{pod.name}/status", {"status": status})
        except Refused as error:
            if error.status != 404:
                raise


def _replaced(text: str, paths: dict[str, str]) -> str:
    """Paths of the pod as paths of this machine, the longest first."""
    for path in sorted(paths, key=len, reverse=True):
        if text == path or text.startswith(f"{path}/"):
            return paths[path] + text[len(path) :]
    return text


def _container(pod: Running, state: dict[str, Any]) -> dict[str, Any]:
    spec = pod.body["spec"]["containers"][0]
    ready = "running" in state
    return {
        "containerStatuses": [
            {
                "name": spec["name"],
                "image": spec["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": state,
            }
        ]
    }


def _kill(pod: Running) -> None:
    for process in pod.processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _now(seconds: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _make_node(core: CoreV1Api, name: str, port: int) -> None:
    """A node whose kubelet answers at ``port`` of this machine."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    core.create_node({"metadata": {"name": name}})
    core.patch_node_status(name, {"status": status})


def _moment(line: int) -> bytes:
    moment = datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=line // 10)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{line % 10}Z ".encode()


def _log_server(folder: Path) -> ThreadingHTTPServer:
    """What of a kubelet serves logs: /containerLogs/NAMESPACE/POD/CONTAINER."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            _, kind, _, pod, _ = asked.path.split("/")
            log = folder / pod / "log"
            if kind != "containerLogs" or not log.exists():
                self.send_error(404)
                return
            lines = log.read_bytes().splitlines(keepends=True)
            query = parse_qs(asked.query)
            if query.get("timestamps") == ["true"]:  # ten lines a second
                lines = [_moment(number) + line for number, line in enumerate(lines)]
                lines = [line for line in lines if line[:19].decode() >= query.get("sinceTime", [""])[0][:19]]
            tail = query.get("tailLines")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"".join(lines[-int(tail[0]) :] if tail else lines))

        def log_message(self, *arguments: Any) -> None:
            return

    certificate, key = make_certificate(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server
