"""A real Kubernetes API server on this machine, for as long as a test session: etcd, the server, and two users."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import urllib3
from kubernetes import config
from kubernetes.client import CoreV1Api

from suite.launch.local import free_port
from tests.waiting import answering, logged

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "kubernetes"
#: names the folder of a server that was built elsewhere
VARIABLE = "SUITE_TEST_KUBE_APISERVER"
START_SECONDS = 120.0
#: the first may do everything, the second nothing
USERS = {"admin": ("admin-token", "system:masters"), "guest": ("guest-token", "")}


@dataclass
class Server:
    """A running API server; ``command`` starts it again on what its etcd has kept."""

    folder: Path
    url: str
    command: list[str]
    process: subprocess.Popen | None = None

    def start(self) -> None:
        """Raises RuntimeError with the end of its log when it does not answer in time."""
        log = self.folder / "apiserver.log"
        self.process = logged(self.command, log, cwd=self.folder)
        answering(self.process, log, lambda: _ready(self.url), START_SECONDS)

    def kill(self) -> None:
        """Without a warning."""
        killed(self.process)

    def kubeconfig(self, user: str = "admin", namespace: str = "default") -> Path:
        path = self.folder / f"kubeconfig-{user}-{namespace}"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": USERS[user][0]}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user, "namespace": namespace}}],
            "current-context": "tests",
        }
        path.write_text(json.dumps(body))
        return path

    def core(self) -> CoreV1Api:
        return CoreV1Api(config.new_client_from_config(str(self.kubeconfig())))


def missing() -> list[str]:
    """What a server would need and this machine lacks; empty where one can be started."""
    lacks = [program for program in ("etcd", "openssl") if shutil.which(program) is None]
    if not program_path().is_file():
        lacks.append(f"{program_path()} (make test-all builds it)")
    return lacks


def program_path() -> Path:
    return Path(os.environ.get(VARIABLE, BUILT)) / "kube-apiserver"


@contextmanager
def started_server() -> Iterator[Server]:
    """Raises RuntimeError with the end of the server's log when it does not answer in time."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    etcd, peers, port = (f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}", free_port())
    server = Server(folder, f"https://127.0.0.1:{port}", _apiserver(folder, etcd, port))
    store: subprocess.Popen | None = None
    try:
        _make_keys(folder)
        store = logged(_etcd(folder, etcd, peers), folder / "etcd.log", cwd=folder)
        server.start()
        yield server
    finally:
        server.kill()  # nothing of theirs is kept, and a server without its etcd takes long to end by itself
        killed(store)
        shutil.rmtree(folder, ignore_errors=True)


def _make_keys(folder: Path) -> None:
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    public = ["openssl", "rsa", "-in", str(key), "-pubout", "-out", str(folder / "accounts.pub")]
    subprocess.run(public, check=True, capture_output=True)
    lines = [f'{token},{user},{user},"{group}"' for user, (token, group) in USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")


def _etcd(folder: Path, clients: str, peers: str) -> list[str]:
    return [
        *("etcd", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"),
    ]


def _apiserver(folder: Path, etcd: str, port: int) -> list[str]:
    return [
        *(str(program_path()), "--etcd-servers", etcd, "--secure-port", str(port), "--insecure-port", "0"),
        *("--bind-address", "127.0.0.1", "--advertise-address", "192.0.2.2", "--cert-dir", str(folder)),
        *("--token-auth-file", str(folder / "tokens.csv"), "--authorization-mode", "RBAC"),
        *("--service-account-key-file", str(folder / "accounts.pub")),
        *("--service-account-signing-key-file", str(folder / "accounts.key")),
        *("--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.96.0.0/16"),
        # what needs controllers that do not run here
        *("--disable-admission-plugins", "ServiceAccount"),
    ]


def killed(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()


def _ready(url: str) -> bool:
    headers = {"Authorization": f"Bearer {USERS['admin'][0]}"}
    with suppress(urllib3.exceptions.HTTPError):
        manager = urllib3.PoolManager(cert_reqs="CERT_NONE", timeout=2, retries=False)
        return bool(manager.request("GET", f"{url}/readyz", headers=headers).data == b"ok")
    return False
