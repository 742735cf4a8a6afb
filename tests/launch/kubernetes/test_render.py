"""Every variant is what its schema asks for, what no schema says, and the job that was rendered, whatever is in it."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from syrupy.assertion import SnapshotAssertion

from suite.conduct.cluster.standing import POLL_SECONDS
from suite.conduct.cluster.to_do import prepare
from suite.launch.kubernetes.ray import VARIANTS as RAY
from suite.launch.kubernetes.read_back import as_pods, pod_templates, wanted
from suite.launch.kubernetes.render import parse, render, render_reader
from suite.launch.kubernetes.run import kubernetes_site, render_run
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from suite.launch.kubernetes.settings import KubernetesSettings, Toleration, Variant
from suite.spec.base import UsageError
from tests.launch.kubernetes.kinds import cluster_problems, schema_problems
from tests.launch.kubernetes.runs import (
    FOLDER,
    FULL,
    IMAGE,
    VARIANTS,
    job_of,
    manifest_of,
    settings_of,
    submission_of,
)
from tests.timing import within

FILES = {"manifest.json": "{}\n", "environment.json": "{}\n"}
ABOUT = {"suite/run-id": "deepspeed-66B-n32-1f3a9c2e-r1", "suite/manifest-hash": "1f3a9c2e"}
#: any text but half a character, which no file can hold
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
HOSTILE = st.one_of(
    TEXT,
    st.sampled_from(
        [
            *("'", '"', "\\", "`id`", "$(id)", "$(JOB_COMPLETION_INDEX)", "$$(RANK)", "{{ name }}", "{% raw %}", "#"),
            *("--- ", "\n---\nkind: Secret", "a: b", "- a", "-", "--help", "!!python/object:os.system", "&a *a", "|"),
            *(
                "\t",
                "\r\n",
                "\u2028",
                "\x85",
                "\ufeff",
                "😀",
                "null",
                "~",
                "yes",
                "1e3",
                "0x1F",
                "%",
                "@",
                "[",
                "{",
                ":",
            ),
        ]
    ),
)


def least_grace(pods: Any) -> int:
    """Seconds that a deleted pod has in all."""
    return min(template["spec"]["terminationGracePeriodSeconds"] for _, _, template in pods)


def rendered(variant: Variant, **changes: Any) -> list[dict[str, Any]]:
    return parse(render(job_of(), FOLDER, settings_of(variant, **changes), FILES, ABOUT))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("given", [{}, FULL], ids=["least", "most"])
class TestVariants:
    def test_what_is_written(self, variant: Variant, given: dict[str, Any], snapshot: SnapshotAssertion) -> None:
        assert render(job_of(), FOLDER, settings_of(variant, **given), FILES, ABOUT) == snapshot

    def test_the_schemas_are_content(self, variant: Variant, given: dict[str, Any]) -> None:
        assert [schema_problems(body) for body in rendered(variant, **given)] == [[]] * len(rendered(variant, **given))

    def test_so_is_a_cluster(self, variant: Variant, given: dict[str, Any]) -> None:
        assert cluster_problems(rendered(variant, **given)) == []


@pytest.mark.parametrize("variant", VARIANTS)
class TestPods:
    def test_every_node_is_given_the_job_and_its_own_number(self, variant: Variant) -> None:
        found = as_pods(rendered(variant))
        assert found == wanted(job_of(), FOLDER, settings_of(variant))
        numbers = [part for command in found.commands for part in command if part.startswith("--node_rank")]
        assert numbers == ([] if variant in RAY else [f"--node_rank={node}" for node in range(4)])
        assert found.limits["nvidia.com/gpu"] == "8"
        assert found.limits["memory"] == str((8 * 100 << 30) + (16 << 30))

    def test_a_single_node_needs_nobody_beside_it(self, variant: Variant) -> None:
        job = job_of(nodes=1)
        objects = parse(render(job, FOLDER, settings_of(variant), FILES, ABOUT))
        assert cluster_problems(objects) == []
        assert len(as_pods(objects).commands) == 1
        assert all("affinity" not in template["spec"] for _, _, template in pod_templates(objects))

    def test_every_object_says_which_run_it_is_of(self, variant: Variant) -> None:
        objects = rendered(variant)
        assert len({body["metadata"]["labels"]["suite/run"] for body in objects}) == 1
        assert objects[0]["metadata"]["annotations"] == objects[-1]["metadata"]["annotations"] == ABOUT

    def test_nothing_runs_as_root_or_gains_rights(self, variant: Variant) -> None:
        for _, _, template in pod_templates(rendered(variant, rdma_resource="rdma/hca")):
            context = template["spec"]["securityContext"]
            assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}

    def test_a_deleted_pod_stays_until_it_was_looked_at_where_only_its_log_holds_the_results(
        self, variant: Variant
    ) -> None:
        for asked in (settings_of(variant), settings_of(variant, claim="results")):
            pods = pod_templates(parse(render(job_of(), FOLDER, asked, FILES, ABOUT)))
            hooks = [
                template["spec"]["containers"][0].get("lifecycle") for role, _, template in pods if role != "Launcher"
            ]
            if asked.claim or variant in RAY:
                assert set(map(str, hooks)) == {"None"}
                continue
            for hook in hooks:
                word, seconds = hook["preStop"]["exec"]["command"]
                assert word == "sleep" and POLL_SECONDS < int(seconds) < least_grace(pods)

    def test_what_is_written_anywhere_is_a_volume(self, variant: Variant) -> None:
        template = next(template for role, _, template in pod_templates(rendered(variant)) if role != "Launcher")
        writable = {
            mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"] if not mount["readOnly"]
        }
        assert writable == {FOLDER, "/tmp", "/dev/shm"}

    @settings(max_examples=25)
    @given(words=st.lists(HOSTILE, max_size=4), env=st.dictionaries(st.sampled_from("ABC"), HOSTILE), note=HOSTILE)
    def test_no_value_breaks_out_of_its_place(
        self, variant: Variant, words: list[str], env: dict[str, str], note: str
    ) -> None:
        words = [word.replace("\0", "") for word in words]
        env = {name: value.replace("\0", "") for name, value in env.items()}
        job = job_of(argv=(*job_of().argv, *words), env=env)
        plain = job_of(argv=(*job_of().argv, *["word"] * len(words)), env=dict.fromkeys(env, "value"))
        files, about = {"manifest.json": note}, {"suite/run-id": note}
        objects = parse(render(job, FOLDER, settings_of(variant), files, about))
        usual = parse(render(plain, FOLDER, settings_of(variant), {"manifest.json": "note"}, {"suite/run-id": "note"}))
        assert shape_of(objects) == shape_of(usual)
        assert as_pods(objects) == wanted(job, FOLDER, settings_of(variant))
        assert objects[0]["data"] == files


def shape_of(value: Any) -> Any:
    """Keys and types without the leaves."""
    if isinstance(value, dict):
        return {key: shape_of(part) for key, part in value.items()}
    return [shape_of(part) for part in value] if isinstance(value, list) else type(value).__name__


@settings(max_examples=50)
@given(name=st.text(min_size=1, max_size=120))
def test_any_run_id_gives_valid_names(name: str) -> None:
    for variant in ("job", "rayjob"):
        objects = parse(render(job_of(name=name), FOLDER, settings_of(variant), FILES, {}))
        assert cluster_problems(objects) == []


BREAKS: dict[str, Any] = {
    "restart policy": lambda spec: spec.update(restartPolicy="Always"),
    "unknown volume": lambda spec: spec["containers"][0]["volumeMounts"][0].update(name="other"),
    "unequal GPUs": lambda spec: spec["containers"][0]["resources"]["requests"].update({"nvidia.com/gpu": "4"}),
    "part of a GPU": lambda spec: spec["containers"][0]["resources"].update(
        requests={"nvidia.com/gpu": "1500m"}, limits={"nvidia.com/gpu": "1500m"}
    ),
    "pull policy": lambda spec: spec["containers"][0].update(imagePullPolicy="Sometimes"),
    "writable root": lambda spec: spec["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False),
    "name of a variable": lambda spec: spec["containers"][0]["env"][-1].update(name="A B"),
}


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_checks_see_a_broken_pod(variant: Variant, how: str) -> None:
    objects = copy.deepcopy(rendered(variant))
    for _, _, template in pod_templates(objects):
        if "env" in template["spec"]["containers"][0]:
            BREAKS[how](template["spec"])
    assert cluster_problems(objects)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_schemas_see_an_unknown_field(variant: Variant) -> None:
    run = copy.deepcopy(rendered(variant))[-1]
    run["spec"]["frobnicate"] = True
    assert schema_problems(run)


class TestWhatVariantsNeed:
    def test_a_queue_is_named_where_its_variant_looks(self) -> None:
        for variant in VARIANTS:
            # the Job beside a RayCluster needs no queue: it waits for the cluster
            run = rendered(variant, queue="lab")[1 if variant == "raycluster" else -1]
            kueue = run["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
            assert (run["spec"]["queue"], kueue) == ("lab", None) if variant == "volcano" else kueue == "lab"

    def test_an_oom_is_not_repeated_by_a_job(self) -> None:
        spec = rendered("job")[-1]["spec"]
        assert spec["backoffLimit"] == 0
        assert spec["podFailurePolicy"]["rules"][0] == {
            "action": "FailJob",
            "onExitCodes": {"containerName": "suite", "operator": "NotIn", "values": [0]},
            "onPodConditions": [],
        }

    def test_gangs(self) -> None:
        assert rendered("volcano")[-1]["spec"]["minAvailable"] == 4
        assert rendered("pytorchjob")[-1]["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 4
        assert rendered("mpijob")[-1]["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] == 5
        runtime = rendered("trainjob", gang="coscheduling")[1]
        assert runtime["spec"]["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 3600}}
        assert cluster_problems(rendered("trainjob", gang="volcano")) == []
        assert [schema_problems(body) for body in rendered("trainjob", gang="volcano")] == [[], [], []]

    def test_a_pytorchjob_has_the_names_that_its_operator_looks_for(self) -> None:
        for replica in rendered("pytorchjob")[-1]["spec"]["pytorchReplicaSpecs"].values():
            container = replica["template"]["spec"]["containers"][0]
            assert container["name"] == "pytorch"
            assert container["ports"][0]["name"] == "pytorchjob-port"

    def test_an_mpijobs_service_is_the_first_workers(self) -> None:
        service = rendered("mpijob")[1]
        assert service["spec"]["selector"]["training.kubeflow.org/replica-index"] == "0"
        assert f"--master_addr={service['metadata']['name']}" in as_pods(rendered("mpijob")).commands[3]

    def test_a_ray_cluster_has_the_devices_as_gpus_and_slots_for_the_trainers_processes(self) -> None:
        cluster = rendered("rayjob")[-1]["spec"]["rayClusterSpec"]
        head, (workers,) = cluster["headGroupSpec"]["rayStartParams"], cluster["workerGroupSpecs"]
        assert (head["num-gpus"], head["num-cpus"], workers["replicas"]) == ("8", "128", 3)
        assert head.items() - workers["rayStartParams"].items() == {("dashboard-host", "0.0.0.0")}
        assert (
            "workerGroupSpecs"
            not in parse(render(job_of(nodes=1), FOLDER, settings_of("rayjob"), FILES, ABOUT))[-1]["spec"][
                "rayClusterSpec"
            ]
        )

    def test_half_of_shared_memory_is_for_rays_objects(self) -> None:
        head = rendered("raycluster", shared_memory="8Gi")[1]["spec"]["headGroupSpec"]
        assert head["rayStartParams"]["object-store-memory"] == str(4 << 30)

    def test_on_cpu_ranks_ray_counts_devices_that_do_not_exist_and_the_ranks_see_none(self) -> None:
        job = job_of(device_count=0, ranks_per_node=2, env={"CUDA_VISIBLE_DEVICES": ""})
        env = as_pods(parse(render(job, FOLDER, settings_of("rayjob"), FILES, ABOUT))).env
        assert env["CUDA_VISIBLE_DEVICES"] == "1000,1001"
        assert json.loads(env["SUITE_RANKS"])["variables"] == {"CUDA_VISIBLE_DEVICES": ""}
        assert "variables" not in json.loads(as_pods(rendered("rayjob")).env["SUITE_RANKS"])

    def test_what_is_to_run_goes_through_no_shell(self) -> None:
        spec = rendered("rayjob")[-1]["spec"]
        assert spec["entrypoint"] == "/opt/stack/bin/python -m suite.worker.ray_ranks"
        with pytest.raises(UsageError, match="a Python of a plain path"):
            render(job_of(argv=("/my py/$(id)",)), FOLDER, settings_of("rayjob"), FILES, ABOUT)

    def test_the_job_beside_a_ray_cluster_waits_for_the_head_and_submits_to_it(self) -> None:
        name = rendered("raycluster")[1]["metadata"]["name"]
        script = rendered("raycluster")[2]["spec"]["template"]["spec"]["containers"][0]["command"][2]
        done = subprocess.run(("bash", "-n", "-c", script))
        assert done.returncode == 0 and script.count(f"http://{name}-head-svc:8265") == 2

    def test_a_rayjobs_pods_are_given_back_soon_after_its_end(self) -> None:
        spec = rendered("rayjob")[-1]["spec"]
        assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 60)
        assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 3600 + 3600)

    def test_adapters_for_rdma_are_devices_and_may_lock_memory(self) -> None:
        container = rendered("job", rdma_resource="rdma/hca", rdma_count=4)[-1]["spec"]["template"]["spec"][
            "containers"
        ][0]
        assert container["resources"]["limits"]["rdma/hca"] == "4"
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}

    def test_the_reader_prints_every_ranks_events_and_can_change_nothing(self) -> None:
        pod = render_reader(job_of(), FOLDER, settings_of("job", claim="results"))
        command = pod["spec"]["containers"][0]["command"]
        assert [part for part in command if part.endswith(".jsonl")] == [
            f"{FOLDER}/events/rank-{rank}.jsonl" for rank in range(32)
        ]
        assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "results", "readOnly": True}
        named = {**pod, "metadata": {**pod["metadata"], "name": "reader"}}
        assert schema_problems(named) == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "given", "message"),
        [
            ({"image": None}, {}, "pods run images"),
            ({"devices": ("0", "1")}, {}, "ask for how many"),
            ({"mounts": [{"source": "/data", "target": "/data"}]}, {}, "no folder of this host"),
            ({}, {"gang": "volcano"}, "--gang is for a TrainJob"),
            ({"nodes": 1}, {"topology": "rack"}, "for runs on several nodes"),
            ({"env": {"A": "\0"}}, {}, "NUL"),
        ],
    )
    def test_what_no_pod_can_do(self, changes: dict[str, Any], given: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            render(job_of(**changes), FOLDER, settings_of("job", **given), FILES, ABOUT)

    def test_an_mpijob_without_a_claim(self) -> None:
        with pytest.raises(UsageError, match="needs a --claim"):
            render(job_of(), FOLDER, KubernetesSettings(variant="mpijob"), FILES, ABOUT)

    def test_half_a_character(self) -> None:
        with pytest.raises(UsageError, match="half a character"):
            render(job_of(), FOLDER, settings_of("job"), {"manifest.json": "\ud800"}, ABOUT)

    @pytest.mark.parametrize(
        "given",
        [
            {"namespace": "A b"},
            {"queue": "a/b"},
            {"node_selector": {"a b": "c"}},
            {"node_selector": {"a": "c d"}},
            {"gpu_resource": "nvidia.com/"},
            {"shared_memory": "16GB"},
            {"claim": "../x"},
            {"pull_secrets": ("A",)},
            {"wait_seconds": 0},
            {"variant": "rayservice"},
            {"pod_annotations": {"a": 1}},
        ],
        ids=str,
    )
    def test_settings_that_no_cluster_takes(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            KubernetesSettings.model_validate(given)

    def test_a_toleration_without_a_key(self) -> None:
        with pytest.raises(ValidationError):
            Toleration(key="")


class TestSubmissions:
    def test_a_run_carries_its_manifest_and_says_what_it_expects(self) -> None:
        manifest = manifest_of(nodes=4, ranks_per_node=8, device="cuda")
        objects = parse(render_run(submission_of(manifest), settings_of("job")))
        files = objects[0]["data"]
        assert files["manifest.json"] == manifest.model_dump_json(by_alias=True, indent=2) + "\n"
        about = objects[-1]["metadata"]["annotations"]
        assert about["suite/manifest-hash"] == manifest.hash
        assert about["suite/hardware"] == "4 nodes x 8 nvidia.com/gpu, bf16"
        assert about["suite/stack"] == "deepspeed 1.0"

    def test_every_rank_prints_its_events_and_knows_its_image(self) -> None:
        env = as_pods(parse(render_run(submission_of(manifest_of()), settings_of("job")))).env
        assert env["SUITE_EVENTS_ON_STDOUT"] == "all"
        assert env["SUITE_IMAGE"] == IMAGE
        assert env["CUDA_VISIBLE_DEVICES"] == ""

    def test_nccl_uses_the_pods_network_unless_told(self) -> None:
        manifest = manifest_of(device="cuda")
        assert (
            as_pods(parse(render_run(submission_of(manifest), settings_of("job")))).env["NCCL_SOCKET_IFNAME"] == "eth0"
        )
        submitted = submission_of(manifest, NCCL_SOCKET_IFNAME="ib0")
        assert as_pods(parse(render_run(submitted, settings_of("job")))).env["NCCL_SOCKET_IFNAME"] == "ib0"

    @pytest.mark.alone
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_a_whole_ladder_takes_half_a_second_at_most(self, variant: str) -> None:
        manifests = [manifest_of(nodes=4, ranks_per_node=8, device="cuda", repeat=repeat) for repeat in range(1, 31)]
        settings = settings_of(variant, **FULL)
        render_run(submission_of(manifests[0]), settings)

        def render_all() -> None:
            prepared = prepare(manifests, KubernetesScheduler(), lambda one: kubernetes_site(one, IMAGE, {}))
            for submission in prepared:  # six sizes on five backends
                render_run(submission, settings)

        assert within(0.5, render_all)
