"""Options of every command that starts runs, and the launchers that it may name: where a run is started, and how."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

import typer

from suite.backends.registry import read_interpreters
from suite.cli.command import flag, group, option
from suite.cli.options.fields import option_group, option_of, settings_of
from suite.cli.options.reading import Python
from suite.cli.output import warn
from suite.conduct.planning.machine import Machine, look_at_machine, measured_with
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

    def open(self, device: str, backends: Sequence[str], planning: bool = False) -> tuple[Machine, Launcher]:
        """The machine as its launcher sees it, and the launcher. Raises UsageError when it cannot be used."""
        if self.launcher not in LAUNCHERS:
            known = " or ".join(LAUNCHERS)
            raise UsageError(f"--launcher is {known}, not {self.launcher!r}{nearest(self.launcher, LAUNCHERS)}")
        given = {field.name for field in fields(self) if getattr(self, field.name) != field.default}
        for name, own in _OWN.items():
            for each in own if name != self.launcher else ():
                if each in given:  # it would be ignored
                    raise UsageError(
                        f"{option_of(each)} means nothing to the {self.launcher} launcher; "
                        f"add --launcher {name}, or leave it out"
                    )
        return LAUNCHERS[self.launcher](self, device, backends, planning)

    def warn_if_busy(self, machine: Machine, launcher: Launcher) -> None:
        """One line on standard error about what else this host does, where it is the one that runs are started on."""
        runtime = getattr(launcher, "runtime", None)
        if self.require_idle or (runtime is not None and runtime.facts.remote):
            return
        busy = busy_now(machine.device, machine.device_names)
        if busy is not None:
            warn("warning: ", f"this machine is busy: {busy}; runs that this disturbs will be marked as suspect")


def _open_local(where: Where, device: str, backends: Sequence[str], planning: bool) -> tuple[Machine, Launcher]:
    start, settings = find_start(where.start), settings_of(where, DockerSettings)
    asked = read_interpreters(where.python or (), compares=True)
    machine = look_at_machine(asked.usual or sys.executable, device, planning, settings.gpu_ids)
    pythons = {seat: path for name in backends for seat, path in asked.seats(name).items()}
    machine = machine.model_copy(update={"pythons": pythons, "variables": measured_with(settings.env)})
    _require_idle(where, machine, planning)
    env = {**settings.env, **(REQUIRE_IDLE if where.require_idle else {})}
    return machine, LocalLauncher(gpus=machine.device_names, env=env, start=start)


def _open_docker(where: Where, device: str, backends: Sequence[str], planning: bool) -> tuple[Machine, Launcher]:
    from suite.conduct.running.containers import open_containers

    python = None
    if where.python:  # the variable names this machine's interpreter, not the images'
        asked = read_interpreters(where.python)
        if asked.named:
            raise UsageError("each image has one interpreter: with --launcher docker --python is PATH, not NAME=PATH")
        python = asked.usual
    settings = settings_of(where, DockerSettings)
    if where.require_idle:
        settings = settings.model_copy(update={"env": {**settings.env, **REQUIRE_IDLE}})
    opened = open_containers(settings, where.image, backends, device, python, note, planning)
    if where.require_idle and not opened[1].runtime.facts.remote:
        _require_idle(where, opened[0], planning)
    return opened


def _require_idle(where: Where, machine: Machine, planning: bool) -> None:
    """Raises UsageError where the devices of this host are to be free and are not; a plan is only looked at."""
    if where.require_idle and not planning:
        require_idle_gpus(machine.device_names) if machine.device == "cuda" else require_idle_cpus()


#: the launchers of `suite run` by name
LAUNCHERS = {LOCAL: _open_local, "docker": _open_docker}
#: options that only one of them understands
_OWN = {
    LOCAL: ["start"],
    "docker": [field.name for field in fields(DockerOptions) if field.name not in ("gpu_ids", "env")],
}
