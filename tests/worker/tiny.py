"""A tiny run: its manifest, its ranks as processes, and what they wrote."""

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

from suite.launch.local import free_port
from suite.spec.layout import Layout
from suite.spec.manifest import Backend, Limits, Manifest, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from tests.worker.forked import fork
from tests.worker.written import events_in

ROOT = Path(__file__).resolve().parents[2]
STACK = ("torch", "deepspeed", "transformers")
#: four to six times what the longest takes on an idle machine
RUN_SECONDS = 300.0
_SHAPE = {"layers": 2, "hidden": 32, "ffn": 128, "heads": 4, "kv_heads": 4, "vocab": 128, "positions": 16}
_WORKLOAD: dict[str, Any] = {"name": "tiny", "prompt_tokens": 8, "new_tokens": 8, "rollouts": 4, "micro_batch": 2}
_MEASURE: dict[str, Any] = {"device": "cpu", "precision": "fp32", "warmup": 1, "iterations": 2}


def tiny_manifest(
    ranks: int = 1,
    *,
    nodes: int = 1,
    layout: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    measure: dict[str, Any] | None = None,
    shape: dict[str, Any] | None = None,
    stack: dict[str, str] | None = None,
    silence_seconds: float = 60,
    backend: str = "deepspeed",
) -> Manifest:
    """A manifest for an engine; what is given replaces the tiny run's own."""
    return make_manifest(
        plan="tests",
        repeat=1,
        backend=Backend(name=backend, kind="engine"),
        size=Shape(**{"name": "tiny", **_SHAPE, **(shape or {})}),
        workload=Workload(**{**_WORKLOAD, **(workload or {})}),
        layout=Layout(**{"nodes": nodes, "devices_per_node": ranks // nodes, "data": ranks, **(layout or {})}),
        measure=Measure(**{**_MEASURE, **(measure or {})}),
        limits=Limits(run_seconds=300, silence_seconds=silence_seconds),
        stack={name: metadata.version(name) for name in STACK} if stack is None else stack,
    )


def tiny_body(ranks: int = 1, **changes: Any) -> dict[str, Any]:
    """``tiny_manifest`` as a rank reads it, without the versions of any stack unless they are given."""
    return tiny_manifest(ranks, **{"stack": {}, **changes}).model_dump(mode="json", by_alias=True)


def be_rank(program: Callable[[Any], object], seconds: float = 120.0) -> NoReturn:
    """Run ``program`` on the world that this process's environment names, and end the process as the worker does.

    The interpreter's own way out would abort where a thread of gloo still wants it. ``seconds``: of every collective.
    """
    import torch

    from suite.worker.__main__ import leave_process
    from suite.worker.rank import read_rank
    from suite.worker.world import join, leave

    torch.set_num_threads(1)
    try:
        program(join(read_rank(os.environ), "cpu", seconds))
        leave()
    except BaseException:  # noqa: BLE001 - printed, and the exit code says it
        traceback.print_exc()
        leave_process(1)
    leave_process(0)


def write_manifest(manifest: Manifest, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "manifest.json"
    path.write_text(manifest.model_dump_json(by_alias=True))
    return path


@dataclass(frozen=True)
class Finished:
    """The end of all ranks: exit codes, what each printed, and each rank's events."""

    exit_codes: list[int]
    outputs: list[str]
    errors: list[str]
    folder: Path

    def events(self, rank: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        return events_in(self.folder, kind, rank)


def start_rank(manifest_path: Path, *program: str, **variables: str) -> subprocess.Popen[str]:
    """Start one rank as a launcher does, alone unless ``variables`` say otherwise; ``program``: not the worker's."""
    return subprocess.Popen(
        [sys.executable, *(program or ("-m", "suite.worker")), str(manifest_path)],
        cwd=ROOT,
        env={**clean_environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(processes: list[subprocess.Popen[str]], folder: Path, seconds: float = RUN_SECONDS) -> Finished:
    """Wait for all; whoever is left after ``seconds`` is killed and the test fails."""
    try:
        outputs = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return Finished(
        [process.returncode for process in processes], [out for out, _ in outputs], [err for _, err in outputs], folder
    )


def run_tiny(folder: Path, manifest: Manifest, seconds: float = RUN_SECONDS) -> Finished:
    """Run it in forked ranks."""
    path = write_manifest(manifest, folder)
    return fork_ranks(["suite.worker", str(path)], manifest.layout.ranks, folder, seconds)


def told_by_ranks(argv: list[str], ranks: int, folder: Path, seconds: float = RUN_SECONDS) -> list[Any]:
    """What each of the forked ranks of ``python -m *argv`` printed last, as JSON; fails where one of them did."""
    finished = fork_ranks(argv, ranks, folder, seconds)
    assert finished.exit_codes == [0] * ranks, "\n".join(error[-3000:] for error in finished.errors)
    return [json.loads(output.splitlines()[-1]) for output in finished.outputs]


def fork_ranks(argv: list[str], ranks: int, folder: Path, seconds: float) -> Finished:
    """Run ``python -m *argv`` on each rank; who is left after ``seconds`` is killed, and its exit code says so."""
    return join_ranks(start_forked(argv, ranks, folder), folder, seconds)


def start_forked(argv: list[str], ranks: int, folder: Path) -> list[BaseProcess]:
    """Fork each rank; what they print lies in ``folder``. One rank alone gets none of torchrun's variables."""
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = {**clean_environment(), **(rank_environment(rank, ranks, port) if ranks > 1 else {})}
        processes.append(fork(argv, environment, ROOT, folder / f"rank-{rank}.out", folder / f"rank-{rank}.err"))
    return processes


def join_ranks(processes: list[BaseProcess], folder: Path, seconds: float = RUN_SECONDS) -> Finished:
    """Wait for forked ranks; who is left after ``seconds`` is killed, and its exit code says so."""
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    for process in processes:
        process.kill()
        process.join()
    codes = [-1 if process.exitcode is None else process.exitcode for process in processes]
    outputs, errors = (
        [(folder / f"rank-{rank}.{stream}").read_text() for rank in range(len(processes))] for stream in ("out", "err")
    )
    return Finished(codes, outputs, errors, folder)


def rank_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    numbers = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in numbers.items()}}


def clean_environment() -> dict[str, str]:
    """This process's environment without what an outer launcher may have set."""
    launch = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in launch}
    return {**kept, "OMP_NUM_THREADS": "1"}


def is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
