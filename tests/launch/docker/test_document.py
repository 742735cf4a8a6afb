"""From a job to what a runtime is asked for: what every container has, whatever is run in it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.launch.docker.launcher import container_document
from suite.launch.docker.offers import device_requests
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import Job, JobLimits, Mount
from suite.spec.base import UsageError

words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
ids = st.lists(st.integers(0, 15).map(str), min_size=1, max_size=8, unique=True).map(tuple)
jobs = st.builds(
    Job,
    name=st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True),
    argv=st.lists(words, min_size=1, max_size=6).map(tuple),
    env=st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), words, max_size=4),
    image=st.just("sha256:" + "a" * 64),
    ranks_per_node=st.integers(1, 16),
    devices=st.one_of(st.none(), st.just(()), ids),
    limits=st.builds(
        JobLimits,
        run_seconds=st.floats(0.1, 1e6),
        silence_seconds=st.floats(0.1, 1e6),
        memory_bytes=st.one_of(st.none(), st.integers(1 << 24, 1 << 40)),
    ),
    labels=st.just({"suite.run": "x"}),
).flatmap(
    lambda job: st.integers(1, 16).map(
        lambda count: job.model_copy(update={"device_count": count}) if job.devices is None else job
    )
)
accesses = st.sampled_from(["nvidia", "cdi"])


@settings(max_examples=40)
@given(jobs, accesses)
def test_a_container_may_do_what_its_work_needs_and_no_more(job: Job, access: str) -> None:
    document = container_document(job, DockerSettings(), "1000:100", access)
    host = document["HostConfig"]
    assert document["User"] == "1000:100" and document["Image"] == job.image and document["Labels"] == job.labels
    assert host["ReadonlyRootfs"] and host["Init"] and host["CapDrop"] == ["ALL"]
    assert (
        host["SecurityOpt"] == ["no-new-privileges", "label=disable"]
        and not host.get("Privileged")
        and "CapAdd" not in host
    )
    assert host["Tmpfs"] == {"/tmp": "exec,mode=1777"} and host["AutoRemove"] is False
    assert host["LogConfig"]["Type"] == "json-file" and document["Healthcheck"] == {"Test": ["NONE"]}
    json.dumps(document, allow_nan=False)
    each = job.limits.memory_bytes
    total = None if each is None else each * job.ranks_per_node
    assert (host.get("Memory"), host.get("MemorySwap")) == (total, total), "of all ranks together, and no swap"
    asked = json.loads(*document["Cmd"])
    own = Job.model_validate(asked["job"])
    assert (own.argv, own.ranks_per_node, own.name) == (job.argv, job.ranks_per_node, job.name)
    limits = job.limits.model_copy(update={"memory_bytes": None})
    assert own.limits == limits, "of memory there is the container's"
    assert asked["folder"] == f"/work/runs/{job.name}"
    assert asked["ulimits"] == {entry["Name"]: entry["Soft"] for entry in host["Ulimits"]}, "looked at inside"
    assert dict(entry.split("=", 1) for entry in document["Env"]).items() >= job.env.items()


@settings(max_examples=40)
@given(jobs, accesses)
def test_gpus_are_asked_for_by_ids_or_by_count_and_never_by_both(job: Job, access: str) -> None:
    document = container_document(job, DockerSettings(), "0:0", access)
    requests = document["HostConfig"]["DeviceRequests"]
    variables = dict(entry.split("=", 1) for entry in document["Env"])
    limits = {entry["Name"]: (entry["Soft"], entry["Hard"]) for entry in document["HostConfig"]["Ulimits"]}
    assert limits["stack"] == (64 << 20, 64 << 20)
    if not job.devices and not job.device_count:
        assert requests == [] and variables["NVIDIA_VISIBLE_DEVICES"] == "void" and variables["SUITE_DEVICES"] == ""
        assert "memlock" not in limits
        return
    (wanted,) = requests
    assert limits["memlock"] == (-1, -1), "NCCL pins memory"
    assert "NVIDIA_VISIBLE_DEVICES" not in variables, "the runtime sets it"
    number = len(job.devices or ()) or job.device_count
    assert variables["SUITE_DEVICES"] in (f"count:{number}", f"ids:{','.join(job.devices or ())}")
    if access == "cdi":
        assert wanted["Driver"] == "cdi" and len(wanted["DeviceIDs"]) == number and "Count" not in wanted
        assert all(name.startswith("nvidia.com/gpu=") for name in wanted["DeviceIDs"])
    else:
        assert wanted["Capabilities"] == [["gpu"]] and ("Count" in wanted) != ("DeviceIDs" in wanted)


def job(**changes: object) -> Job:
    body = {"name": "a-run", "argv": ("python",), "image": "sha256:1", "ranks_per_node": 2, "devices": ("0", "1")}
    return Job.model_validate({**body, **changes})


def host_of(
    own: DockerSettings | None = None, rules: dict[str, Any] | None = None, **changes: object
) -> dict[str, Any]:
    return container_document(job(**changes), own or DockerSettings(), "0:0", **(rules or {}))["HostConfig"]


def test_what_the_user_sets_and_the_runtime_demands_takes_the_place_of_the_usual() -> None:
    ulimits = {"memlock": 1 << 23, "nofile": 4096}
    own = DockerSettings(shm_bytes=1 << 30, ipc="host", ulimits=ulimits, cpuset="0-3", network="host")
    host = host_of(own, {"remapped": True})
    assert (host["ShmSize"], host["IpcMode"], host["CpusetCpus"]) == (1 << 30, "host", "0-3")
    assert host["NetworkMode"] == "host"
    assert {entry["Name"]: entry["Soft"] for entry in host["Ulimits"]} == {**ulimits, "stack": 64 << 20}
    assert host["UsernsMode"] == "host", "results belong to the caller, not to a mapped user"


def test_the_bundle_is_shared_or_takes_a_volume_of_its_own() -> None:
    mounts = (Mount(source="/data/runs/a-run", target="/work/runs/a-run", read_only=False),)
    bound = {"Type": "bind", "Source": "/data/runs/a-run", "Target": "/work/runs/a-run", "ReadOnly": False}
    volume = {"Type": "volume", "Target": "/work/runs"}
    assert host_of(mounts=mounts)["Mounts"] == [bound]
    assert host_of(rules={"remote": True}, mounts=mounts)["Mounts"] == [volume]


def test_all_gpus_are_asked_for_in_each_ways_own_words() -> None:
    assert device_requests((), -1, "nvidia") == [{"Driver": "", "Capabilities": [["gpu"]], "Count": -1}]
    assert device_requests(("all",), None, "cdi") == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]


def test_several_nodes_are_sent_to_the_launchers_that_have_them() -> None:
    with pytest.raises(UsageError, match=r"the docker launcher runs one node, not 2; .*Kubernetes or Slurm"):
        host_of(nodes=2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gpu_ids": ("0", "0")}, "named twice"),
        ({"gpu_ids": ("first",)}, "no GPU id"),
        ({"ulimits": {"memlok": 1}}, "no limit 'memlok'"),
        ({"ulimits": {"memlock": -2}}, "greater than or equal to -1"),
        ({"cpuset": "0-"}, "no set of CPUs"),
    ],
)
def test_settings_refuse_what_no_container_can_have(wrong: dict, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DockerSettings.model_validate(wrong)
