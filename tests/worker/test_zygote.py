"""Real stacks that ranks are forked with: the runs are those of ranks that imported them."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.record import Record
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher, Start
from suite.spec.manifest import Manifest
from suite.worker.process import resident_bytes
from suite.worker.zygote import POPULATE_READ, POPULATE_WRITE, mapped_pages, prefault
from tests.bundle.recorded import of_kind
from tests.worker.tiny import tiny_manifest

MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: what is measured anew by every run
MEASURED = ("ceilings", "network", "idle", "topology", "resident_baseline_bytes")
#: by ranks: a tolerance; 13 MiB were seen on two ranks, where it is not settled how much of that is noise
NOISE_BYTES = {1: 8 * MIB, 2: 32 * MIB}


def ran(folder: Path, manifest: Manifest, start: Start) -> tuple[Record, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    record = execute(manifest, folder / start, LocalLauncher(start=start), sys.executable, events.append)
    assert record.status == "ok", record.failure
    return record, events


@pytest.mark.ranks
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("backend", "ranks"), [pytest.param("deepspeed", 1, marks=pytest.mark.thorough), ("megatron", 2)]
)
def test_a_forked_run_is_a_spawned_one_but_for_its_start(tmp_path: Path, backend: str, ranks: int) -> None:
    layout = {"zero_stage": 2} if backend == "deepspeed" else {"distributed_optimizer": True}
    manifest = tiny_manifest(ranks, backend=backend, layout=layout, stack={})
    forked, spawned = ran(tmp_path, manifest, "fork"), ran(tmp_path, manifest, "spawn")
    facts = [dict(run[0].environment.worker or {}) for run in (forked, spawned)]
    assert [each.pop("started") for each in facts] == ["forked", "spawned"]
    measured = [{name: each.pop(name) for name in MEASURED} for each in facts]
    assert facts[0] == facts[1], "variables and notes of the stack among them"
    iterations = [of_kind(events, "iteration") for _, events in (forked, spawned)]
    work = [[(each["iteration"], each["counts"], each["stats"]) for each in run] for run in iterations]
    assert work[0] == work[1], "the same samples, and the same steps to the last bit"
    baselines = [each["resident_baseline_bytes"] for each in measured]
    assert abs(baselines[0] - baselines[1]) < NOISE_BYTES[ranks], baselines
    peaks = [run[0].memory.peak_allocated_bytes for run in (forked, spawned)]
    assert abs(peaks[0] - peaks[1]) < NOISE_BYTES[ranks], peaks


def test_taking_pages_that_are_there_takes_no_memory() -> None:
    pages = mapped_pages()
    for kind in (POPULATE_READ, POPULATE_WRITE):
        assert sum(size for _, size, how in pages if how == kind) > 100 * PAGE_BYTES
    before = resident_bytes()
    prefault(pages)
    assert abs(resident_bytes() - before) < 8 * MIB
