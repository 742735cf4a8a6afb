"""Slurm as a cluster launcher: batch scripts of one run or of an array, handed to sbatch in lanes."""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from suite.launch.cluster.launcher import EVENTS_ON_OUTPUT, ClusterLauncher, Document, NodeSetup, by_digest_note
from suite.launch.cluster.submission import FOLDER, SMOKE, Submission
from suite.launch.job import PYTHON_PATH, Site
from suite.launch.local import worker_path
from suite.launch.slurm import client
from suite.launch.slurm.scheduler import SlurmScheduler
from suite.launch.slurm.script import LONGEST_NAME, batch_script, output_files, same_request
from suite.launch.slurm.settings import Container, SlurmSettings
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest


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

    @staticmethod
    def scheduler() -> SlurmScheduler:
        return SlurmScheduler()

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
            key = same_request(submission.job).model_dump_json() if self._settings.array else submission.run_id
            groups.setdefault(key, []).append(submission)
        return [self._script(group, root.resolve()) for group in groups.values()]

    def _script(self, group: Sequence[Submission], root: Path) -> Document:
        name = group[0].run_id
        text = batch_script(group, self._settings, root)
        facts = {"name": name, "job": None, "output": str(root / FOLDER / name), "starter": self._settings.starter}
        indices = range(len(group)) if len(group) > 1 else [None]
        known = [each.with_scheduler(**facts, index=index) for each, index in zip(group, indices, strict=True)]
        return Document(name, text, tuple(known))

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
