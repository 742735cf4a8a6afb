"""Faults of runs in real pods: an API server, a kubelet and containerd of the harness's own, ranks by script.

What makes pods of Jobs is a stand-in (tests/kubernetes_server/controllers.py), and one node takes all pods.
"""

import json
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psutil
import urllib3
from kubernetes import client, config

from suite.launch.kubernetes.client import Cluster
from tests.faults.judging import check_output, whole_again
from tests.faults.scene import Scene, after_seconds, iterations_told, moment_of, suite_command
from tests.faults.sites import ITERATIONS, Act, Begun, Service, away, by_signal, faults_of, sent_to, struck, told_to_end
from tests.faults.tries import Missed, Verdict, Wrong
from tests.kubernetes_server import node as nodes
from tests.kubernetes_server import server as servers
from tests.kubernetes_server.controllers import Controllers
from tests.kubernetes_server.node import NAME, Node, started_node
from tests.kubernetes_server.node_image import SCRIPTED
from tests.kubernetes_server.server import started_server

SMALL = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--device", "cpu", "--nodes", "2")
ONCE = ("--gpus-per-node", "1", "--repeats", "1", "--warmup", "1", "--iterations", str(ITERATIONS - 1))
PODS = ("--image", SCRIPTED, "--shared-memory", "64Mi", "--timeout", "2m", "--pending-timeout", "2m")
#: what ends a run whose rank is silent
SHORTER = ("--timeout", "60s")
SCRIPT = {"seconds": 0.2, "sleep": True, "measured": True}
WORK = "stand-in worker, 2 pods"
OURS = "app.kubernetes.io/name=suite"
#: of a whole `suite submit` or `suite collect --wait`
WAIT_SECONDS = 300.0


@dataclass
class Site:
    """A cluster of the harness's own. ``FAULTS`` may end and start its programs."""

    node: Node
    cluster: Cluster
    kubeconfig: Path
    #: folders of logs of earlier tries, which the kubelet has not removed yet
    old_logs: frozenset[Path] = frozenset()

    @property
    def environment(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def looks(self) -> Mapping[str, Callable[[], list[str]]]:
        return {"jobs": self.left, "containers": self.node.running}

    def jobs(self) -> dict[str, bool]:
        """Names of the Jobs that there are, and whether each is over."""
        return {job["metadata"]["name"]: bool(job.get("status", {}).get("conditions")) for job in self._find("Job")}

    def pods(self) -> list[str]:
        """Those that wait or run."""
        return [
            str(pod["metadata"]["name"])
            for pod in self._find("Pod")
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def orphans(self) -> list[str]:
        """What no Job owns."""
        owned = {str(job["metadata"]["uid"]) for job in self._find("Job")}
        return [
            f"{kind} {body['metadata']['name']}"
            for kind in ("ConfigMap", "Service")
            for body in self._find(kind)
            if not {str(owner["uid"]) for owner in body["metadata"].get("ownerReferences", ())} & owned
        ]

    def left(self) -> list[str]:
        """What still holds something of the cluster. A Job that is over stays for a day, with what it owns."""
        self.start_again()
        return [name for name, is_over in self.jobs().items() if not is_over] + self.pods() + self.orphans()

    def kubelet(self) -> Service:
        return Service(self.node.kubelet, self.node.start_kubelet)

    def containerd(self) -> Service:
        return Service(self.node.containerd, self.node.start_containerd)

    def api_server(self) -> Service:
        return Service(self.node.server.process, self.node.server.start)

    def start_again(self) -> None:
        for service in (self.api_server(), self.containerd(), self.kubelet()):
            service.start_again()

    def restore(self) -> None:
        self.start_again()
        for kind in ("Job", "ConfigMap", "Service"):
            for body in self._find(kind):
                self.cluster.delete(kind, str(body["metadata"]["name"]))
        self.node.clear()
        self.old_logs = self._logs()

    def begin(self, scene: Scene, random: Random, *options: str) -> Begun:
        driver = scene.start(submit(scene, *options))
        return Begun(self.moment(scene, random), partial(scene.ended, driver, WAIT_SECONDS))

    def moment(self, scene: Scene, random: Random) -> str:
        def state() -> str:
            return f"{self.jobs()} {self.pods()} {scene.output()[-400:]}"

        return moment_of(random, ITERATIONS, lambda: self.finished(scene), state)

    def again(self, scene: Scene, *options: str, iterations: int = ITERATIONS) -> None:
        whole_again(scene, submit(scene, *options), collect(scene), iterations=iterations)

    def rank(self, scene: Scene, number: int) -> psutil.Process:
        """A rank's process as the host sees it. Raises Missed."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if "/opt/scripted_worker.py" in process.cmdline() and process.environ().get("RANK") == str(number):
                    return process
        raise Missed("the rank is not there any more")

    def torchrun(self, scene: Scene, number: int) -> psutil.Process:
        """What has started a rank, by the stand-in for it: the first process of its container. Raises Missed."""
        parent = self.rank(scene, number).parent()
        if parent is None:
            raise Missed("torchrun is not there any more")
        return parent

    def finished(self, scene: Scene) -> int:
        """By the node's own files."""
        return iterations_told(path for pod in self._logs() - self.old_logs for path in pod.glob("*/*.log"))

    def _logs(self) -> frozenset[Path]:
        return frozenset(self.node.logs.glob(f"{self.cluster.namespace}_*"))

    def _find(self, kind: str) -> list[dict]:
        return self.cluster.find(kind, labelSelector=OURS)


def submit(scene: Scene, *options: str) -> list[str]:
    script = ("--env", f"SUITE_SCRIPT={json.dumps(SCRIPT)}")
    runs = ("--runs", str(scene.runs))
    return suite_command("submit", "kubernetes", *SMALL, *ONCE, *PODS, *script, *runs, *options)


def collect(scene: Scene) -> list[str]:
    return suite_command("collect", "--wait", "--runs", str(scene.runs))


def pod_deleted(site: Site, scene: Scene, random: Random) -> Act:
    """By somebody with kubectl."""
    pods = site.pods()
    if len(pods) < 2:
        raise Missed("the pods were over")
    delete = site.node.core.delete_namespaced_pod
    return Act(partial(delete, random.choice(sorted(pods)), site.cluster.namespace, grace_period_seconds=1))


def driver_signal(number: signal.Signals, site: Site, scene: Scene, random: Random) -> Verdict:
    """At any moment of `suite submit`. The run stays in the cluster, and no other is sent for it.

    One that was not wholly handed over is `sending` until the cluster has not known it for a minute, which `suite
    collect --wait` waits for; the same command sends it then.
    """
    driver = scene.start(submit(scene))
    part = random.random()
    if part < 0.2:
        scene.wait_for(lambda: bool(site.orphans()), driver)
        moment = "when its first object was there"
    elif part < 0.6:
        moment = after_seconds(random, 0.2, 12)
    else:
        moment = site.moment(scene, random)
    known = set(site.jobs())
    told_to_end(scene, driver, number, moment)
    for command in (submit(scene), collect(scene)):
        code = scene.ended(scene.start(command), WAIT_SECONDS)
        is_lacking = code == 1 and "collect" in command and scene.record() is None
        if code != 0 and not is_lacking:
            raise Wrong(f"{moment}: the command after it ends with exit code {code}: {scene.output()[-500:]}")
        check_output(scene)
    was_sent = scene.record() is not None
    site.again(scene)
    jobs = set(site.jobs()) | known
    if len(jobs) != 1:
        raise Wrong(f"{moment}: {len(jobs)} Jobs for one run: {sorted(jobs)}")
    how = f"{len(known)} Job then" + ("" if was_sent else ", sent after the wait")
    return Verdict(f"{moment}: {how}", 0, "the same command")


@contextmanager
def started() -> Iterator[Site]:
    """Raises what keeps a cluster from being started here."""
    lacks = [*servers.missing(), *nodes.missing()]
    if lacks:
        raise RuntimeError(f"no {', '.join(lacks)}")
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # its certificate is its own, on this machine
    with ExitStack() as ending:
        server = ending.enter_context(started_server())
        node = ending.enter_context(started_node(server))
        name = f"faults-{uuid.uuid4().hex[:8]}"
        api = config.new_client_from_config(str(server.kubeconfig()))
        client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
        site = Site(node, Cluster(api, name), server.kubeconfig(namespace=name))
        ending.enter_context(Controllers(site.cluster, NAME).at_work())
        yield site


LOST = "the run fails and says why, its pods are ended, --retry-failed does it again"
KEPT = "the run goes on and is collected whole"
SENT = "the run stays in the cluster; the same command and suite collect bring it home, as one Job"
MAKERS = (
    *sent_to("a rank", Site.rank, LOST, stopped=("hang", "timeout"), options=SHORTER),
    *sent_to("torchrun", Site.torchrun, LOST, stopped=("hang", "timeout"), options=SHORTER),
    ("pod deleted", partial(struck, pod_deleted, ("rank_lost",)), LOST),
    # A kubelet and an API server lose nothing by it. Containers go on without containerd, and how one ended meanwhile
    # nobody knows.
    *(
        (f"{number.name} of {name}", partial(struck, away(number, 5, find), kinds), right)
        for name, find, kinds, right in (
            ("the kubelet", Site.kubelet, ("ok",), KEPT),
            ("containerd", Site.containerd, ("ok", "rank_lost"), "the run goes on, or is lost, told and done again"),
            ("the API server", Site.api_server, ("ok",), KEPT),
        )
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
    ),
    *by_signal("suite submit", driver_signal, SENT),
)
faults = partial(faults_of, "kubernetes", WORK, MAKERS)
FAULTS = faults(None)
