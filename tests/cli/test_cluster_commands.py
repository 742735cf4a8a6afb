"""The commands around clusters where no cluster is: what they render, skip and refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.command import refused, suite, told
from tests.launch.kubernetes.runs import IMAGE

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "1")
#: runs are identified by what is in it
ENGINES = str(ROOT / "tests/cli/engines.sqsh")
LARGE = ("--backend", "megatron", "--size", "66B", "--nodes", "4", "--gpus-per-node", "8", "--repeats", "1")
SLURM, KUBERNETES = ("submit", "slurm", "-o", "-"), ("submit", "kubernetes", "-o", "-")
BIG = ("--backend", "megatron", "--size", "66B", "--nodes", "4", "--image", ENGINES, "--repeats", "1")
PODS = (*KUBERNETES, *LARGE, "--image", IMAGE)


@pytest.fixture(autouse=True)
def _without_a_cluster(script: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "slurm", *SMALL), "there is no Slurm here: sbatch cannot be run"),
        (("submit", "slurm", *BIG, "--tp", "3"), "do not divide"),
        ((*SLURM, *BIG, "--gpu", "H1000"), "there is no device 'H1000'"),
        ((*SLURM, *BIG, "--backend", "trlx-nemo"), "--stack"),
        ((*SLURM, *SMALL, "--container", "pyxis"), "do not go together"),
        ((*SLURM, *BIG, "--container", "none"), "do not go together"),
        ((*SLURM, *BIG, "--image", "/nowhere/engines.sqsh"), "must be readable here"),
        ((*SLURM, *SMALL, "--env", "OMP_NUM_THREADS=4"), "--threads"),
        ((*SLURM, *SMALL, "--mount", "/data:/data"), "without --image"),
        ((*SLURM, *BIG, "--mount", "data:/data"), "absolute paths"),
        ((*SLURM, *SMALL, "--env", "A"), "NAME=VALUE"),
        ((*SLURM, *SMALL, "--env", "HF_TOKEN=x"), "export it where you submit"),
        (("submit", "kubernetes", *SMALL, "--image", IMAGE, "--env", "B=http://a:b@c"), "--env B looks like a secret"),
        ((*SLURM, *SMALL, "--timeout", "5m", "--hang-timeout", "10m"), "--hang-timeout 10m is longer than"),
        ((*KUBERNETES, *SMALL), "name one with --image"),
        (("submit", "kubernetes", *LARGE, "--image", IMAGE), "no cluster is configured: "),
        ((*SLURM, *SMALL, "--nodes", "0"), "--nodes is a whole number from 1 to 1,048,576"),
        ((*SLURM, *SMALL, "--nodes", "1,"), "--nodes is a whole number from 1 to 1,048,576"),
        ((*SLURM, *SMALL, "--cpu-bind", "cores"), "is for ranks of --starter srun"),
        ((*PODS, "--toleration", "a:Sometimes"), "--toleration effect 'Sometimes'"),
        ((*PODS, "--node-selector", "a"), "--node-selector is NAME=VALUE"),
        ((*PODS, "--rdma", "rdma/hca=many"), "--rdma 'many'"),
        ((*PODS, "--mount", "/data:/data"), "--mount"),
        ((*PODS, "--nodes", "3", "--tp", "16"), "tensor"),
        ((*PODS, "--image", "a b"), "not the name of an image"),
        (("cancel", "nobody"), "nobody was not submitted from"),
        (("cancel",), "--all"),
    ],
)
def test_a_mistake_is_one_clear_line_and_leaves_nothing(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert words in refused(*arguments, "--runs", runs) and not runs.exists()


def test_the_preset_brings_its_own_nodes_and_an_array_joins_what_asks_for_the_same(tmp_path: Path) -> None:
    preset = ("--preset", "ladder", "--backend", "megatron", "--image", ENGINES, "--array")
    preset += ("--timeout", "1h", "--hang-timeout", "10m", "--iterations", "8")  # equal, where the time is not
    scripts = told(*SLURM, *preset, "--repeats", "2", "--runs", tmp_path / "runs")["scripts"]
    assert sorted(len(script["runs"]) for script in scripts) == [4, 8]


def test_a_folder_from_which_nothing_was_submitted_says_so(tmp_path: Path) -> None:
    for command, words in (("status", "nothing was submitted"), ("collect", "nothing to collect")):
        done = suite(command, "--runs", str(tmp_path))
        assert done.exit_code == 0
        assert words in done.stdout
    assert told("status", "--runs", tmp_path) == []
    for command in ("status", "collect", "clean"):
        assert f"{__file__} is not a folder" in refused(command, "--runs", __file__)


LARGEST = ("--preset", "ladder", "--size", "66B", "--repeats", "2")
IMAGES = {"slurm": ENGINES, "kubernetes": IMAGE}


@pytest.mark.parametrize("launcher", ["slurm", "kubernetes"])
def test_a_dry_run_shows_what_is_expected_and_touches_nothing(launcher: str, tmp_path: Path) -> None:
    runs = ("--runs", str(tmp_path / "runs"))
    known = (*LARGEST, "--image", IMAGES[launcher], "--gpu", "A100-SXM-80GB", "--price", "2", *runs)
    done = suite("submit", launcher, *known, "--dry-run")
    assert done.exit_code == 0, done.stderr
    for word in ("expected of each run", "GiB", "limit", "GPU-h", "cost", "nothing was run"):
        assert word in done.stdout
    assert ("ConfigMap/suite-" in done.stdout) is (launcher == "kubernetes"), "pods' objects are named"
    body = told("submit", launcher, *known, "--dry-run")
    assert len(body["runs"]) == 4 and body["expected"]["runs"] == 4
    assert body["expected"]["cost"] == pytest.approx(2 * body["expected"]["gpu_hours"])
    for row in body["runs"]:
        assert row["expected"]["fits"] and row["expected"]["run_seconds"] < row["limit_seconds"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", [("submit", "slurm"), ("submit", "kubernetes", "--dry-run"), SLURM])
def test_a_row_that_will_not_fit_is_refused_and_forced(command: tuple[str, ...], tmp_path: Path) -> None:
    chosen = ("--image", IMAGES[command[1]], "--backend", "megatron", "--tp", "8", "--gpu", "A100-SXM-80GB")
    chosen += ("--runs", str(tmp_path / "runs"))
    done = suite(*command, *LARGEST, *chosen)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error: megatron 66B tp8 dp4 sp dist-opt is expected to need ")
    assert "is expected to fit; --force runs it all the same" in done.stderr
    forced = suite(*command, *LARGEST, *chosen, "--force")
    if command == ("submit", "slurm"):
        assert "there is no Slurm here" in forced.stderr
    else:
        assert forced.exit_code == 0 and "warning: megatron 66B" in forced.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("nodes", [("--nodes", "1", "--nodes", "2", "--nodes", "4"), ("--nodes", "1,2,4")])
def test_a_list_of_nodes_is_a_run_of_each(nodes: tuple[str, ...]) -> None:
    scripts = told(*SLURM, *SMALL, *nodes)["scripts"]
    for script, count in zip(scripts, (1, 2, 4), strict=True):
        assert script["text"].count(f"#SBATCH --nodes={count}\n") == 1
    assert [script["runs"][0].split("-n")[1].split("-")[0] for script in scripts] == ["2", "4", "8"]


def test_scripts_that_are_handed_over_by_hand_wait_for_each_other() -> None:
    done = suite("submit", "slurm", *SMALL, "--nodes", "1,2", "-o", "it's scripts")
    first, second = done.stdout.splitlines()
    assert first.startswith("job=$(sbatch --parsable 'it'\"'\"'s scripts/")
    assert second.startswith("job=$(sbatch --parsable --dependency=afterany:${job%%;*} ")
    side = suite("submit", "slurm", *SMALL, "--nodes", "1,2", "-o", "others", "--at-once", "2", "--runs", "two")
    assert [line.split()[0] for line in side.stdout.splitlines()] == ["sbatch", "sbatch"]


def test_a_dry_run_shows_what_would_be_sent_and_leaves_nothing(tmp_path: Path) -> None:
    done = suite("submit", "slurm", *SMALL, "--nodes", "1,2", "--partition", "gpu", "--dry-run")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("would be sent, deepspeed-1M-n") == 2
    assert "--partition=gpu" in done.stdout and "--nodes=2" in done.stdout and "srun --nodes=2" in done.stdout
    body = told("submit", "slurm", *SMALL, "--nodes", "1,2", "--dry-run")
    assert [len(document["runs"]) for document in body["documents"]] == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_ranks_are_bound_as_asked_for() -> None:
    bound = suite(*SLURM, *SMALL, "--starter", "srun", "--cpu-bind", "cores", "--cpus-per-node", "32").stdout
    assert "    --cpu-bind=cores\n" in bound and bound.count("--cpus-per-task=16\n") == 2
    hinted = suite(*SLURM, *SMALL, "--hint", "nomultithread", "--env", "NCCL_IB_PKEY=1").stdout
    assert hinted.count("--hint=nomultithread\n") == 2 and "--cpu-bind" not in hinted
    assert "    --cpu-bind=none\n" in suite(*SLURM, *SMALL).stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--cpus-per-node", "7500m", "--memory-per-rank", "8g"), "pods are not Guaranteed"),
        (("--cpus-per-node", "8"), "pods are not Guaranteed"),
        (("--cpus-per-node", "8", "--memory-per-rank", "8g"), None),
        (("--image", "registry.example/suite:1"), "not named by digest"),
    ],
)
def test_pods_without_cores_of_their_own_and_images_without_a_digest_are_told(more, words) -> None:
    done = suite(*KUBERNETES, *SMALL, "--image", IMAGE, *more)
    assert done.exit_code == 0
    if words is None:
        assert "static CPU manager" not in done.stderr and "digest" not in done.stderr
    else:
        assert words in done.stderr


def test_what_is_said_of_the_cluster_is_in_the_pods(tmp_path: Path) -> None:
    done = suite(
        *(*PODS, "--runs", tmp_path),
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
    assert [each["operator"] for each in pod["tolerations"]] == ["Exists", "Equal", "Exists"]
    limits = pod["containers"][0]["resources"]["limits"]
    assert (limits["amd.com/gpu"], limits["rdma/hca"], limits["cpu"]) == ("8", "8", "96")
    assert int(limits["memory"]) == (8 * 100 + 64) << 30
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in pod["containers"][0]["env"]
