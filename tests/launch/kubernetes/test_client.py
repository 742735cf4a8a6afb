"""Whatever a cluster answers, or does not, is one line that says what to do."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from suite.launch.cluster.launcher import Unanswered
from suite.launch.kubernetes.client import Cluster, Refused, connect
from suite.launch.kubernetes.pod import parse, render
from suite.spec.base import UsageError
from tests.launch.kubernetes.runs import VARIANTS, job_of, settings_of

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


class Answers:
    """A server on loopback that gives one answer and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.is_cut = 200, b"{}", False
        self.asked: list[tuple[str, str, bytes]] = []

    def say(self, status: int, message: str) -> None:
        self.status = status
        self.body = json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": status}).encode()


@pytest.fixture
def answers() -> Iterator[tuple[Answers, str]]:
    scripted = Answers()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            scripted.asked.append((self.command, self.path, self.rfile.read(length)))
            self.send_response(scripted.status)
            if scripted.is_cut:
                self.send_header("Transfer-Encoding", "chunked")  # whose last chunk does not come
                scripted.body = b"%x\r\n%s\r\n" % (len(scripted.body), scripted.body)
            self.end_headers()
            self.wfile.write(scripted.body)

        do_GET = do_POST = do_DELETE = do_PATCH = answer

        def log_message(self, *arguments: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield scripted, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def kubeconfig(path: Path, url: str, namespace: str | None = None) -> Path:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    body = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "lab", "context": context}],
        "current-context": "lab",
    }
    path.write_text(json.dumps(body))
    return path


@pytest.fixture
def cluster(answers: tuple[Answers, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", answers[1], "benchmarks")))
    return connect()


@pytest.mark.parametrize(
    ("status", "message", "shown"),
    [
        (401, "Unauthorized", "log in again"),
        (403, 'configmaps is forbidden: User "x" cannot create resource', "you may not do this"),
        (403, 'pods "a" is forbidden: exceeded quota: gpus, requested: 8', "a larger quota"),
        (404, 'namespaces "benchmarks" not found', "make it, or name another"),
        (404, "404 page not found", "install what brings it"),
        (409, 'configmaps "a" already exists', "collect or cancel that run first"),
        (422, "Job is invalid:\nspec: wrong\nspec: wronger", "spec: wrong spec: wronger"),
        (500, "etcdserver: request timed out", "request timed out"),
    ],
)
def test_a_refusal_is_one_line_with_the_servers_words(cluster, answers, status, message, shown):
    answers[0].say(status, message)
    with pytest.raises(Refused) as refusal:
        cluster.create(CONFIG_MAP)
    assert shown in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.status == status


def test_what_is_no_status_is_shown_as_it_is_and_a_node_that_cannot_be_asked_has_no_empty_log(cluster, answers):
    answers[0].status, answers[0].body = 502, b"<html>bad gateway</html>"
    with pytest.raises(Refused, match="bad gateway"):
        cluster.get("Job", "a")
    answers[0].say(500, "dial tcp 10.0.0.7:10250: i/o timeout")
    with pytest.raises(Refused, match="i/o timeout"):
        next(cluster.log("a", "suite"))


def test_what_is_not_there_is_none_and_deleting_it_is_fine(cluster: Cluster, answers: tuple[Answers, str]) -> None:
    answers[0].say(404, 'jobs.batch "a" not found')
    assert cluster.get("Job", "a") is None
    cluster.delete("Job", "a")
    assert list(cluster.log("a", "suite")) == []


def test_a_log_that_breaks_off_gives_what_came_and_says_so(cluster: Cluster, answers: tuple[Answers, str]) -> None:
    answers[0].body, answers[0].is_cut = b"2026-11-22T00:00:01.5Z line 1\n", True
    log, came = cluster.log("a", "suite", "2026-11-22T00:00:00Z"), b""
    with pytest.raises(Unanswered):
        for piece in log:
            came += piece
    assert came == b"2026-11-22T00:00:01.5Z line 1\n"
    query = "container=suite&timestamps=true&sinceTime=2026-11-22T00%3A00%3A00Z"
    assert answers[0].asked[-1][1] == f"/api/v1/namespaces/benchmarks/pods/a/log?{query}"


def test_a_dry_run_says_so_to_the_server(cluster: Cluster, answers: tuple[Answers, str]) -> None:
    cluster.create(CONFIG_MAP, dry_run=True)
    method, path, body = answers[0].asked[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/benchmarks/configmaps?dryRun=All")
    assert json.loads(body) == CONFIG_MAP


def test_the_context_says_which_namespace_and_server(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.namespace == "benchmarks"
    assert connect(namespace="other").namespace == "other"
    with pytest.raises(UsageError, match="there is no kubeconfig context 'prod'"):
        connect("prod")
    kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    assert connect().namespace == "default"
    with pytest.raises(UsageError, match=r"the cluster at http://127.0.0.1:9 does not answer: .*refused"):
        connect().find("Job")


def test_a_kubeconfig_that_is_missing_or_broken_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(UsageError, match="no cluster is configured"):
        connect()
    for text in (b"{", b"[]", b"a: b", b"\0", b"\xff", b"clusters: 3\ncurrent-context: x\ncontexts: 7"):
        config.write_bytes(text)
        with pytest.raises(UsageError):
            connect()
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(UsageError, match=r"suite\[kubernetes\]"):
        connect()


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_object_is_sent_to_where_its_version_and_kind_say(cluster, answers, variant):
    for body in parse(render(job_of(), settings_of(variant), {"manifest.json": "{}"}, {})):
        cluster.create(body)
        root = "api" if body["apiVersion"] == "v1" else "apis"
        place = f"/{root}/{body['apiVersion']}/namespaces/benchmarks/{body['kind'].lower()}s"
        assert answers[0].asked[-1][:2] == ("POST", place)
