"""`suite render kubernetes` and `suite submit kubernetes` as a user types them, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from suite.launch.cluster.submission import submissions
from tests.command import suite
from tests.launch.kubernetes.runs import IMAGE

RUN = ("--backend", "megatron", "--size", "66B", "--nodes", "4", "--gpus-per-node", "8", "--repeats", "1")


def render(runs: Path, *more: str, image: str = IMAGE) -> Result:
    return suite("render", "kubernetes", *RUN, "--image", image, "--runs", str(runs), *more)


def test_what_is_said_of_the_cluster_is_in_the_pods(tmp_path: Path) -> None:
    done = render(
        tmp_path,
        *("--namespace", "lab", "--queue", "q", "--priority-class", "high", "--node-selector", "gpu=h100"),
        *("--toleration", "nvidia.com/gpu:NoSchedule", "--toleration", "dedicated=bench", "--toleration", "spot"),
        *("--topology", "rack", "--rdma", "rdma/hca=8", "--cpus-per-node", "96", "--memory-per-rank", "100g"),
        *("--shared-memory", "64Gi", "--pull-secret", "login", "--env", "NCCL_IB_HCA=mlx5", "--timeout", "2h"),
        *("--pending-timeout", "30m", "--keep", "1h", "--pod-annotation", "net=rdma", "--gpu-resource", "amd.com/gpu"),
    )
    assert done.exit_code == 0, done.output
    carried, *_, job = yaml.safe_load_all(done.stdout)
    manifest = json.loads(carried["data"]["manifest.json"])
    assert (manifest["size"]["name"], manifest["layout"]["nodes"]) == ("66B", 4) and not list(tmp_path.iterdir())
    assert job["metadata"]["namespace"] == "lab"
    assert job["spec"]["activeDeadlineSeconds"] == 9000
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600
    pod = job["spec"]["template"]["spec"]
    assert pod["activeDeadlineSeconds"] == 7200
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Equal", "value": "bench"},
        {"key": "spot", "operator": "Exists"},
    ]
    limits = pod["containers"][0]["resources"]["limits"]
    assert (limits["amd.com/gpu"], limits["rdma/hca"], limits["cpu"]) == ("8", "8", "96")
    assert int(limits["memory"]) == (8 * 100 + 64) << 30
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in pod["containers"][0]["env"]


def test_rendered_files_can_be_applied_and_their_runs_are_known(tmp_path: Path) -> None:
    done = render(tmp_path / "runs", "-o", str(tmp_path / "yaml"), "--json")
    assert done.exit_code == 0, done.output
    (written,) = json.loads(done.stdout)["files"]
    assert len(list(yaml.safe_load_all(Path(written).read_text()))) == 3
    (submission,) = submissions(tmp_path / "runs")
    assert submission.launcher == "kubernetes"
    assert submission.submitted is None


def test_an_image_without_a_digest_is_noted(tmp_path: Path) -> None:
    done = render(tmp_path, image="registry.example/suite:1")
    assert done.exit_code == 0
    assert "not named by digest" in done.stderr
    assert "digest" not in render(tmp_path).stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--variant", "mpijob"), "needs a --claim"),
        (("--toleration", "a:Sometimes"), "effect"),
        (("--node-selector", "a"), "--node-selector is NAME=VALUE"),
        (("--rdma", "rdma/hca=many"), "rdma count"),
        (("--mount", "/data:/data"), "--mount"),
        (("--nodes", "3", "--tp", "16"), "tensor"),
        (("--image", "a b"), "not the name of an image"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_one_line_and_exit_code_2(tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    done = render(tmp_path, *more)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_run_without_an_image(tmp_path: Path) -> None:
    done = suite("render", "kubernetes", *RUN, "--runs", str(tmp_path))
    assert done.exit_code == 2
    assert "name one with --image" in done.stderr


def test_without_a_cluster_nothing_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = suite("submit", "kubernetes", *RUN, "--image", IMAGE, "--runs", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
