"""The batch script of one run, or of an array of runs that ask the cluster for the same. Pure."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from suite.launch.cluster.render import Raw, render_shell, shell_word
from suite.launch.cluster.submission import FOLDER, Submission
from suite.launch.job import Job, Mount, torchrun_argv, torchrun_variables
from suite.launch.slurm.settings import Container, SlurmSettings
from suite.spec.base import UsageError

JOB_TEMPLATE, TASK_TEMPLATE = "slurm/job.sbatch.j2", "slurm/task.sh.j2"
#: What the batch script and Slurm set for a task. A NUL cannot be in any other word, so nothing is mistaken for one.
_MEETING = ("\0SLURM_NODEID\0", "\0SUITE_ADDRESS\0", "\0SUITE_PORT\0")
_FOLDER = "\0folder\0"
_VARIABLE = re.compile("\0([A-Za-z_]+)\0")
LONGEST_NAME = 200


def batch_script(runs: Sequence[Submission], settings: SlurmSettings, root: Path) -> str:
    """The script of one run, or of an array: all runs must ask for the same. ``root``: the results folder, absolute.
    Raises UsageError for what Slurm or a container does not take."""
    job = runs[0].job
    assert all(same_request(run.job) == same_request(job) for run in runs), "an array's runs ask for the same"
    return render_shell(
        JOB_TEMPLATE,
        options=sbatch_options([run.job.name for run in runs], job, settings, root),
        runs=runs,
        command=srun_argv(job, settings),
        nodes=job.nodes,
        binding=_binding(settings),
    )


def same_request(job: Job) -> Job:
    """What must be equal between the runs of one array: everything but who they are."""
    return job.model_copy(update={"name": "any", "labels": {}})


def output_files(start: str, is_array: bool) -> str:
    """Where a job's output goes, in sbatch's spelling: ``%j`` the job, ``%A_%a`` the array and its member."""
    if "\\" in start:
        raise UsageError(f"--runs {Path(start).parent.parent}: Slurm writes no output below a name with a backslash")
    return start.replace("%", "%%") + ("-%A_%a.out" if is_array else "-%j.out")


def sbatch_options(names: Sequence[str], job: Job, settings: SlurmSettings, root: Path) -> list[str]:
    """Every #SBATCH line, each as one word."""
    tasks = 1 if settings.starter == "torchrun" else job.ranks_per_node
    options = [
        f"--job-name={names[0][:LONGEST_NAME]}",
        f"--output={output_files(str(root / FOLDER / names[0]), len(names) > 1)}",
        f"--chdir={root / FOLDER}",
        "--open-mode=truncate",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={tasks}",
        f"--time={math.ceil((job.limits.run_seconds + settings.allowance_seconds) / 60)}",
        "--requeue" if settings.requeue else "--no-requeue",
    ]
    if len(names) > 1:
        options.append(f"--array=0-{len(names) - 1}%{settings.at_once}")
    named = {"partition", "account", "qos", "reservation", "constraint", "hint"}
    options += [f"--{name}={value}" for name, value in settings.model_dump(include=named, exclude_none=True).items()]
    if job.device_count:
        kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
        option = "gres=gpu:" if settings.gpu_request == "gres" else "gpus-per-node="
        options.append(f"--{option}{kind}{job.device_count}")
    if settings.exclusive:
        options.append("--exclusive")
    options += _cpus_per_task(settings, tasks)
    if job.limits.memory_bytes is not None:
        options.append(f"--mem={math.ceil(job.limits.memory_bytes * job.ranks_per_node / 2**20)}M")
    elif settings.exclusive:
        options.append("--mem=0")
    return [*options, *settings.options]


def _cpus_per_task(settings: SlurmSettings, tasks: int) -> list[str]:
    """The node's CPUs divided among its tasks; nothing: whatever Slurm gives. Raises UsageError."""
    cpus = settings.cpus_per_node
    if cpus is not None and cpus < tasks:
        raise UsageError(f"{cpus} CPUs of a node are fewer than its {tasks} tasks")
    return [] if cpus is None else [f"--cpus-per-task={cpus // tasks}"]


def srun_argv(job: Job, settings: SlurmSettings) -> list[Raw]:
    """The step: one task on each node, or one for each rank, as quoted shell words. A task that fails ends it."""
    tasks = 1 if settings.starter == "torchrun" else job.ranks_per_node
    words = ["srun", f"--nodes={job.nodes}", f"--ntasks={job.nodes * tasks}", f"--ntasks-per-node={tasks}"]
    words += [*_cpus_per_task(settings, tasks), _binding(settings), "--mpi=none", "--input=all", "--label"]
    words += ["--kill-on-bad-exit=1", "--wait=60"]
    if settings.container == "pyxis":
        words += _pyxis(job)
    command = Raw(" \\\n    ".join(_expanding(word) for word in task_argv(job, settings)))
    task = render_shell(TASK_TEMPLATE, command=command)
    return [shell_word(word) for word in (*words, "bash", "-c", task)]


def _binding(settings: SlurmSettings) -> str:
    """How srun binds its tasks. It takes a hint or a binding, not both; the job's hint is in its environment too."""
    if settings.hint is not None:
        return f"--hint={settings.hint}"
    return f"--cpu-bind={settings.cpu_bind or 'none'}"


def task_argv(job: Job, settings: SlurmSettings) -> tuple[str, ...]:
    """What one task runs. Names between NULs are variables that the task's shell replaces."""
    # an image knows no home of the user's, and may be read-only: caches belong into the task's own folder
    home = {} if settings.container == "none" else {"HOME": _FOLDER}
    env = {**home, **job.env}
    if settings.starter == "torchrun":
        command = torchrun_argv(job, *_MEETING, f"{_FOLDER}/torchrun")
    else:
        env |= torchrun_variables(job, "\0SLURM_PROCID\0", "\0SLURM_LOCALID\0", *_MEETING)
        command = job.argv
    inside = ("env", *(f"{name}={value}" for name, value in sorted(env.items())), *command)
    return (*_apptainer(job), *inside) if settings.container == "apptainer" else inside


def _expanding(word: str) -> Raw:
    """A word in which variables are replaced by the shell, quoted, and all else stands as it is."""
    texts = _VARIABLE.split(word)
    quoted = [f'"${text}"' if index % 2 else shell_word(text) for index, text in enumerate(texts) if text]
    return Raw("".join(quoted) or "''")


def _pyxis(job: Job) -> list[str]:
    assert job.image is not None, "a container has an image"
    mounts = [f"--container-mounts={','.join(map(_mount, job.mounts))}"] if job.mounts else []
    image = f"--container-image={container_image(job.image, 'pyxis')}"
    return [image, "--no-container-entrypoint", "--no-container-mount-home", "--container-writable", *mounts]


def _apptainer(job: Job) -> tuple[str, ...]:
    assert job.image is not None, "a container has an image"
    gpus, image = ("--nv",) if job.device_count else (), container_image(job.image, "apptainer")
    mounts = tuple(f"--bind={_mount(mount)}" for mount in job.mounts)
    return ("apptainer", "exec", *gpus, "--no-home", *mounts, f"--bind={_FOLDER}", f"--pwd={_FOLDER}", image)


def _mount(mount: Mount) -> str:
    for path in (mount.source, mount.target):
        if set(path) & set(",:"):
            raise UsageError(f"{path} cannot be mounted by Slurm's containers: its name holds a comma or a colon")
    return f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}"


#: as Docker tells a registry from the first part of a path: by a dot, a port, or this host
_REFERENCE = re.compile(
    r"(?:docker://)?((?:[A-Za-z0-9-]+[.:][A-Za-z0-9.:-]*|localhost)/)?([a-z0-9][a-z0-9._/-]*)"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?"
)


def container_image(image: str, container: Container) -> str:
    """The image as its container runtime reads it. Paths of files, enroot's own spelling and other sources stay.

    pyxis: ``[REGISTRY#]PATH[:TAG]``, as enroot before 4 needs it; a digest takes the tag's place. Apptainer:
    ``docker://NAME``, without the tag where there is a digest, since it refuses both.
    """
    found = _REFERENCE.fullmatch(image)
    if found is None:
        return image
    registry, path, tag, digest = found.groups(default="")
    if container == "apptainer":
        return f"docker://{registry}{path}{digest or tag}"
    return f"{registry.replace('/', '#')}{path}{digest.replace('@', ':') or tag}"
