"""Options of every command that starts runs, and the launchers that it may name: where a run is started, and how."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from suite.backends.registry import Interpreters, read_interpreters
from suite.cli.command import Python, flag, group, option
from suite.cli.options.fields import option_group, option_of, settings_of
from suite.cli.output import warn
from suite.conduct.planning.machine import Machine, look_at_machine, measured_with
from suite.conduct.planning.turns import is_remote
from suite.launch.docker.settings import DockerSettings
from suite.launch.idle import REQUIRE_IDLE, busy_now, require_idle_cpus, require_idle_gpus
from suite.launch.local import LocalLauncher, find_start
from suite.launch.outcome import Launcher
from suite.spec.names import nearest
from suite.spec.terminal import UsageError, note

#: `--device` of every command that measures on this machine
Device = Annotated[
    str | None,
    typer.Option(
        envvar="SUITE_DEVICE",
        metavar="auto|cpu|cuda",
        help="what ranks compute on [default: auto, or cuda for a preset for GPUs]",
        autocompletion=lambda: ["auto", "cpu", "cuda"],
        rich_help_panel="Where it runs",
    ),
]
LOCAL = "local"
Opened = tuple[Machine, Launcher]


DockerOptions: Any = option_group(DockerSettings, DockerSettings.HEADING)


@group("Where it runs")
class Where(DockerOptions):
    """Where runs are started, and how: the choice of a launcher, and the options of every launcher."""

    launcher: str = option(
        "local, or docker: a container for each run; of suite rerun also slurm and kubernetes", LOCAL
    )
    python: Python = None
    require_idle: bool = flag("refuse to measure where something else uses the GPUs or CPUs")
    start: str = option(
        "local: each rank imports its stack (spawn), or is forked from a process that has it imported (fork; "
        "auto: on CPUs alone), which saves seconds a run",
        "spawn",
        metavar="auto|fork|spawn",
    )

    def open(self, device: str, backends: Sequence[str], planning: bool = False) -> Opened:
        """The machine as its launcher sees it, and the launcher. Raises UsageError when it cannot be used."""
        if self.launcher not in LAUNCHERS:
            known = " or ".join(LAUNCHERS)
            raise UsageError(f"--launcher is {known}, not {self.launcher!r}{nearest(self.launcher, LAUNCHERS)}")
        if device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"--device is auto, cpu or cuda, not {device!r}")
        given = {field.name for field in fields(self) if getattr(self, field.name) != field.default}
        for name, own in _OWN.items():
            for each in own if name != self.launcher else ():
                if each in given:  # it would be ignored
                    way = f"add --launcher {name}, or leave it out"
                    raise UsageError(f"{option_of(each)} means nothing to the {self.launcher} launcher; {way}")
        settings = settings_of(self, DockerSettings)
        if device == "cpu" and settings.gpu_ids:
            raise UsageError("--device cpu leaves no use for --gpu-ids; leave it out")
        if self.require_idle:
            settings = settings.model_copy(update={"env": {**settings.env, **REQUIRE_IDLE}})
        opened = LAUNCHERS[self.launcher](self, settings, device, backends, planning)
        if self.require_idle and not planning and not is_remote(opened[1]):
            on_gpus = opened[0].device == "cuda"
            require_idle_gpus(opened[0].device_names) if on_gpus else require_idle_cpus()
        return opened

    def warn_if_busy(self, machine: Machine, launcher: Launcher) -> None:
        """One line on standard error about what else this host does, where it is the one that runs are started on."""
        busy = None if self.require_idle or is_remote(launcher) else busy_now(machine.device, machine.device_names)
        if busy is not None:
            warn("warning: ", f"this machine is busy: {busy}; runs that this disturbs will be marked as suspect")


def _local(where: Where, settings: DockerSettings, device: str, backends: Sequence[str], planning: bool) -> Opened:
    start, asked = find_start(where.start), read_interpreters(where.python or (), compares=True)
    machine = look_at_machine(asked.usual or sys.executable, device, planning, settings.gpu_ids)
    pythons = {seat: path for name in backends for seat, path in asked.seats(name).items()}
    machine = machine.model_copy(update={"pythons": pythons, "variables": measured_with(settings.env)})
    return machine, LocalLauncher(gpus=machine.device_names, env=settings.env, start=start)


def _docker(where: Where, settings: DockerSettings, device: str, backends: Sequence[str], planning: bool) -> Opened:
    from suite.conduct.running.containers import open_containers

    # the variable behind --python names this machine's interpreter, not the images'
    asked = read_interpreters(where.python) if where.python else Interpreters()
    if asked.named:
        raise UsageError("each image has one interpreter: with --launcher docker --python is PATH, not NAME=PATH")
    return open_containers(settings, where.image, backends, device, asked.usual, note, planning)


#: the launchers of `suite run` by name
LAUNCHERS = {LOCAL: _local, "docker": _docker}
#: options that only one of them understands
_OWN = {
    LOCAL: ["start"],
    "docker": [field.name for field in fields(DockerOptions) if field.name not in ("gpu_ids", "env")],
}
