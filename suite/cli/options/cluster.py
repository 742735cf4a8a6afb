"""Options of every command that renders or submits runs for a cluster: on which nodes, with which stack."""

import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from suite.backends.registry import read_interpreters
from suite.cli.command import Python, checked, flag, group, option
from suite.cli.options.fields import option_of, settings_of
from suite.cli.options.work import Work, refuse
from suite.cli.output import warn
from suite.conduct.cluster.hand_over import ToDo, prepare, to_do
from suite.conduct.cluster.machine import ClusterMachine, cluster_machine, plan_again, require_layout
from suite.conduct.cluster.smoke import smoke_plan
from suite.conduct.planning.machine import measured_with
from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.preflight import Preflight, preflight
from suite.conduct.running.rerun import read_manifest
from suite.launch.cluster.launcher import ClusterLauncher, Document, NodeSetup
from suite.launch.idle import REQUIRE_IDLE
from suite.launch.job import PYTHON, Mount
from suite.spec.manifest import Manifest
from suite.spec.redaction import is_secret
from suite.spec.terminal import UsageError, note
from suite.spec.typed import counts, pairs

DEFAULT_GPUS_PER_NODE = 8
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: variables of every day whose names sound like one
_NO_SECRETS = frozenset(("NCCL_IB_PKEY", "TOKENIZERS_PARALLELISM"))


@group("Nodes")
class Nodes:
    """The cluster's side of a plan."""

    nodes: list[str] | None = option(
        "nodes of each run; 1,2,4 or repeated: a run on each [default: 1, or the preset's]", metavar="N"
    )
    gpus_per_node: int | None = option("GPUs, and so ranks, of each node [default: 8, or the preset's]", min=1)
    device: str = option("cuda or cpu", "cuda", metavar="cpu|cuda")
    gpu: str | None = option(
        "the nodes' GPU by its name in the catalogue: what layouts, limits and cost are planned by"
    )
    image: str | None = option("container image, best by digest", panel="Containers")
    python: Python = None
    stack: list[str] | None = option(
        "versions on the nodes, where no lock file and no interpreter here says them, or a file of "
        "`suite images stack`, which is found beside an image file; repeat",
        metavar="PACKAGE=VERSION|FILE",
    )
    env: list[str] | None = option("NAME=VALUE for every rank, e.g. NCCL_SOCKET_IFNAME=eth0; repeat")
    mount: list[str] | None = option(
        "SOURCE:TARGET[:rw] of a container, absolute paths; repeat", metavar="SOURCE:TARGET", panel="Containers"
    )
    require_idle: bool = flag("fail a run whose GPUs something else uses, before it measures")
    site: str | None = option(
        "site file: what these options are on this cluster, unless given here; none: go without "
        "[default: ~/.config/suite/site.yaml, where there is one]",
        metavar="FILE",
    )
    manifest: Path | None = option(
        "a bundle, or its manifest.json: run that again, --repeats times, in the place of options of the work",
        panel="Measuring",
    )
    runs: Path = option("results folder", Path("runs"))
    retry_failed: bool = option("run again what failed before", False, panel="Measuring")

    def launcher(self, kind: type[ClusterLauncher], options: Any) -> ClusterLauncher:
        """A launcher of this kind with the user's options. Raises UsageError; its notes go to standard error."""
        setup = NodeSetup(self.interpreter(), self.image, self.variables(), self.mounts())
        settings = settings_of(options, kind.options)
        launcher: ClusterLauncher = checked(lambda: kind(settings, setup))
        for line in launcher.notes:
            note(f"note: {line}")
        return launcher

    def look(self, work: Work, launcher: ClusterLauncher) -> tuple[Plan, Preflight]:
        """Every run that is asked for, and what is expected of it. Raises UsageError."""
        plan, machine = self._planned(work, launcher) if self.manifest is None else self._again(work, launcher)
        if any(manifest.measure.profile for manifest in plan.manifests):
            raise UsageError("--profile leaves traces where ranks run, and no cluster sends them home: use suite run")
        return plan, preflight(plan.manifests, machine.device_name, work.price)

    def _planned(self, work: Work, launcher: ClusterLauncher) -> tuple[Plan, ClusterMachine]:
        if work.stopping is not None:
            raise UsageError("--until and --difference look at results, which a submitted plan cannot: give --repeats")
        machine = self.machine(launcher)
        is_preset = not self.counts and self.gpus_per_node is None and work.preset is not None
        ranks, nodes = ((), ()) if is_preset else ((self.gpus_per_node or DEFAULT_GPUS_PER_NODE,), self.counts or (1,))
        requests, backends = work.requests(machine, ranks, nodes or (None,)), work.backends
        stacks, images, code = machine.stacks(backends), machine.images(backends), machine.code(backends)
        plan = make_joint_plan(requests, stacks, images, machine.manner, code)
        machine.require_generation(plan.manifests)
        return plan, machine

    def _again(self, work: Work, launcher: ClusterLauncher) -> tuple[Plan, ClusterMachine]:
        """The runs of a manifest that is measured once more. Raises UsageError for options that it speaks of."""
        given = [field.name for field in fields(work) if getattr(work, field.name) != field.default]
        extra = [option_of(name) for name in given if name not in ("repeats", "force", "price")]
        if extra:
            raise UsageError(f"{', '.join(extra)}: a manifest says what is measured; leave it out beside --manifest")
        assert self.manifest is not None
        wanted = read_manifest(self.manifest)
        if wanted.measure.turns == "iterations":
            raise UsageError(f"{self.manifest} took turns by iteration with other rows, which on a cluster no run does")
        require_layout(wanted, self.counts, self.gpus_per_node)
        nodes, gpus = [str(wanted.layout.nodes)], wanted.layout.devices_per_node
        machine = replace(self, nodes=nodes, gpus_per_node=gpus, device=wanted.measure.device).machine(launcher)
        return plan_again(wanted, self.runs, work.repeats, machine), machine

    def documents(self, work: Work, launcher: ClusterLauncher) -> tuple[list[Document], ToDo]:
        """What the scheduler takes for all runs that are still to be done. Raises UsageError, also for runs that are
        not expected to fit or to end in time. What is expected of the others goes to standard error."""
        plan, found = self.look(work, launcher)
        for entry in plan.skipped:
            note(f"not possible: {entry.backend} {entry.size} on {entry.ranks} ranks: {entry.reason}")
        left = to_do(plan.manifests, self.runs, self.retry_failed)
        runs = {manifest.run.id for manifest in left.manifests}
        refuse(found, runs, work.force)
        documents = launcher.render(prepare(left.manifests, launcher), self.runs)
        for line in found.of(runs).summary():
            warn("note: ", line)
        return documents, left

    def smoke(self, launcher: ClusterLauncher, manifests: Sequence[Manifest]) -> tuple[Manifest, ...]:
        """The short first runs before these, one for each backend. Raises UsageError."""
        return smoke_plan(manifests, self.machine(launcher), self.runs)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of nodes that were given. Raises UsageError."""
        return counts("--nodes", self.nodes or ())

    def interpreter(self) -> str:
        """The stack's interpreter as the ranks see it."""
        if self.image is not None:
            # the variable behind --python speaks of this machine
            return PYTHON
        asked = read_interpreters(self.python or ())
        if asked.named:
            raise UsageError("a cluster's nodes have one interpreter for all: --python is PATH here, not NAME=PATH")
        return asked.usual or sys.executable

    def machine(self, launcher: ClusterLauncher) -> ClusterMachine:
        if self.device not in ("cpu", "cuda"):
            raise UsageError(f"--device of a cluster's nodes is cuda or cpu, not {self.device!r}")
        files = [Path(text) for text in self.stack or () if "=" not in text]
        return cluster_machine(
            device="cpu" if self.device == "cpu" else "cuda",
            gpu=self.gpu,
            python=self.interpreter(),
            image=self.image,
            given=pairs("--stack", [text for text in self.stack or () if "=" in text]),
            stack_file=files[-1] if files else None,
            max_ranks=max(self.counts or (1,)) * (self.gpus_per_node or DEFAULT_GPUS_PER_NODE),
            variables=measured_with(self.variables()),
            manner=launcher.manner,
        )

    def variables(self) -> dict[str, str]:
        """What ``--env`` and ``--require-idle`` set. Raises UsageError for what is no variable, or a secret."""
        given = pairs("--env", self.env or ())
        for name in given:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(f"--env {name!r} cannot be the name of a variable")
            if name not in _NO_SECRETS and is_secret(name, given[name]):
                raise UsageError(
                    f"--env {name} looks like a secret, and scripts, pods and process lists show what --env sets: "
                    "leave it out; on Slurm export it where you submit, and sbatch hands it to the ranks"
                )
        return {**given, **REQUIRE_IDLE} if self.require_idle else given

    def mounts(self) -> tuple[Mount, ...]:
        """What ``--mount`` shows to the ranks. Raises UsageError for what is no pair of absolute paths."""
        found = []
        for text in self.mount or ():
            source, target, *mode = text.split(":")[:3] if text.count(":") in (1, 2) else ("", "")
            if not source.startswith("/") or not target.startswith("/") or mode not in ([], ["rw"], ["ro"]):
                raise UsageError(f"--mount is SOURCE:TARGET or SOURCE:TARGET:rw with absolute paths, not {text!r}")
            found.append(Mount(source=source, target=target, read_only=mode != ["rw"]))
        return tuple(found)
