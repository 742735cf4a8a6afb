"""Every variant is what its schema asks for, what no schema says, and the job that was rendered, whatever is in it."""

import json
import re
import subprocess
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from syrupy.assertion import SnapshotAssertion

from suite.conduct.cluster.standing import POLL_SECONDS
from suite.launch.kubernetes.launcher import pod_templates
from suite.launch.kubernetes.pod import parse, pod_variables, render, render_reader, render_run
from suite.launch.kubernetes.settings import (
    NAME_LENGTH,
    KubernetesSettings,
    Variant,
    literal,
    object_name,
    quantity_number,
)
from suite.spec.base import UsageError
from tests.launch.differences import differences
from tests.launch.kubernetes.kinds import cluster_problems, schema_problems
from tests.launch.kubernetes.read_back import as_pods, expanded
from tests.launch.kubernetes.runs import (
    FOLDER,
    FULL,
    IMAGE,
    RAY_PODS,
    VARIANTS,
    job_of,
    kubernetes_manifest,
    settings_of,
    submission_of,
)

RAY = ("rayjob", "raycluster")
FILES = {"manifest.json": "{}\n"}
ABOUT = {"suite/run-id": "deepspeed-66B-n32-1f3a9c2e-r1", "suite/manifest-hash": "1f3a9c2e"}
#: what breaks templates, YAML and the kubelet's own expansion
TRAPS = (
    *("'", '"', "\\", "`id`", "$(id)", "$(JOB_COMPLETION_INDEX)", "$$(RANK)", "{{ name }}", "{% raw %}", "#", ":", "{"),
    *("--- ", "\n---\nkind: Secret", "a: b", "- a", "-", "--help", "!!python/object:os.system", "&a *a", "|", "%", "@"),
    *("\t", "\r\n", "\u2028", "\x85", "\ufeff", "😀", "null", "~", "yes", "1e3", "0x1F", "["),
)
#: any text but half a character, which no file can hold
HOSTILE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(TRAPS)


def rendered(variant: Variant, **changes: Any) -> list[dict[str, Any]]:
    return of_job(job_of(), settings_of(variant, **changes))


def of_job(job: Any, how: KubernetesSettings, files: dict[str, str] = FILES, about: dict[str, str] = ABOUT) -> Any:
    return parse(render(job, how, files, about))


def in_parts(variant: Variant, given: dict[str, Any]) -> dict[str, str]:
    """The objects without their pods, and the pods by role, as text."""
    objects, texts = rendered(variant, **given), {}
    names = RAY_PODS if variant in RAY else ("Master", "Worker") if variant == "pytorchjob" else ("node",)
    for name, (_, template) in zip(names, pod_templates(objects), strict=True):
        texts[name] = yaml.safe_dump(template, sort_keys=False, default_flow_style=None, width=1000)
        template.clear()
    return {"objects": yaml.safe_dump(objects, sort_keys=False, default_flow_style=None, width=1000), **texts}


def test_what_a_job_is(snapshot: SnapshotAssertion) -> None:
    assert render(job_of(), settings_of("job"), FILES, ABOUT) == snapshot


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("given", [{}, FULL], ids=["least", "most"])
class TestVariants:
    def test_what_is_not_as_in_a_job(self, variant, given, snapshot):
        """Or in a RayJob, or with the fewest settings; pods that have no like are as the node's of a Job, or not."""
        usual = in_parts(variant, {}) if given else in_parts("rayjob" if variant == "raycluster" else "job", {})
        node = usual.get("node", "")
        found: dict[str, list[str] | str] = {}
        for name, text in in_parts(variant, given).items():
            lines = differences(usual.get(name, node), text)
            found[name] = next((f"as {other}" for other, known in found.items() if known == lines), lines)
        assert found == snapshot

    def test_the_schemas_and_a_cluster_are_content(self, variant: Variant, given: dict[str, Any]) -> None:
        objects = rendered(variant, **given)
        assert [schema_problems(body) for body in objects] == [[]] * len(objects)
        assert cluster_problems(objects) == []


@pytest.mark.parametrize("variant", VARIANTS)
class TestPods:
    def test_a_single_node_needs_nobody_beside_it(self, variant: Variant) -> None:
        objects = of_job(job_of(nodes=1), settings_of(variant))
        assert cluster_problems(objects) == []
        assert len(as_pods(objects).commands) == 1
        assert all("affinity" not in template["spec"] for _, template in pod_templates(objects))

    def test_nothing_runs_as_root_or_gains_rights(self, variant: Variant) -> None:
        for _, template in pod_templates(rendered(variant, rdma_resource="rdma/hca")):
            context = template["spec"]["securityContext"]
            assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}

    def test_a_deleted_pod_stays_until_it_was_looked_at_where_only_its_log_holds_the_results(self, variant):
        for asked in (settings_of(variant), settings_of(variant, claim="results")):
            pods = pod_templates(of_job(job_of(), asked))
            grace = min(template["spec"]["terminationGracePeriodSeconds"] for _, template in pods)
            nodes = [template for _, template in pods if template["metadata"]["labels"]["suite/role"] != "submitter"]
            hooks = [template["spec"]["containers"][0].get("lifecycle") for template in nodes]
            if asked.claim or variant in RAY:
                assert set(map(str, hooks)) == {"None"}
                continue
            for hook in hooks:
                word, seconds = hook["preStop"]["exec"]["command"]
                assert word == "sleep" and POLL_SECONDS < int(seconds) < grace

    @settings(max_examples=25)
    @given(words=st.lists(HOSTILE, max_size=4), env=st.dictionaries(st.sampled_from("ABC"), HOSTILE), note=HOSTILE)
    def test_no_value_breaks_out_of_its_place(self, variant, words, env, note):
        words = [word.replace("\0", "") for word in words]
        env = {name: value.replace("\0", "") for name, value in env.items()}
        job = job_of(argv=(*job_of().argv, *words), env=env)
        plain = job_of(argv=(*job_of().argv, *["word"] * len(words)), env=dict.fromkeys(env, "value"))
        how, files = settings_of(variant), {"manifest.json": note}
        objects = of_job(job, how, files, {"suite/run-id": note})
        assert shape_of(objects) == shape_of(of_job(plain, how, {"manifest.json": "note"}, {"suite/run-id": "note"}))
        found = as_pods(objects)
        assert found.env == (pod_variables(job) if how.is_ray else job.env) and found.limits == found.requests
        assert variant in RAY or all(command[1 - len(job.argv) :] == job.argv[1:] for command in found.commands)
        assert objects[0]["data"] == files


def shape_of(value: Any) -> Any:
    """Keys and types without the leaves."""
    if isinstance(value, dict):
        return {key: shape_of(part) for key, part in value.items()}
    return [shape_of(part) for part in value] if isinstance(value, list) else type(value).__name__


class TestWhatVariantsNeed:
    def test_the_words_for_a_gang(self) -> None:
        runtime = rendered("trainjob", gang="coscheduling")[1]
        assert runtime["spec"]["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 3600}}
        assert [schema_problems(body) for body in rendered("trainjob", gang="volcano")] == [[], [], []]

    def test_on_cpu_ranks_ray_counts_devices_that_do_not_exist_and_the_ranks_see_none(self) -> None:
        job = job_of(device_count=0, ranks_per_node=2, env={"CUDA_VISIBLE_DEVICES": ""})
        env = as_pods(of_job(job, settings_of("rayjob"))).env
        assert env["CUDA_VISIBLE_DEVICES"] == "1000,1001"
        assert json.loads(env["SUITE_RANKS"])["variables"] == {"CUDA_VISIBLE_DEVICES": ""}
        assert "variables" not in json.loads(as_pods(rendered("rayjob")).env["SUITE_RANKS"])

    def test_the_job_beside_a_ray_cluster_waits_for_the_head_and_submits_to_it(self) -> None:
        name = rendered("raycluster")[1]["metadata"]["name"]
        script = rendered("raycluster")[2]["spec"]["template"]["spec"]["containers"][0]["command"][2]
        done = subprocess.run(("bash", "-n", "-c", script))
        assert done.returncode == 0 and script.count(f"http://{name}-head-svc:8265") == 2

    def test_the_reader_prints_every_ranks_events_and_can_change_nothing(self) -> None:
        pod = render_reader(job_of(), settings_of("job", claim="results"))
        files = [part for part in pod["spec"]["containers"][0]["command"] if part.endswith(".jsonl")]
        assert files == [f"{FOLDER}/events/rank-{rank}.jsonl" for rank in range(32)]
        assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "results", "readOnly": True}
        assert schema_problems({**pod, "metadata": {**pod["metadata"], "name": "reader"}}) == []


class TestRefusals:
    def test_a_run_whose_files_no_config_map_takes_is_refused(self) -> None:
        with pytest.raises(UsageError, match="has 1048577 bytes, and the ConfigMap"):
            of_job(job_of(), settings_of("job"), {"manifest.json": "x" * ((1 << 20) + 1)})

    @pytest.mark.parametrize(
        ("changes", "given", "message"),
        [
            ({}, {"gang": "volcano"}, "--gang is for a TrainJob"),
            ({"nodes": 1}, {"topology": "rack"}, "for runs on several nodes"),
            ({"env": {"A": "\0"}}, {}, "NUL"),
            ({"env": {"A": "\ud800"}}, {}, "half a character"),
            ({"argv": ("/my py/$(id)",)}, {"variant": "rayjob"}, "a Python of a plain path"),
        ],
    )
    def test_what_no_pod_can_do(self, changes: dict[str, Any], given: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            render(job_of(**changes), settings_of(**{"variant": "job", **given}), FILES, ABOUT)

    @pytest.mark.parametrize(
        "given",
        [
            *({"namespace": "A b"}, {"queue": "a/b"}, {"node_selector": {"a b": "c"}}),
            *({"gpu_resource": "nvidia.com/"}, {"shared_memory": "16GB"}, {"claim": "../x"}),
        ],
        ids=str,
    )
    def test_settings_that_no_cluster_takes(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            KubernetesSettings.model_validate(given)


class TestSubmissions:
    def test_a_run_carries_its_manifest_and_says_which_it_is(self) -> None:
        manifest = kubernetes_manifest(nodes=4, ranks_per_node=8, device="cuda")
        objects = parse(render_run(submission_of(manifest), settings_of("job")))
        assert objects[0]["data"]["manifest.json"] == manifest.model_dump_json(by_alias=True) + "\n"
        about = objects[-1]["metadata"]["annotations"]
        assert about["suite/manifest-hash"] == manifest.hash

    def test_every_rank_prints_its_events_and_knows_its_image_and_network(self) -> None:
        def env(device: str, **given: str) -> dict[str, str]:
            submission = submission_of(kubernetes_manifest(device=device), **given)
            return as_pods(parse(render_run(submission, settings_of("job")))).env

        found = env("cpu")
        assert (found["SUITE_EVENTS_ON_STDOUT"], found["SUITE_IMAGE"]) == ("all", IMAGE)
        assert (found["CUDA_VISIBLE_DEVICES"], found["HOME"]) == ("", "/tmp")
        assert env("cuda")["NCCL_SOCKET_IFNAME"] == "eth0"
        told = env("cuda", NCCL_SOCKET_IFNAME="ib0", HOME="/elsewhere")
        assert (told["NCCL_SOCKET_IFNAME"], told["HOME"]) == ("ib0", "/elsewhere")


DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=200), st.sampled_from((NAME_LENGTH, 47)))
def test_any_run_id_becomes_a_dns_label_with_room_for_what_variants_append(run_id: str, length: int) -> None:
    name = object_name(run_id, length)
    assert DNS_1035.fullmatch(name)
    assert len(name) <= length


def test_a_readable_run_id_stays_readable_and_long_ones_that_differ_at_their_end_differ() -> None:
    assert object_name("megatron-1.3B-n32-1f3a9c2e-r1") == "suite-megatron-1-3b-n32-1f3a9c2e-r1"
    assert object_name("x" * 80 + "-r1") != object_name("x" * 80 + "-r2")
    assert object_name("1..3B") != object_name("1.3B"), "what is written alike is told apart"


@settings(max_examples=40)
@given(st.text(alphabet=st.sampled_from("$()A {}"), max_size=30))
def test_a_literal_comes_through_the_kubelets_expansion_as_it_was(text: str) -> None:
    assert expanded(literal(text), {"A": "replaced", "": "replaced"}) == text
    assert expanded("--rank=$(A) $(NONE)", {"A": "3"}) == "--rank=3 $(NONE)"


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("500m", Fraction(1, 2)), ("16Gi", 16 << 30), ("2e3", 2000), ("1.5k", 1500), (".5", Fraction(1, 2))],
)
def test_quantities_mean_what_kubernetes_means_by_them(text: str, number: Fraction) -> None:
    assert quantity_number(text) == number


@pytest.mark.parametrize("text", ["", "16 Gi", "16GB", "-1", "1e", "Gi", "0x10", "1_000", "٣"])
def test_other_texts_are_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity_number(text)
