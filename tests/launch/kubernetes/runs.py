"""Jobs as the cluster commands make them, and settings that use everything there is."""

from typing import Any, get_args

from suite.conduct.cluster.hand_over import prepare
from suite.launch.cluster.launcher import NodeSetup
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job, JobLimits
from suite.launch.kubernetes.launcher import KubernetesLauncher
from suite.launch.kubernetes.settings import KubernetesSettings, Toleration, Variant
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import synthetic_manifest

IMAGE = "registry.example/lab/suite-engines@sha256:" + "5" * 64
VARIANTS: tuple[Variant, ...] = get_args(Variant)
NAME = "deepspeed-66B-n32-1f3a9c2e-r1"
FOLDER = f"/work/runs/{NAME}"
RAY_PODS = ("head", "workers", "Launcher")

#: every setting there is
FULL: dict[str, Any] = {
    "namespace": "benchmarks",
    "queue": "lab-queue",
    "priority_class": "batch-high",
    "node_selector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "tolerations": (
        Toleration(key="nvidia.com/gpu", effect="NoSchedule"),
        Toleration(key="dedicated", value="benchmarks"),
    ),
    "topology": "topology.kubernetes.io/zone",
    "rdma_resource": "rdma/hca_shared_devices_a",
    "cpus": "96",
    "shared_memory": "64Gi",
    "claim": "results",
    "pull_secrets": ("registry-login",),
    "service_account": "runner",
    "runtime_class": "nvidia",
    "pod_annotations": {"k8s.v1.cni.cncf.io/networks": "rdma-net"},
}


def settings_of(variant: Variant, **changes: Any) -> KubernetesSettings:
    """The fewest settings with which a variant can be rendered."""
    return KubernetesSettings.model_validate({"variant": variant, **changes})


def kubernetes_manifest(nodes: int = 2, ranks_per_node: int = 1, device: str = "cpu", **changes: Any) -> Manifest:
    ranks = nodes * ranks_per_node
    layout = Layout(nodes=nodes, devices_per_node=ranks_per_node, data=ranks)
    precision = "bf16" if device == "cuda" else "fp32"
    return synthetic_manifest(layout=layout, device=device, precision=precision, **changes)


def submission_of(manifest: Manifest, memory_bytes: int | None = None, **env: str) -> Submission:
    return prepare([manifest], launcher_of(env, memory_per_rank=memory_bytes))[0]


def launcher_of(env: dict[str, str], cluster: Any = None, **options: Any) -> KubernetesLauncher:
    nodes = NodeSetup(python="python", image=IMAGE, env=env)
    launcher = KubernetesLauncher(KubernetesSettings(**options), nodes)
    if cluster is not None:
        launcher.connect(cluster)
    return launcher


def job_of(**changes: Any) -> Job:
    """Four nodes of eight GPUs."""
    body: dict[str, Any] = {
        "name": NAME,
        "argv": ("/opt/stack/bin/python", "-m", "suite.worker", f"{FOLDER}/manifest.json", "--bundle", FOLDER),
        "env": {"OMP_NUM_THREADS": "1"},
        "image": IMAGE,
        "nodes": 4,
        "ranks_per_node": 8,
        "device_count": 8,
        "limits": JobLimits(run_seconds=3600.0, memory_bytes=100 << 30),
        **changes,
    }
    return Job.model_validate(body)
