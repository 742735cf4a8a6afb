"""Starting the ranks of a benchmark script, and the manifest they measure."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from suite.conduct.planning.machine import look_at_machine
from suite.conduct.planning.plan import make_joint_plan
from suite.conduct.planning.request import Request
from suite.conduct.running.execute import make_job
from suite.launch.local import LocalLauncher, free_port, rank_variables
from suite.spec.catalogue import find_size, find_workload
from suite.spec.device import Precision
from suite.spec.layout import LayoutChoices
from suite.spec.manifest import Manifest, Measure
from suite.spec.shape import Shape

LAST_LINES = 30


def one_manifest(
    backend: str,
    size: str | Shape,
    ranks: int,
    iterations: int,
    python: str = sys.executable,
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Precision = "fp32",
    workload: Mapping[str, Any] | None = None,
    layout: Mapping[str, Any] | None = None,
) -> Manifest:
    """A manifest for the stack of an interpreter of this machine: the CPU workload, but for the fields given."""
    machine = look_at_machine(python, device)
    request = Request(
        backends=(backend,),
        sizes=(find_size(size) if isinstance(size, str) else size,),
        ranks=(ranks,),
        workload=find_workload("cpu").changed(workload or {}),
        layout=LayoutChoices(**(layout or {})),
        measure=Measure(device=device, precision=precision, iterations=iterations),
        repeats=1,
    )
    return make_joint_plan((request,), machine.stacks([backend])).manifests[0]


def run_ranks(what: str, manifest: Manifest, *arguments: object) -> dict:
    """Run `benchmarks.loop_worker` on the manifest's ranks; what rank 0 printed."""
    return run_script("benchmarks.loop_worker", manifest, before=(what,), after=tuple(map(str, arguments)))


def run_script(
    module: str,
    manifest: Manifest,
    python: str = sys.executable,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> dict:
    """Run a module on the manifest's ranks, with the manifest and a scratch folder as arguments; what rank 0 printed.

    ``variables`` are set beside those of the job. Raises RuntimeError, with the last lines of a rank that failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "events").mkdir()
        path = folder / "manifest.json"
        path.write_text(manifest.model_dump_json(by_alias=True), encoding="utf-8")
        job = make_job(manifest, LocalLauncher().site(manifest, folder, python))
        port = free_port()
        command = [python, "-m", module, *before, str(path), str(folder), *after]
        logs = [folder / f"rank-{rank}.log" for rank in range(job.ranks)]
        started = []
        for rank, path in enumerate(logs):
            environment = {**os.environ, **job.env, **rank_variables(job, rank, port), **(variables or {})}
            with path.open("wb") as log:
                started.append(
                    subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
                )
        outputs = [process.communicate()[0] for process in started]
        for rank, process in enumerate(started):
            if process.returncode:
                said = logs[rank].read_text(errors="replace").splitlines()[-LAST_LINES:]
                raise RuntimeError(f"rank {rank} of {module} on {manifest.backend.name} failed:\n" + "\n".join(said))
    line = next(line for line in outputs[0].splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))
