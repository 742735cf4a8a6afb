"""The cluster's API through the official client: plain JSON in and out, and one line where it refuses."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from suite.launch.cluster.launcher import Unanswered
from suite.spec.base import UsageError

ASK_SECONDS = (5, 30)  # to connect, to answer
#: to connect to a log that is followed, and how long that may be silent; at once read of it
_SILENT_SECONDS, _PIECE_BYTES = (5, 60), 1 << 16
_PATCH, _JSON = "application/merge-patch+json", "application/json"
_WHERE = {
    "ConfigMap": "api/v1/namespaces/{namespace}/configmaps",
    "Service": "api/v1/namespaces/{namespace}/services",
    "Pod": "api/v1/namespaces/{namespace}/pods",
    "Event": "api/v1/namespaces/{namespace}/events",
    "ResourceQuota": "api/v1/namespaces/{namespace}/resourcequotas",
    "Job": "apis/batch/v1/namespaces/{namespace}/jobs",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets",
    "TrainingRuntime": "apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainingruntimes",
    "TrainJob": "apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs",
    "PyTorchJob": "apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs",
    "RayJob": "apis/ray.io/v1/namespaces/{namespace}/rayjobs",
    "RayCluster": "apis/ray.io/v1/namespaces/{namespace}/rayclusters",
    "VolcanoJob": "apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs",
}
KINDS = frozenset(_WHERE) - {"Pod", "Event", "ResourceQuota"}  # what a run is made of
#: what to do, by status and a word of the server's
_ADVICE = (
    (401, "", "; log in again"),
    (403, "exceeded quota", "; ask for less, or for a larger quota"),
    (403, "", "; you may not do this: the rights that it takes are in docs/kubernetes.md"),
    (404, "namespaces ", "; make it, or name another with --namespace"),
    (404, "", "; install what brings it, or choose another --variant"),
    (409, "", "; collect or cancel that run first"),
)


class Refused(UsageError):
    """Request rejected by the API server. ``status``: its HTTP code; ``message``: its own words."""

    def __init__(self, text: str, status: int, message: str) -> None:
        super().__init__(text)
        self.status, self.message = status, message


class Cluster:
    """One namespace of a cluster, by an ``ApiClient`` of it. Every call raises UsageError where it cannot be done."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api = api
        self.namespace = namespace
        self.server = str(api.configuration.host)

    def create(self, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        """The object as the server made it, or would make it."""
        return self._call("POST", kind_of(body), body=body, query_params={"dryRun": "All"} if dry_run else {})

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        with _unless_status(404):
            return self._call("GET", kind, name)
        return None

    def find(self, kind: str, **query: str) -> list[dict[str, Any]]:
        """All that the label or field selectors choose."""
        return list(self._call("GET", kind, query_params=query)["items"])

    def patch(self, kind: str, name: str, body: dict[str, Any]) -> None:
        self._call("PATCH", kind, name, body=body)

    def delete(self, kind: str, name: str) -> None:
        """With all that it owns; nothing where there is none."""
        with _unless_status(404):
            self._call("DELETE", kind, name, body={"propagationPolicy": "Background"})

    def log(
        self, pod: str, container: str, since: str | None = None, tail_lines: int | None = None, follows: bool = False
    ) -> Iterator[bytes]:
        """What a container printed, piece by piece, each line behind its moment; nothing where it never started. All of
        it, or what came from the second of ``since`` on, or so many last lines. With ``follows`` also what comes, until
        it ends or is silent for a while. Raises Refused where its node cannot be asked, Unanswered where it breaks off.
        """
        asked = {"sinceTime": since, "tailLines": tail_lines, "follow": "true" if follows else None}
        query = {"container": container, "timestamps": "true"} | {name: each for name, each in asked.items() if each}
        seconds = _SILENT_SECONDS if follows else ASK_SECONDS
        with (
            _unless_status(400, 404),
            _api_errors(self, "GET Pod"),
            closing(self._answer("GET", "Pod", f"{pod}/log", seconds, query_params=query)) as response,
        ):
            yield from response.stream(_PIECE_BYTES)

    def _call(self, method: str, kind: str, name: str = "", **given: Any) -> dict[str, Any]:
        with _api_errors(self, f"{method} {kind}"):
            return json.loads(self._answer(method, kind, name, **given).data)

    def _answer(
        self, method: str, kind: str, name: str = "", seconds: tuple[float, float] = ASK_SECONDS, **given: Any
    ) -> Any:
        """An ``HTTPResponse`` whose body is not read yet. ``given``: of the client, body and query_params."""
        path = "/" + _WHERE[kind].format(namespace=self.namespace) + (f"/{name}" if name else "")
        return self._api.call_api(
            path,
            method,
            header_params={"Accept": _JSON, "Content-Type": _PATCH if method == "PATCH" else _JSON},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=seconds,
            **given,
        )


def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
    """The cluster of a kubeconfig context, the current one unless named, or the one this process runs in. Nothing is
    asked of it yet. Raises UsageError where the client is not installed or no cluster is configured."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise UsageError("the Kubernetes client is missing: pip install 'rlhf-suite[kubernetes]'") from error
    import urllib3
    import yaml

    # a kubeconfig that skips the check of certificates was written so on purpose
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    # more logs may be followed at once than connections are kept
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    settings = client.Configuration()
    settings.retries = False
    # the client reads the variable only once, when it is imported
    file = os.environ.get("KUBECONFIG") or None
    try:
        config.load_kube_config(config_file=file, context=context, client_configuration=settings)
        contexts, current = config.list_kube_config_contexts(config_file=file)
        chosen = next((one for one in contexts if one["name"] == context), current)
        namespace = namespace or chosen["context"].get("namespace")
    except config.ConfigException as error:
        if context is not None:
            raise UsageError(f"there is no kubeconfig context {context!r}: {_line(error)}") from error
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            raise UsageError(f"no cluster is configured: {_line(error)}; set KUBECONFIG or name a --context") from error
    # all that the client lets through
    except (yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"the kubeconfig {file or 'in ~/.kube'} cannot be read: {_line(error)}") from error
    return Cluster(client.ApiClient(settings), namespace or "default")


def kind_of(body: dict[str, Any]) -> str:
    """The name under which this module knows an object's kind: Volcano calls its own Job as Kubernetes does."""
    kind = str(body["kind"])
    return "VolcanoJob" if kind == "Job" and not str(body["apiVersion"]).startswith("batch/") else kind


@contextmanager
def _unless_status(*statuses: int) -> Iterator[None]:
    """Go on after the block where the server refuses with one of these."""
    try:
        yield
    except Refused as error:
        if error.status not in statuses:
            raise


@contextmanager
def _api_errors(cluster: Cluster, call: str) -> Iterator[None]:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        status, message = int(error.status or 0), _message(error)
        advice = next((then for code, word, then in _ADVICE if code == status and word in message), "")
        where = f"namespace {cluster.namespace} of {cluster.server}"
        raise Refused(f"{where} refuses {call}: {message}{advice}", status, message) from error
    except (HTTPError, OSError) as error:
        raise Unanswered(f"the cluster at {cluster.server} does not answer: {_line(error)}") from error


def _message(error: Any) -> str:
    try:
        answer = json.loads(error.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        answer = error.body or error.reason or str(error.status)
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return " ".join(text.split())[:1000]


def _line(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", None) or error).split())[:300]
