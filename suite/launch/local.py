"""Ranks of one node, started by this process and watched without polling; and ports at which they meet."""

import os
import random
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import suite
from suite.launch.job import Job, Site, torchrun_variables
from suite.launch.outcome import OnEvent, Outcome
from suite.launch.processes import RankProcess, child_subreaper, descendants, end_with_this_process, sweep
from suite.launch.requests import Stops, stop_requests
from suite.launch.supervise import USUAL_PATIENCE, Patience, Rank, Supervision
from suite.launch.watching import TURNS
from suite.launch.zygotes import ForkError, Zygotes, can_fork
from suite.spec.base import UsageError
from suite.spec.foreign import open_log
from suite.spec.manifest import Manifest
from suite.spec.names import nearest

Start = Literal["auto", "fork", "spawn"]
#: with the rank's own variables, the descriptor of its log, and whether its standard output is to be read here
StartRank = Callable[[Mapping[str, str], int, bool], RankProcess]
#: makes a call there, and gives or raises what it does
InMainThread = Callable[[Callable[[], Any]], Any]


class LocalLauncher:
    """Runs a job's ranks on this machine, each in its own session, with the variables that torchrun would set.

    Ranks are started in the main thread: the kernel is asked to end them when the thread that started them ends
    (PR_SET_PDEATHSIG). There it also waits for Ctrl-C and SIGTERM; runs at the same time, each ``beside`` the others in
    a thread and in a block of ``together``, are told of these by their own requests. A second one has no patience.
    """

    name = "local"

    def __init__(
        self,
        patience: Patience = USUAL_PATIENCE,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        start: Start = "spawn",
    ) -> None:
        """``gpus``: UUIDs of those that runs use, in this order; none: as the host has it. ``env``: for every rank.
        ``start``: ``spawn`` starts each rank by itself; ``fork`` forks it from a process that has imported its stack,
        where that can be done (``suite.launch.zygotes``), and ``auto`` does so for runs on a CPU."""
        self._patience, self._gpus, self._env, self._start = patience, gpus, env, start
        self._zygotes = Zygotes()
        self._stops: Stops = stop_requests
        self._in_main_thread: InMainThread = lambda call: call()

    def beside(self, stops: Stops, in_main_thread: InMainThread) -> "LocalLauncher":
        """The same launcher for one of several runs at the same time, stopped by these requests."""
        one = copy(self)
        one._stops, one._in_main_thread = stops, in_main_thread
        return one

    @contextmanager
    def together(self) -> Iterator[None]:
        """Of runs in this block each ends what is in its ranks' sessions, and the block's end whatever else is left."""
        with child_subreaper():
            before = descendants()
            try:
                yield
            finally:
                sweep(before | self._zygotes.processes(), (), self._patience.helper_seconds)

    def site(self, manifest: Manifest, bundle: Path, python: str) -> Site:
        """The host's own paths, and a GPU for each rank. Raises UsageError as ``worker_path`` does."""
        gpus = self._gpus[: manifest.layout.devices_per_node] if manifest.measure.device == "cuda" else ()
        return Site(
            python=python,
            bundle=str(bundle),
            python_path=worker_path(python),
            env=dict(self._env),
            stack=self._stack(manifest),
            devices=gpus or None,
        )

    def facts(self, job: Job) -> dict[str, Any]:
        """The GPUs, where they were chosen; the host's other facts are everybody's."""
        return {"devices": {"ids": job.devices}} if job.devices else {}

    def run(self, job: Job, folder: Path, on_event: OnEvent) -> Outcome:
        """See ``Launcher.run``. Raises UsageError for several nodes, and for a program that cannot be started."""
        is_alone = self._stops is stop_requests
        assert not is_alone or threading.current_thread() is threading.main_thread(), "signals come to the main thread"
        if job.nodes > 1:
            raise UsageError(f"the local launcher runs one node, not {job.nodes}")
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        with self._stops() as requests, child_subreaper():
            zygote = self._zygotes.find(job, rank_variables(job, 0, 0), requests) if can_fork(job) else None
            foreign = descendants() if is_alone else None
            supervision = Supervision(job, folder, on_event, self._patience, requests, foreign)
            start = partial(start_ranks, job, folder, supervision.ranks)
            try:
                if zygote is not None:
                    try:
                        start(partial(zygote.fork, job.argv, job.limits.memory_bytes))
                    except ForkError:
                        zygote.close()
                        supervision.forget_ranks()
                if not supervision.ranks:
                    start(lambda *given: self._in_main_thread(partial(spawn, job, *given)))
                supervision.watch()
            finally:
                supervision.clean_up()
            return supervision.outcome()

    def close(self) -> None:
        """End what the launcher keeps between runs. Nothing else is needed: it ends with the launcher too."""
        self._zygotes.close()

    def _stack(self, manifest: Manifest) -> tuple[str, ...]:
        """What ranks may be forked with: the stack of an engine alone, generating by itself."""
        device, layout = manifest.measure.device, manifest.layout
        is_wanted = self._start == "fork" or (self._start == "auto" and device == "cpu")
        if not is_wanted or manifest.backend.kind != "engine" or layout.generation != "hf":
            return ()
        return manifest.backend.name, device, layout.kernels, manifest.size.architecture, *sorted(manifest.stack_code)


def find_start(name: str) -> Start:
    """A way to start ranks by its name. Raises UsageError."""
    if name not in get_args(Start):
        raise UsageError(f"--start is auto, fork or spawn, not {name!r}{nearest(name, get_args(Start))}")
    return cast(Start, name)


def worker_path(python: str) -> str:
    """Folder that makes ``suite.worker`` importable for the stack's interpreter. Raises UsageError where the driver's
    own site-packages would leak into another interpreter."""
    root = Path(next(iter(suite.__path__))).resolve().parent
    if root.name in ("site-packages", "dist-packages") and Path(python).resolve() != Path(sys.executable).resolve():
        raise UsageError(
            f"{python} would see the driver's packages: run suite from a checkout to use another interpreter"
        )
    return os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))


def start_ranks(job: Job, folder: Path, started: list[Rank], start: StartRank) -> None:
    """Start every rank of the job, appending each to ``started`` at once: a failing start leaves none unknown."""
    port = free_port()
    for index in range(job.ranks):
        variables = rank_variables(job, index, port)
        name = f"rank-{index}.log"
        log = open_log(folder / "logs" / name, f"logs/{name}")
        try:
            started.append(Rank(index, start(variables, log, index == 0)))
        finally:
            os.close(log)


def rank_variables(job: Job, rank: int, port: int) -> dict[str, str]:
    """Of one rank of a single node: how it meets the others, and the devices it may see."""
    variables = torchrun_variables(job, str(rank), str(rank), "0", "127.0.0.1", str(port))
    variables |= {name: value for name, value in job.env.items() if name == TURNS}
    if job.devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(job.devices)
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the driver numbers them, for whoever counts them himself
    return variables


def spawn(job: Job, variables: Mapping[str, str], log: int, is_speaker: bool) -> subprocess.Popen:
    try:
        return subprocess.Popen(
            job.argv,
            env={**os.environ, **job.env, **variables},
            cwd=job.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_speaker else log,
            stderr=log,
            bufsize=0,
            start_new_session=True,
            preexec_fn=end_with_this_process(job.limits.memory_bytes),
        )
    except OSError as error:
        where = error.filename or job.argv[0]
        raise UsageError(
            f"cannot start the ranks: {where}: {error.strerror}; suite doctor checks the interpreter"
        ) from error


#: first and last port that Linux gives connections that go out
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _TRIES = 20_000, 100
_told: deque[int] = deque(maxlen=64)


def free_port() -> int:
    """A TCP port on which nobody listens, below those of connections that go out where there is one: on a busy machine
    one of these is somebody's when a rank listens there. None is told twice in a row."""
    try:
        end = int(GIVEN_OUT.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        end = _LOWEST
    candidates = range(_LOWEST, end)
    tries = random.SystemRandom().sample(candidates, min(_TRIES, len(candidates)))
    for port in (*tries, *[0] * _TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            found = int(probe.getsockname()[1])
            if found not in _told:
                _told.append(found)
                return found
    raise OSError("this machine has no free TCP port")
