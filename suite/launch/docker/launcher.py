"""One container for each run, on the runtime that Docker's own settings name: its document, its life and its end."""

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import RequestException

from suite.launch.docker import session
from suite.launch.docker.conclude import conclude, essence, reason_of, runtime_failure, told
from suite.launch.docker.connection import Runtime
from suite.launch.docker.offers import ImageFacts, access_of, device_requests
from suite.launch.docker.settings import DockerSettings
from suite.launch.docker.watch import RETRY_SECONDS, USUAL_PATIENCE, ContainerPatience, ContainerWatch
from suite.launch.job import PYTHON_PATH, RUNS, Job, Mount, Site
from suite.launch.node import node_arguments
from suite.launch.outcome import Failure, FailureKind, LauncherUnavailable, OnEvent, Outcome
from suite.launch.requests import StopRequests, Stops, stop_requests
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable
from suite.spec.manifest import Manifest

Answer = TypeVar("Answer")
NODE = ("/opt/suite/bin/python", "-m", "suite.launch.node")
#: Log rotation would lose what is read after a broken connection: the log grows as long as the run lives.
LOGGING = {"Type": "json-file", "Config": {"max-size": "1024g", "max-file": "1"}}


def container_document(
    job: Job,
    settings: DockerSettings,
    user: str,
    access: Literal["nvidia", "cdi"] = "nvidia",
    remapped: bool = False,
    remote: bool = False,
) -> dict[str, Any]:
    """The body of POST /containers/create. ``user``: uid:gid; ``remapped``: the runtime gives users of a container
    other ids on the host; ``remote``: a volume that goes with the container takes the place of the job's mounts. Raises
    UsageError for several nodes."""
    if job.nodes > 1:
        raise UsageError(f"the docker launcher runs one node, not {job.nodes}; `suite submit` has Kubernetes or Slurm")
    has_gpus = bool(job.devices or job.device_count)
    mounts = [
        {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
        for mount in job.mounts
    ]
    limits, memory = settings.limits(has_gpus), job.limits.memory_bytes
    memory = None if memory is None else memory * job.ranks_per_node  # of all ranks together, and no swap beyond it
    return {
        "Image": job.image,
        "Entrypoint": list(NODE),
        "Cmd": list(node_arguments(job, f"{RUNS}/{job.name}", limits)),
        "Env": [f"{name}={value}" for name, value in sorted(_variables(job, user, has_gpus).items())],
        "User": user,
        "WorkingDir": "/work",
        "Labels": dict(job.labels),
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "Init": True,
            "AutoRemove": False,
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "exec,mode=1777"},
            "CapDrop": ["ALL"],
            "SecurityOpt": session.SECURITY,
            "UsernsMode": "host" if remapped else "",
            "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in sorted(limits.items())],
            "ShmSize": settings.shm_bytes,
            "IpcMode": settings.ipc,
            "NetworkMode": settings.network,
            "CpusetCpus": settings.cpuset or "",
            "Memory": memory,
            "MemorySwap": memory,
            "LogConfig": LOGGING,
            "DeviceRequests": device_requests(job.devices or (), job.device_count, access),
            "Mounts": [{"Type": "volume", "Target": RUNS}] if remote else mounts,
        },
    }


def _variables(job: Job, user: str, has_gpus: bool) -> dict[str, str]:
    name = f"uid-{user.partition(':')[0]}"  # for libraries that ask for one: the image knows none
    gpus = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} if has_gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
    counted = f"count:{job.device_count}" if job.device_count else ""
    devices = f"ids:{','.join(job.devices)}" if job.devices else counted  # what the worker must see
    return {"HOME": "/tmp", "USER": name, "LOGNAME": name, "SUITE_DEVICES": devices, **gpus, **job.env}


@dataclass(frozen=True)
class DockerLauncher:
    """Runs jobs in containers. ``images``: backend -> the image its runs are started from, by its id. Of several
    threads each calls ``run`` of a launcher of its own (``beside``), whose ``stops`` install no signal handlers."""

    runtime: Runtime
    settings: DockerSettings
    images: Mapping[str, ImageFacts]
    patience: ContainerPatience = USUAL_PATIENCE
    stops: Stops = stop_requests
    devices: tuple[str, ...] | None = None  # GPUs, exactly these; None: as the settings say
    runs_at_once: int = 1
    name = "docker"

    def beside(
        self, stops: Stops, runs_at_once: int = 1, gpus: tuple[str, ...] | None = None, cpuset: str | None = None
    ) -> "DockerLauncher":
        """The same launcher for one of several runs at the same time, maybe on devices of its own."""
        settings = self.settings if cpuset is None else self.settings.model_copy(update={"cpuset": cpuset})
        return replace(self, runs_at_once=runs_at_once, devices=gpus, settings=settings, stops=stops)

    def site(self, manifest: Manifest, bundle: Path, python: str) -> Site:
        """Paths inside the container; so is ``python``."""
        image = self.images[manifest.backend.name]
        ranks, on_gpus = manifest.layout.devices_per_node, manifest.measure.device == "cuda"
        named = (self.settings.gpu_ids if self.devices is None else self.devices)[:ranks]
        ids = (named or None) if on_gpus else ()
        return Site(
            python=python,
            bundle=f"{RUNS}/{manifest.run.id}",
            python_path=PYTHON_PATH,
            env={**self.settings.env, "SUITE_IMAGE": image.id},
            image=image.id,
            devices=ids,
            device_count=ranks if ids is None else None,
            memory_bytes=self.settings.memory_bytes,
            mounts=(Mount(source=str(bundle), target=f"{RUNS}/{manifest.run.id}", read_only=False),),
            labels={
                session.RUN_LABEL: manifest.run.id,
                session.PLAN_LABEL: manifest.run.plan,
                session.SESSION_LABEL: session.session_id(),
                session.DRIVER_LABEL: session.this_driver(),
            },
        )

    def facts(self, job: Job) -> dict[str, Any]:
        """Runtime, image, devices and container as they will be; by the image's id, so it is the one that runs."""
        document, settings = self._document(job), self.settings
        host = document["HostConfig"]
        image = next(image for image in self.images.values() if image.id == job.image)
        return {
            "runs_at_once": self.runs_at_once,
            "engine": self.runtime.facts.model_dump(mode="json"),
            "image": image.model_dump(mode="json", exclude={"stack"}),
            "devices": {"ids": job.devices, "count": job.device_count, "requests": host["DeviceRequests"]},
            "container": {
                "user": document["User"],
                "shm_bytes": settings.shm_bytes,
                "ipc": settings.ipc,
                "ulimits": settings.limits(bool(job.devices or job.device_count)),
                "cpuset": settings.cpuset,
                "network": settings.network,
                "memory_bytes": host.get("Memory"),
            },
        }

    def run(self, job: Job, folder: Path, on_event: OnEvent) -> Outcome:
        """See ``Launcher.run``. Raises UsageError for several nodes, LauncherUnavailable where the runtime stays away;
        all that a runtime refuses is an Outcome."""
        document, began = self._document(job), time.monotonic()
        # two users of one runtime may run the same plan: the run's id alone could be taken
        name = f"{job.name.lower()}-{session.session_id()}"
        with self.stops() as requests:
            try:
                container = self._patiently(lambda: self._created(document, name))
                if self.runtime.facts.remote:
                    session.put_bundle(self.runtime.api, container, job.name, folder, document["User"])
                return self._watch(container, job, folder, on_event, requests)
            except (DockerException, OSError) as error:
                # nobody answered, rather than refused
                silent = (DockerException, RequestException, ConnectionError, TimeoutError)
                if isinstance(error, silent) and not isinstance(error, APIError):
                    raise self._away(error) from error
                return _refused(job, error, time.monotonic() - began)
            finally:
                self._remove(name)

    def _document(self, job: Job) -> dict[str, Any]:
        facts = self.runtime.facts
        user = "0:0" if facts.rootless else f"{os.getuid()}:{os.getgid()}"
        access = access_of(self.runtime, self.settings.gpu_access)
        return container_document(job, self.settings, user, access, facts.remapped, facts.remote)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Call a runtime that may just be restarted: it has some time to come back. Raises what it raises then."""
        give_up = time.monotonic() + self.patience.runtime_seconds
        while True:
            try:
                return call()
            except NoConnection:
                if time.monotonic() > give_up:
                    raise
                time.sleep(RETRY_SECONDS)

    def _created(self, document: dict[str, Any], name: str) -> str:
        """The container by its id, or by its name where a runtime made it before its answer was lost."""
        try:
            return str(self.runtime.api.create_container_from_config(document, name)["Id"])
        except APIError as error:
            if error.status_code != 409:
                raise
            return name

    def _watch(self, container: str, job: Job, folder: Path, on_event: OnEvent, requests: StopRequests) -> Outcome:
        watch = ContainerWatch(self.runtime.api, container, job, folder, on_event, requests, self.patience)
        try:
            self._patiently(watch.attach)
            self._patiently(lambda: self.runtime.api.start(container))
            watch.watch()
            if watch.is_unseen:
                raise self._away()
            end = watch.end(self._state)
        finally:
            watch.close()
        outcome = conclude(end)
        if self.runtime.facts.remote:
            try:
                session.take_bundle(self.runtime.api, container, job.name, folder)
            except (DockerException, OSError, Unreadable) as error:
                problem = f"the ranks' files could not be copied back: {told(error)}"
                failure = outcome.failure or Failure(kind="unknown")
                failure = failure.model_copy(update={"evidence": (*failure.evidence, problem)})
                status = "failed" if outcome.status == "ok" else outcome.status
                outcome = outcome.model_copy(update={"status": status, "failure": failure})
        return outcome

    def _state(self, container: str) -> dict[str, Any] | None:
        with suppress(DockerException, OSError):
            return self._patiently(lambda: self.runtime.api.inspect_container(container))["State"]
        return None

    def _away(self, error: Exception | None = None) -> LauncherUnavailable:
        """Every further run would wait as long and come to nothing."""
        why = "" if error is None else f" ({reason_of(error)})"
        return LauncherUnavailable(
            f"the container runtime at {self.runtime.host} has not answered for {self.patience.runtime_seconds:g} s"
            f"{why}: no further run was started; start it, and run the same command again"
        )

    def _remove(self, name: str) -> None:
        """Nothing of the run is left on the runtime; what cannot be removed in time is by the next session."""
        give_up = time.monotonic() + self.patience.remove_seconds
        while True:
            try:
                self.runtime.api.remove_container(name, force=True, v=True)
            except NotFound:  # so it is gone indeed, and not only about to be
                return
            except (DockerException, OSError):  # one that has just come back fails at what it has not found again
                if time.monotonic() >= give_up:
                    return
                time.sleep(RETRY_SECONDS)


def _refused(job: Job, error: Exception, seconds: float) -> Outcome:
    """The container could not be made, filled, attached to or started."""
    text = str(getattr(error, "explanation", None) or error)
    failure = runtime_failure(text)
    if failure is None:
        kind: FailureKind = "disk_full" if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else "unknown"
        failure = Failure(kind=kind, evidence=(essence(text),))
    codes = dict.fromkeys(range(job.ranks))
    return Outcome(status="failed", exit_codes=codes, elapsed_seconds=seconds, failure=failure)
