"""Starting the ranks of a benchmark script, and the manifest they measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from suite.conduct.planning.machine import look_at_machine
from suite.conduct.planning.plan import make_plan
from suite.conduct.planning.request import Request
from suite.conduct.running.execute import make_job
from suite.launch.local import free_port, local_site, rank_variables
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Manifest, Measure


def one_manifest(backend: str, size: str, ranks: int, iterations: int, python: str = sys.executable) -> Manifest:
    """A manifest of the CPU workload on the stack of an interpreter of this machine."""
    machine = look_at_machine(python, "cpu")
    request = Request(
        backends=(backend,),
        sizes=(find_size(size),),
        ranks=(ranks,),
        workload=find_workload("cpu"),
        measure=Measure(device="cpu", precision="fp32", iterations=iterations),
        repeats=1,
    )
    return make_plan(request, machine.stacks([backend])).manifests[0]


def run_ranks(what: str, manifest: Manifest, iterations: int) -> dict:
    """Run `benchmarks.loop_worker` on the manifest's ranks; what rank 0 printed."""
    return run_script("benchmarks.loop_worker", manifest, before=(what,), after=(str(iterations),))


def run_script(
    module: str,
    manifest: Manifest,
    python: str = sys.executable,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> dict:
    """Run a module on the manifest's ranks, with the manifest and a scratch folder as arguments; what rank 0 printed.

    Raises RuntimeError where a rank fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "events").mkdir()
        path = folder / "manifest.json"
        path.write_text(manifest.model_dump_json(by_alias=True), encoding="utf-8")
        job = make_job(manifest, local_site(folder, python))
        port = free_port()
        command = [python, "-m", module, *before, str(path), str(folder), *after]
        started = [
            subprocess.Popen(
                command,
                env={**os.environ, **job.env, **rank_variables(job, rank, port)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(job.ranks)
        ]
        outputs = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            raise RuntimeError(f"a rank of {module} on {manifest.backend.name} failed")
    line = next(line for line in outputs[0].splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))
