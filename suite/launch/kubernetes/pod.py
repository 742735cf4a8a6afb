"""A job in the words of Kubernetes, on a Ray cluster of KubeRay too: the YAML of its objects. Pure."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from suite.launch.classify import CAUSE, Pattern
from suite.launch.cluster.render import render_yaml
from suite.launch.cluster.submission import Submission
from suite.launch.job import RUNS, Job, torchrun_argv
from suite.launch.kubernetes.settings import KubernetesSettings, Variant, literal, object_name, quantity_number
from suite.spec.base import UsageError, worker_json
from suite.spec.version import suite_version

RANKS_VARIABLE = "SUITE_RANKS"  # what ``suite.worker.ray_ranks`` reads
#: what the entry point says where it ends the run itself
PATTERNS = (Pattern("timeout", CAUSE, r"^the ranks are ended: \d+ s are over"),)
_SLOTS_PER_RANK, _LEAST_SLOTS, _NO_DEVICE = 16, 32, 1000


def entry_point(job: Job) -> tuple[str, ...]:
    """The program of Ray's job. It says nothing of the run: it goes through several shells, variables through none."""
    return (job.argv[0], "-m", "suite.worker.ray_ranks")


def pod_variables(job: Job) -> dict[str, str]:
    """The variables of a Ray pod, which Ray hands to all processes; its own are as where a run starts Ray itself."""
    # who reaches the pods' network reaches Ray, as before 2.60; a token would have to lie on every pod, unlike at home
    variables = {**job.env, **worker_json("ray.json"), "RAY_AUTH_MODE": "disabled", RANKS_VARIABLE: ranks_text(job)}
    if not job.device_count:
        # numbers that no driver knows: Ray hands them out as GPUs, and none of its processes finds one by them
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(_NO_DEVICE + rank) for rank in range(job.ranks_per_node))
    return variables


def ranks_text(job: Job) -> str:
    """What is to be started on the cluster, as ``suite.worker.ray_ranks`` reads it."""
    asked: dict[str, Any] = {
        "argv": job.argv,
        "nodes": job.nodes,
        "ranks_per_node": job.ranks_per_node,
        "limit_seconds": math.ceil(job.limits.run_seconds),
    }
    if not job.device_count:
        asked["variables"] = {"CUDA_VISIBLE_DEVICES": job.env.get("CUDA_VISIBLE_DEVICES", "")}
    return json.dumps(asked)


def start_parameters(job: Job, settings: KubernetesSettings) -> dict[str, str]:
    """Options of ``ray start`` on every node. Ray's CPUs are slots for processes, and its GPUs too on CPU ranks."""
    return {
        "num-cpus": str(max(_SLOTS_PER_RANK * job.ranks_per_node, _LEAST_SLOTS)),
        "num-gpus": str(job.ranks_per_node),
        # of /dev/shm; the rest is NCCL's and the trainer's
        "object-store-memory": str(math.floor(quantity_number(settings.shared_memory) / 2)),
        "disable-usage-stats": "true",
    }


def submit_script(job: Job, name: str) -> str:
    """How a pod beside a RayCluster runs the job on it, once its head answers; it prints what the job prints."""
    address = f"--address http://{name}-head-svc:8265"
    waiting = f"until ray job list {address} >/dev/null 2>&1; do sleep 2; done"
    return f"{waiting}; exec ray job submit {address} -- {' '.join(entry_point(job))}"


RUN_LABEL, ROLE_LABEL, ATTEMPT_LABEL = "suite/run", "suite/role", "suite/attempt"
USER = 1000  # and group, of the images
_PLAIN_WORD = re.compile(r"[\w./+-]+")
PORT = 29400
_MOST_BYTES = 1 << 20  # of a ConfigMap's values together; an API server refuses more
_INDEX = "$(JOB_COMPLETION_INDEX)"


class Naming(NamedTuple):
    """How a variant numbers and names the pods of a run, their container and their port."""

    node_rank: str  # what the kubelet replaces by the number of the node
    first_node: str  # name of the first node's pod for the others
    container: str = "suite"
    port_name: str = "rendezvous"


NAMINGS: dict[Variant, Naming] = {
    "job": Naming(_INDEX, "{name}-0.{name}"),
    "jobset": Naming(_INDEX, "{name}-node-0-0.{name}"),
    "trainjob": Naming(_INDEX, "{name}-node-0-0.{name}", container="node"),
    "pytorchjob": Naming("$(RANK)", "{name}-master-0", container="pytorch", port_name="pytorchjob-port"),
    "volcano": Naming("$(VC_TASK_INDEX)", "{name}-node-0.{name}"),
    "rayjob": Naming("", "", container="ray"),
    "raycluster": Naming("", "", container="ray"),
}
#: KubeRay makes a RayCluster of a RayJob, whose name is longer and has its own limit
_LONGEST_RAYJOB = 47


def render_run(submission: Submission, settings: KubernetesSettings) -> str:
    """The YAML of a run, with its manifest for the ranks. Raises as ``render``."""
    manifest = submission.manifest
    files = {"manifest.json": manifest.model_dump_json(by_alias=True) + "\n"}
    about = {"suite/run-id": manifest.run.id, "suite/manifest-hash": manifest.hash, "suite/version": suite_version()}
    return render(submission.job, settings, files, about)


def render(job: Job, settings: KubernetesSettings, files: Mapping[str, str], about: Mapping[str, str]) -> str:
    """The YAML documents of a run, in the order in which a cluster should get them.

    ``files``: text files that the objects carry, the manifest among them. ``about``: annotations. Raises UsageError
    where the job cannot be what the settings ask for.
    """
    carried = sum(len(text.encode(errors="replace")) for text in files.values())
    if carried > _MOST_BYTES:
        raise UsageError(
            f"{job.name}: its manifest has {carried} bytes, and the ConfigMap that would carry it takes {_MOST_BYTES}: "
            "take fewer nodes or rollouts, or lengths that are not drawn; Slurm carries such runs"
        )
    check(job, settings)
    naming = NAMINGS[settings.variant]
    name = object_name(job.name, _LONGEST_RAYJOB) if settings.variant == "rayjob" else object_name(job.name)
    labels = run_labels(job.name)
    # KubeRay finds the head of a cluster by the application's name that it gives its pods itself
    role = {RUN_LABEL: labels[RUN_LABEL], ROLE_LABEL: "ray"} if settings.is_ray else {**labels, ROLE_LABEL: "node"}
    env = pod_variables(job) if settings.is_ray else job.env
    escaped = job.model_copy(update={"argv": tuple(literal(word) for word in job.argv)})
    run_seconds = math.ceil(job.limits.run_seconds)
    return render_yaml(
        f"kubernetes/{settings.variant}.yaml.j2",
        entry_point=" ".join(entry_point(job)),
        start_parameters=start_parameters(job, settings),
        name=name,
        job=job,
        settings=settings,
        naming=naming,
        labels=labels,
        pod_labels=role,
        launcher_labels={**labels, ROLE_LABEL: "submitter"},
        annotations=dict(sorted(about.items())),
        pod_annotations=dict(sorted({**settings.pod_annotations, **about}.items())),
        command=torchrun_argv(escaped, naming.node_rank, naming.first_node.format(name=name), str(PORT)),
        # KubeRay itself gives a RayJob's pod its command
        launcher_command=("bash", "-c", submit_script(job, name)) if settings.variant == "raycluster" else (),
        env={key: literal(value) for key, value in sorted(env.items())},
        indexed=naming.node_rank == _INDEX,
        resources=resources(job, settings),
        bundle=bundle_folder(job.name),
        sub_path=claim_folder(job),
        port=PORT,
        user=USER,
        run_seconds=run_seconds,
        deadline_seconds=run_seconds + settings.wait_seconds,
        files=dict(files),
    )


def render_reader(job: Job, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod that prints what a run left on its claim."""
    folder = bundle_folder(job.name)
    text = render_yaml(
        "kubernetes/reader.yaml.j2",
        generate_name=f"{object_name(job.name)}-read-",
        job=job,
        settings=settings,
        labels={**run_labels(job.name), ROLE_LABEL: "reader"},
        files=[literal(f"{folder}/events/rank-{rank}.jsonl") for rank in range(job.ranks)],
        bundle=folder,
        sub_path=claim_folder(job),
        user=USER,
    )
    return parse(text)[0]


def parse(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def check(job: Job, settings: KubernetesSettings) -> None:
    """Raises UsageError where the job cannot be what the settings ask for."""
    if settings.gang is not None and settings.variant != "trainjob":
        raise UsageError(f"--gang is for a TrainJob; {settings.variant} is placed by its scheduler or its queue")
    if settings.topology is not None and job.nodes == 1:
        raise UsageError(f"--topology {settings.topology} is for runs on several nodes; leave it out for one")
    if settings.is_ray and not _PLAIN_WORD.fullmatch(job.argv[0]):
        raise UsageError(f"{job.argv[0]!r} goes through shells of Ray's: start the ranks with a Python of a plain path")
    for text in (*job.argv, *job.env.values()):
        if "\0" in text:
            raise UsageError(f"{text!a} holds a NUL character, which no command line can carry")


def run_labels(run_id: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "suite", RUN_LABEL: object_name(run_id)}


def resources(job: Job, settings: KubernetesSettings) -> dict[str, str]:
    """What one pod asks for, and all that it gets."""
    asked: dict[str, str] = {}
    if settings.cpus is not None:
        asked["cpu"] = settings.cpus
    if job.limits.memory_bytes is not None:
        shared = math.ceil(quantity_number(settings.shared_memory))
        asked["memory"] = str(job.limits.memory_bytes * job.ranks_per_node + shared)
    if job.device_count:
        asked[settings.gpu_resource] = str(job.device_count)
    if settings.rdma_resource is not None:
        asked[settings.rdma_resource] = str(settings.rdma_count)
    return asked


def bundle_folder(run_id: str) -> str:
    return f"{RUNS}/{run_id}"


def claim_folder(job: Job) -> str:
    return f"runs/{object_name(job.name)}"
