"""One job, every launcher: what a rank runs, sees and may use does not depend on who starts it."""

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from suite.backends.registry import find_backend
from suite.conduct.running.execute import make_job
from suite.launch.cluster.launcher import EVENTS_ON_OUTPUT
from suite.launch.docker.launcher import container_document
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import PYTHON, PYTHON_PATH, RUNS, Job, Mount, Site
from suite.launch.kubernetes.pod import parse, render
from suite.launch.kubernetes.settings import KubernetesSettings
from suite.launch.local import rank_variables
from suite.launch.slurm.launcher import batch_script, container_image
from suite.launch.slurm.settings import SlurmSettings
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Backend, Limits, Manifest, Measure
from suite.spec.resolve import layout_errors, make_manifest
from tests.launch.kubernetes.read_back import as_pods
from tests.launch.kubernetes.runs import IMAGE, launcher_of
from tests.launch.slurm.jobs import SlurmRun
from tests.launch.slurm.jobs import site as slurm_site

#: what says where the suite lies, how its output comes back and which network is there: each launcher's own
OWN_VARIABLES = {"PYTHONPATH", "HOME", "SUITE_IMAGE", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", *EVENTS_ON_OUTPUT}


names = st.from_regex(r"[A-Z]{1,8}_X", fullmatch=True)


class Seen(NamedTuple):
    """A run as its ranks find it, with the launcher's own paths taken out."""

    argv: tuple[str, ...]
    env: dict[str, str]
    nodes: int
    ranks_per_node: int
    gpus_per_node: int
    memory_bytes: int | None  # of all ranks of a node
    run_seconds: float


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Any run of the engine backends that can be laid out."""
    driver = find_backend(draw(st.sampled_from(["deepspeed", "megatron"])))
    device = draw(st.sampled_from(["cpu", "cuda"]))
    workload = find_workload("cpu" if device == "cpu" else "trlx-ds-chat")
    size = find_size(draw(st.sampled_from(["1M", "8M"] if device == "cpu" else ["1.3B", "13B", "66B"])))
    shape = {"nodes": draw(st.integers(1, 4)), "devices_per_node": draw(st.sampled_from([1, 2, 4, 8]))}
    layout = driver.layout(size, workload, LayoutRequest(**shape))
    measure = Measure(
        device=device, precision="fp32" if device == "cpu" else "bf16", threads_per_rank=draw(st.integers(1, 16))
    )
    if layout_errors(size, workload, layout) or driver.errors(size, workload, layout, measure):
        layout = driver.layout(size, workload, LayoutRequest(nodes=1, devices_per_node=1))
    return make_manifest(
        plan="plan",
        repeat=draw(st.integers(1, 9)),
        backend=Backend(name=driver.name, kind=driver.kind),
        size=size,
        workload=workload,
        layout=layout,
        measure=measure,
        limits=Limits(run_seconds=draw(st.integers(1, 10**6)), silence_seconds=60),
        stack={"torch": "2.13.0"},
    )


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(
    manifest=manifests(),
    extra=st.dictionaries(names, st.text("ab' $\"{", max_size=9)),
    memory=st.none() | st.integers(1, 1 << 20).map(lambda mebibytes: mebibytes << 20),
)
def test_every_launcher_gives_the_ranks_the_same_job(manifest, extra, memory):
    asked = Asked(manifest, extra, memory)
    wanted = expected(asked)
    assert by_kubernetes(asked) == wanted
    for container in ("none", "pyxis", "apptainer"):
        assert by_slurm(asked, SlurmSettings(container=container)) == wanted
        assert by_slurm(asked, SlurmSettings(container=container, starter="srun")) == wanted
    if manifest.layout.nodes == 1:
        assert by_local(asked) == wanted
        assert by_docker(asked) == wanted


class Asked(NamedTuple):
    """A run, and what its user adds to it."""

    manifest: Manifest
    extra: dict[str, str]
    memory: int | None  # bytes of one rank


def expected(asked: Asked) -> Seen:
    """From the manifest alone."""
    manifest, extra, memory = asked
    driver, measure = find_backend(manifest.backend.name), manifest.measure
    env = {"OMP_NUM_THREADS": str(measure.threads_per_rank), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if measure.device == "cpu" else {}
    return Seen(
        argv=("PYTHON", *driver.worker_argv("BUNDLE/manifest.json", "BUNDLE")),
        env={**env, **hidden, **driver.variables(measure), **extra},
        nodes=manifest.layout.nodes,
        ranks_per_node=manifest.layout.devices_per_node,
        gpus_per_node=gpus(manifest),
        memory_bytes=None if memory is None else memory * manifest.layout.devices_per_node,
        run_seconds=manifest.limits.run_seconds,
    )


def gpus(manifest: Manifest) -> int:
    return manifest.layout.devices_per_node if manifest.measure.device == "cuda" else 0


def seen(site: Site, argv: list[str], env: dict[str, str], **rest: Any) -> Seen:
    """With the site's paths named instead of spelt."""
    python, *words = argv
    assert python == site.python
    inside = f"{site.bundle}/"
    named = [f"BUNDLE/{word.removeprefix(inside)}" if word.startswith(inside) else word for word in words]
    return Seen(
        argv=("PYTHON", *("BUNDLE" if word == site.bundle else word for word in named)),
        env={name: value for name, value in env.items() if name not in OWN_VARIABLES},
        **rest,
    )


def by_local(asked: Asked) -> Seen:
    manifest, extra, memory = asked
    where = {"python": "/venv/bin/python", "bundle": "/here/runs/run", "python_path": "/here"}
    site = Site(**where, env=extra, memory_bytes=memory)
    job = make_job(manifest, site)
    ranks = [rank_variables(job, rank, 29500) for rank in range(job.ranks)]
    assert [rank_env["RANK"] for rank_env in ranks] == [str(rank) for rank in range(manifest.layout.ranks)]
    assert {rank_env["WORLD_SIZE"] for rank_env in ranks} == {str(manifest.layout.ranks)}
    # the host's GPUs are as the host has them; the memory is each process's own
    each = job.limits.memory_bytes
    rest = {"nodes": 1, "ranks_per_node": len(ranks), "gpus_per_node": gpus(manifest)}
    rest["memory_bytes"] = None if each is None else each * len(ranks)
    return seen(site, list(job.argv), job.env, run_seconds=job.limits.run_seconds, **rest)


def by_docker(asked: Asked) -> Seen:
    manifest, extra, memory = asked
    bundle = f"{RUNS}/{manifest.run.id}"
    site = Site(
        python=PYTHON,
        bundle=bundle,
        python_path=PYTHON_PATH,
        env=extra,
        image=IMAGE,
        device_count=gpus(manifest) or None,
        memory_bytes=memory,
        mounts=(Mount(source="/here/runs/run", target=bundle, read_only=False),),
    )
    job = make_job(manifest, site)
    body = container_document(job, DockerSettings(), user="1000:1000")
    host = body["HostConfig"]
    asked = json.loads(*body["Cmd"])
    node = asked["job"]
    env = dict(entry.split("=", 1) for entry in body["Env"])
    assert [(mount["Target"], mount["ReadOnly"]) for mount in host["Mounts"]] == [(bundle, False)]
    assert asked["folder"] == bundle
    assert host.get("Memory") == host.get("MemorySwap"), "no swap beyond the memory"
    return seen(
        site,
        node["argv"],
        {name: value for name, value in env.items() if name in job.env},
        nodes=1,
        ranks_per_node=node["ranks_per_node"],
        gpus_per_node=sum(request["Count"] for request in host["DeviceRequests"]),
        memory_bytes=host.get("Memory"),
        run_seconds=node["limits"]["run_seconds"],
    )


def by_kubernetes(asked: Asked) -> Seen:
    manifest, extra, memory = asked
    site = launcher_of(extra, memory_per_rank=memory).site(manifest)
    job = make_job(manifest, site)
    pods = KubernetesSettings(shared_memory="64Gi")
    found = as_pods(parse(render(job, pods, {"manifest.json": "{}"}, {})))
    assert found.requests == found.limits
    # what is in /dev/shm counts to a pod's memory, and is no rank's
    room = int(found.limits["memory"]) - (64 << 30) if "memory" in found.limits else None
    commands = [_torchrun(command) for command in found.commands]
    assert [command["node_rank"] for command in commands] == [str(node) for node in range(manifest.layout.nodes)]
    assert found.image == IMAGE
    assert manifest.limits.run_seconds <= found.run_seconds < manifest.limits.run_seconds + 1
    return seen(
        site,
        commands[0]["argv"],
        found.env,
        nodes=int(commands[0]["nnodes"]),
        ranks_per_node=int(commands[0]["nproc_per_node"]),
        gpus_per_node=int(found.limits.get("nvidia.com/gpu", 0)),
        memory_bytes=room,
        run_seconds=manifest.limits.run_seconds,
    )


def by_slurm(asked: Asked, queue: SlurmSettings) -> Seen:
    manifest, extra, memory = asked
    image = None if queue.container == "none" else IMAGE
    mounts = () if image is None else (Mount(source="/data", target="/cache"),)
    site = slurm_site(manifest, image, mounts, env={**EVENTS_ON_OUTPUT, **extra}, memory_bytes=memory)
    job = make_job(manifest, site)
    script = batch_script([SlurmRun(manifest, job)], queue, Path("/here/runs"))
    words = [
        shlex.split(line.removeprefix("#SBATCH "))[0] for line in script.splitlines() if line.startswith("#SBATCH")
    ]
    options = dict(word.partition("=")[::2] for word in words)
    step = shlex.split(script.partition("command=(\n")[2].partition("\n)\n")[0])
    line = step[-1].partition("exec 8>&2 2>/dev/null\n")[2].partition("\ncode=$?\n")[0]
    assert line.endswith(" </dev/null 2>&8 8>&-"), "the ranks' errors are shown, the shell's are not"
    task = shlex.split(line.removesuffix(" </dev/null 2>&8 8>&-").replace(" \\\n", " "))
    before, inside = task[: task.index("env")], task[task.index("env") + 1 :]
    _check_container(queue, step, before, job)
    count = next((index for index, word in enumerate(inside) if "=" not in word), 0)
    env = dict(word.split("=", 1) for word in inside[:count])
    tasks = int(options["--ntasks-per-node"])
    seconds = int(options["--time"]) * 60 - queue.allowance_seconds
    assert 0 <= seconds - manifest.limits.run_seconds < 60.001
    room = int(options["--mem"].removesuffix("M")) << 20
    rest: dict[str, Any] = {"gpus_per_node": int(options.get("--gpus-per-node", 0)), "memory_bytes": room or None}
    rest["run_seconds"] = manifest.limits.run_seconds
    if queue.starter == "srun":
        assert env["WORLD_SIZE"] == str(manifest.layout.ranks)
        kept = {name: value for name, value in env.items() if name in job.env}
        return seen(site, inside[count:], kept, nodes=int(options["--nodes"]), ranks_per_node=tasks, **rest)
    assert tasks == 1
    command = _torchrun(inside[count:])
    shape = {"nodes": int(command["nnodes"]), "ranks_per_node": int(command["nproc_per_node"])}
    assert options["--nodes"] == command["nnodes"]
    return seen(site, command["argv"], env, **shape, **rest)


def _check_container(settings: SlurmSettings, step: list[str], before: list[str], job: Job) -> None:
    if settings.container == "pyxis":
        assert f"--container-image={container_image(IMAGE, 'pyxis')}" in step
        assert "--container-mounts=/data:/cache:ro" in step
    elif settings.container == "apptainer":
        assert before[-1] == container_image(IMAGE, "apptainer")
        assert "--bind=/data:/cache:ro" in before
        assert ("--nv" in before) == bool(job.device_count)
    else:
        assert before == []


def _torchrun(command: Any) -> dict[str, Any]:
    """torchrun's options by name, and the command that each rank becomes."""
    words = list(command)
    assert words[1:3] == ["-m", "torch.distributed.run"]
    count = next(index for index in range(3, len(words)) if not words[index].startswith("--"))
    options = dict(word.removeprefix("--").split("=", 1) for word in words[3:count])
    return {**options, "argv": [words[0], *words[count:]]}
