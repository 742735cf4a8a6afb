"""Slurm as a cluster launcher: batch scripts of one run, or of an array of like runs, handed to sbatch in lanes."""

import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from suite.launch.cluster.launcher import EVENTS_ON_OUTPUT, ClusterLauncher, Document, NodeSetup, by_digest_note
from suite.launch.cluster.render import Raw, render_shell, shell_word
from suite.launch.cluster.submission import FOLDER, SMOKE, Submission
from suite.launch.job import PYTHON_PATH, Job, Mount, Site, torchrun_argv, torchrun_variables
from suite.launch.local import worker_path
from suite.launch.slurm import client
from suite.launch.slurm.scheduler import SlurmScheduler
from suite.launch.slurm.settings import Container, SlurmSettings
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest

#: What the batch script and Slurm set for a task. A NUL cannot be in any other word, so nothing is mistaken for one.
_MEETING = ("\0SLURM_NODEID\0", "\0SUITE_ADDRESS\0", "\0SUITE_PORT\0")
_FOLDER = "\0folder\0"
_VARIABLE = re.compile("\0([A-Za-z_]+)\0")
LONGEST_NAME = 200


class SlurmLauncher(ClusterLauncher):
    """See ``ClusterLauncher``. A document is a script of one run, or of an array of runs that ask for the same."""

    name = "slurm"
    options = SlurmSettings
    submit_help = """Submit batch jobs and return. Runs that the results folder or the cluster already has are skipped.

    With --output sbatch takes the files as they are, and `suite collect` finds their runs.
    """
    documents = "scripts"
    suffix = ".sbatch"
    command = "sbatch"
    chains = True
    scheduler = SlurmScheduler

    def __init__(self, options: SlurmSettings, nodes: NodeSetup) -> None:
        self._settings = options.model_copy(update={"container": _container(options, nodes.image)})
        self._lanes: deque[tuple[str, ...]] | None = None
        self._after_good: tuple[str, ...] = ()
        self.starter = self._settings.manner
        if nodes.image is not None and not nodes.image.startswith("/"):
            self.notes = by_digest_note(nodes.image)
        self._nodes = nodes
        if nodes.image is None and nodes.mounts:
            raise UsageError("--mount is of containers; without --image the ranks see the nodes' folders: leave it out")

    def site(self, manifest: Manifest) -> Site:
        python, image = self._nodes.python, self._nodes.image
        return Site(
            python=python,
            bundle=".",
            python_path=worker_path(python) if image is None else PYTHON_PATH,
            env={**EVENTS_ON_OUTPUT, **self._nodes.env, **({} if image is None else {"SUITE_IMAGE": image})},
            image=image,
            device_count=manifest.layout.devices_per_node if manifest.measure.device == "cuda" else None,
            memory_bytes=self._settings.memory_per_rank,
            mounts=self._nodes.mounts,
        )

    def render(self, submissions: Sequence[Submission], root: Path) -> list[Document]:
        groups: dict[str, list[Submission]] = {}
        for submission in submissions:
            # of runs of one array everything is equal but who they are
            same = submission.job.model_copy(update={"name": "any", "labels": {}}).model_dump_json()
            groups.setdefault(same if self._settings.array else submission.run_id, []).append(submission)
        documents, root = list[Document](), root.resolve()
        for group in groups.values():
            name = group[0].run_id
            facts = {"name": name, "job": None, "output": str(root / FOLDER / name), "starter": self._settings.starter}
            indices = range(len(group)) if len(group) > 1 else [None]
            known = [each.with_scheduler(**facts, index=index) for each, index in zip(group, indices, strict=True)]
            documents.append(Document(name, batch_script(group, self._settings, root), tuple(known)))
        return documents

    def announced(self, document: Document, token: str) -> Document:
        """A name and output files of this attempt alone."""
        name = f"{document.name[: LONGEST_NAME - len(token) - 1]}-{token}"
        output = Path(document.submissions[0].fact("output", str)).with_name(f"{document.name}-{token}")
        known = (each.with_scheduler(name=name, output=str(output), job=None) for each in document.submissions)
        return document._replace(submissions=tuple(known))

    def submit(self, document: Document, earlier: Sequence[Submission]) -> tuple[Submission, ...]:
        first, is_array = document.submissions[0], len(document.submissions) > 1
        lanes = self._own_lanes(document)
        waits_for = list(lanes) if is_array else [lanes[0]]  # an array keeps to their number by itself
        jobs = dict.fromkeys(job for lane in waits_for for job in lane)
        words = [f"afterok:{':'.join(self._after_good)}"] if self._after_good else []
        words += [f"afterany:{':'.join(jobs)}"] if jobs else []
        own = [f"--job-name={first.fact('name', str)}", f"--output={output_files(first.fact('output', str), is_array)}"]
        if words:  # it is cancelled where a failed first run would keep it for ever
            own += [f"--dependency={','.join(words)}", "--kill-on-invalid-dep=yes"]
        job = client.submit(document.text, *own)
        for _ in waits_for:
            lanes[0] = (job,)
            lanes.rotate(-1)
        members = [f"{job}_{index}" for index in range(len(document.submissions))] if is_array else [job]
        known = zip(document.submissions, members, strict=True)
        return tuple(each.with_scheduler(job=member) for each, member in known)

    def start_after(self, first: Sequence[Submission]) -> None:
        self._after_good = tuple(submission.fact("job", str) for submission in first)
        self._lanes = None

    def by_hand(self, paths: Sequence[Path]) -> list[str]:
        """A chain of jobs where one run at a time is asked for."""
        if len(paths) == 1 or self._settings.at_once > 1:
            return super().by_hand(paths)
        lines, waits = [], ""
        for path in paths:
            lines.append(f"job=$(sbatch --parsable{waits} {quote(str(path))})")
            waits = " --dependency=afterany:${job%%;*}"
        return lines

    def sent(self, document: Document) -> list[str]:
        lines = document.text.splitlines()
        options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
        step = document.text.partition("command=(\n")[2].partition("    bash\n")[0].split()
        return [f"sbatch {' '.join(options)}", " ".join(step)]

    def _own_lanes(self, document: Document) -> deque[tuple[str, ...]]:
        """As many as runs may be under way at once, the next one first: in each a job waits for those before it, at
        first for whatever this results folder has under way. Asked once."""
        if self._lanes is None:
            root = Path(document.submissions[0].fact("output", str)).parent.parent
            root = root.parent if root.name == SMOKE else root
            ahead = client.unfinished((str(root / FOLDER), str(root / SMOKE / FOLDER)))
            ahead = [job for job in ahead if job not in self._after_good]
            lanes = self._settings.at_once
            self._lanes = deque(tuple(ahead[lane::lanes]) for lane in range(lanes))
            self._lanes.rotate(-(len(ahead) % lanes))
        return self._lanes

    def where(self, submission: Submission) -> str:
        return f"job {submission.scheduler['job']}"

    def submitted_json(self, submissions: Sequence[Submission], statuses: Mapping[str, str]) -> dict[str, Any]:
        return {"jobs": {each.run_id: each.scheduler["job"] for each in submissions}}


def _container(options: SlurmSettings, image: str | None) -> Container:
    """What runs the image: what was asked for, else pyxis. Raises UsageError for one without the other."""
    asked = options.container if "container" in options.model_fields_set else "none" if image is None else "pyxis"
    if (asked == "none") != (image is None):
        image = image or "none"
        raise UsageError(f"--container {asked} and --image {image} do not go together: give both, or leave one out")
    if image is not None and image.endswith((".sqsh", ".sif")) and not image.startswith("/"):
        raise UsageError(f"--image {image}: write the whole path of an image file, as the nodes see it")
    return asked


def batch_script(runs: Sequence[Submission], settings: SlurmSettings, root: Path) -> str:
    """The script of one run, or of an array: all runs must ask for the same. ``root``: the results folder, absolute.
    Raises UsageError for what Slurm or a container does not take."""
    job = runs[0].job
    return render_shell(
        "slurm/job.sbatch.j2",
        options=sbatch_options([run.job.name for run in runs], job, settings, root),
        runs=runs,
        command=srun_argv(job, settings),
        nodes=job.nodes,
        binding=_binding(settings),
    )


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
    task = render_shell("slurm/task.sh.j2", command=command)
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
