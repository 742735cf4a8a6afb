"""Clock, probes, ceilings and failures on a real device."""

import json
import subprocess
import sys
from typing import Any

import pytest

from suite.bundle.record import Record
from suite.bundle.store import find_bundles
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.spec.catalogue import find_device
from tests.gpu import judge
from tests.gpu.checks import ROOT, SIZE, gpu_manifest, run_check
from tests.gpu.rank import BLOCK_BYTES
from tests.worker.written import events_in

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
#: steady work for longer than 10 s, below which a record calls its energy invalid
LONG = {"prompt_tokens": 256, "new_tokens": 256, "rollouts": 32, "micro_batch": 8}


@pytest.fixture(scope="module")
def clock(device: dict[str, Any]) -> dict[str, Any]:
    """The device is named by its UUID, as a scheduler does it."""
    return run_check("clock", gpu_manifest("deepspeed", iterations=3), {"CUDA_VISIBLE_DEVICES": device["uuid"]})


def test_phase_seconds_are_those_of_cuda_events(clock):
    """Behind the warm-up, which loads kernels while the device waits."""
    told, own = ([clock[name][index] for index in clock["warm"]] for name in ("told", "own"))
    assert judge.phase_seconds(told, own) == []


def test_peaks_are_those_of_the_allocator_and_of_nvml(clock, device):
    assert judge.peaks(clock["told"], clock["own"], device["memory_bytes"]) == []
    assert judge.block(clock["block"], BLOCK_BYTES) == []


def test_the_sampled_gpu_is_the_one_that_torch_computes_on(clock, device):
    assert clock["uuids"] == {"sampled": device["uuid"], "torch": device["uuid"]}


@pytest.fixture(scope="module")
def finished(device: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, list[dict[str, Any]]]:
    """A whole run as `suite run` makes it: its record, and rank 0's counted iterations."""
    folder = tmp_path_factory.mktemp("run")
    manifest = gpu_manifest("deepspeed", iterations=5, workload=LONG)
    record = execute(manifest, folder, LocalLauncher(), sys.executable, lambda event: None)
    assert record.status == "ok", record.failure
    (bundle,) = find_bundles([folder])
    return record, events_in(bundle.path, "iteration")[manifest.measure.warmup :]


def test_energy_is_power_over_time(finished):
    record, iterations = finished
    windows = [(event["seconds"], event["device"]["power_watts_mean"]) for event in iterations]
    assert judge.energy(record.energy.joules, windows) == []
    seconds = sum(event["seconds"] for event in iterations)
    assert record.energy.valid or seconds < 10, record.energy.reasons


def test_ceilings_reach_most_of_the_data_sheet(finished, device):
    known, worker = find_device(device["name"]), finished[0].environment.worker
    if known is None:
        pytest.skip(f"the catalogue has no {device['name']}")
    assert judge.ceilings(worker["ceilings"], known) == []  # type: ignore[arg-type]


def test_a_real_out_of_memory_is_told_with_its_phase(device, tmp_path):
    """The logits of all samples at once: 16,384 x 56 x 50,257, beyond 250 GB. Where the device is small the keys and
    values of generation are too much already."""
    command = [sys.executable, "-m", "suite", "run", "--backend", "deepspeed", "--size", SIZE, "--device", "cuda"]
    command += ["--prompt-tokens", "8", "--new-tokens", "56", "--rollouts", "16384", "--micro-batch", "16384"]
    command += ["--repeats", "1", "--warmup", "1", "--iterations", "1", "--runs", str(tmp_path / "runs")]
    command.append("--force")  # it is not expected to fit
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr[-2000:]
    (bundle,) = find_bundles([tmp_path / "runs"])
    record = json.loads((bundle.path / "record.json").read_text())
    assert judge.out_of_memory(record, ("generate", "score")) == []
