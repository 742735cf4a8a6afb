"""What clusters and ranks say: submissions, the answers of Slurm and of Kubernetes, standard output."""

import io
import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from suite.bundle.files import parse_object
from suite.launch.cluster.ending import read_streams
from suite.launch.cluster.launcher import Stream, Unanswered
from suite.launch.cluster.submission import read_submission
from suite.launch.kubernetes.kept import whole_log
from suite.launch.kubernetes.pods import Pod, read_pods, readable, run_end, scheduler_end
from suite.launch.slurm import client
from suite.launch.slurm.scheduler import read_output, verdict
from suite.launch.stream import EventStream
from suite.spec.names import SAFE_ID
from tests.bundle.archive.planted import a_submission
from tests.fuzz import mutate
from tests.fuzz.manifests import hashed_again
from tests.fuzz.material import TWO_RANKS, folder, in_file, text_of
from tests.synthetic import synthetic_manifest


@cache
def submissions() -> list[Any]:
    return [json.loads(a_submission(synthetic_manifest()).model_dump_json(by_alias=True))]


def hashed(body: Any, random: Random) -> Any:
    if isinstance(body, dict) and isinstance(body.get("manifest"), dict):
        body["manifest"] = hashed_again(body["manifest"], random)
    return body


def _run_of(data: bytes) -> str:
    """What its file is called; another name where the bytes tell none that a file can have."""
    try:
        name = json.loads(data)["manifest"]["run"]["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "submission"
    return name if isinstance(name, str) and SAFE_ID.fullmatch(name) else "submission"


def read_a_submission(data: bytes) -> None:
    submission = read_submission(in_file(f"{_run_of(data)}.json", data))
    submission.model_dump_json(by_alias=True)


SQUEUE = b"7|RUNNING|1700000000|N/A|n[1-4]|None|/shared/me/runs\n7_3|PENDING|N/A|N/A||(Priority)|/shared/me/a|b\n"
SACCT = b"7|CANCELLED by 1000|1700000000|1700000100|n1|None\n"
OUTPUT = (
    b'0: ::suite:: {"kind": "start", "rank": 0, "seq": 0, "time": 1.0}\n0: hello\n1: there\n'
    b'1: ::suite:: {"kind": "piece", "rank": 1, "seq": 0, "part": 0, "parts": 2, "text": "{\\"kind\\": "}\n'
    b'1: ::suite:: {"kind": "piece", "rank": 1, "seq": 0, "part": 1, "parts": 2, "text": "\\"end\\"}"}\n'
    b"srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: tasks 0-1,5: Killed\n"
    b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    b"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
)


def make_slurm(random: Random) -> bytes:
    return random.choice((b"Q", b"A", b"O")) + mutate.lines(random.choice((SQUEUE, SACCT, OUTPUT)), random)


def read_slurm(data: bytes) -> None:
    text = data[1:].decode(errors="replace")
    if data[:1] == b"O":
        streams, own, _ = read_output(io.BytesIO(data[1:]).readlines(), TWO_RANKS, "srun")
        verdict(own, "FAILED", "None")
        read_streams(streams, 2)
        return
    call = client._call
    client._call = lambda *command, **more: text if command[0] == ("squeue" if data[:1] == b"Q" else "sacct") else ""  # type: ignore[assignment]
    try:
        client.find("7")
        client.find_by_name("a", "/shared/me/runs", 3)
    finally:
        client._call = call


_INDEX = {"batch.kubernetes.io/job-completion-index": "0"}
_SPAN = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z"}
_KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137, **_SPAN}}
_UNPLACED = {"reason": "Unschedulable", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}
POD = {
    "kind": "Pod",
    "metadata": {
        "name": "suite-a-0-xyz",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {**_INDEX, "training.kubeflow.org/replica-type": "worker"},
        "annotations": _INDEX,
        "ownerReferences": [{"kind": "PyTorchJob"}],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "ranks"}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "conditions": [
            {"type": "PodScheduled", "status": "False", **_UNPLACED},
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ],
        "initContainerStatuses": [
            {"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff", "message": ""}}}
        ],
        "containerStatuses": [
            {"name": "ranks", "state": _KILLED, "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
        ],
    },
}
_LATE = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
RUNS = [
    {"kind": "Job", "status": {"conditions": [_LATE]}},
    {"kind": "RayJob", "status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}},
    {"kind": "Job", "status": {"state": {"phase": "Aborted", "reason": "PodFailed", "message": "one of them"}}},
]


def make_kubernetes(random: Random) -> bytes:
    warnings = ["FailedScheduling: Insufficient nvidia.com/gpu"]
    body = {"pods": [POD, POD], "run": random.choice(RUNS), "warnings": warnings}
    return mutate.json_bytes(mutate.tree(body, random, 6))


def read_kubernetes(data: bytes) -> None:
    body = parse_object(text_of(data), "answer")
    pods, warnings = body.get("pods"), body.get("warnings")
    found = read_pods(pods if isinstance(pods, list) else [])
    end = run_end(body.get("run") or {})
    told = scheduler_end(
        found, end, 2, [readable(str(each)) for each in warnings] if isinstance(warnings, list) else []
    )
    if told.verdict is not None:
        told.verdict.model_dump_json()
    for pod in found:
        pod.why_pending()


def read_stream(data: bytes) -> None:
    logged: list[bytes] = []
    stream = EventStream(logged.append, lambda event: None)
    for start in range(0, len(data), 7):
        stream.feed(data[start : start + 7])
    stream.close()
    read_streams([Stream("rank-0", io.BytesIO(data).readlines(), (0, 1))], 2)


class _Node:
    """Answers with one log, which breaks off where a bell stands in it."""

    def __init__(self, log: bytes) -> None:
        self.answers = log.split(b"\a")

    def log(self, pod: str, container: str, since: str | None) -> Iterator[bytes]:
        answer = self.answers.pop(0)
        yield from (answer[start : start + 64] for start in range(0, len(answer), 64))
        if self.answers:
            raise Unanswered("it breaks off")


def make_pod_log(random: Random) -> bytes:
    stamped = [b"2026-11-22T00:00:%02d.5Z " % (index // 3) + line for index, line in enumerate(OUTPUT.splitlines(True))]
    whole = b"".join(stamped)
    at = random.randrange(len(whole))
    return mutate.lines(whole[:at] + b"\a" * random.randint(0, 2) + whole, random)


def read_pod_log(data: bytes) -> None:
    pod = Pod("pod", "node", 0, "Succeeded", {"spec": {"containers": [{"name": "suite"}]}})
    text = whole_log(_Node(data), folder() / "run.kept", pod)  # type: ignore[arg-type]
    assert len(text) <= len(data) + 100
    read_streams([Stream("node-0", text.splitlines(keepends=True), (0, 1))], 2)
