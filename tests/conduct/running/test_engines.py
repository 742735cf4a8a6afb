"""Both engines for real, from a request to verified records: equal work, every layout, and learning."""

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from suite.backends.registry import find_backend
from suite.bundle.derive import derive
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import make_plan
from suite.conduct.planning.request import LayoutChoices, Request
from suite.launch.local import LocalLauncher
from suite.report.reading import read_entries
from suite.report.text.output import write
from suite.spec.manifest import Measure
from tests.conduct.requests import shape, workload
from tests.conduct.sessions import work as run_on

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]

MEASURE = Measure(device="cpu", precision="fp32", warmup=1, iterations=3)


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    """Imports of the stacks are paid once."""
    launcher = LocalLauncher(start="fork")
    yield launcher
    launcher.close()


def stacks() -> dict[str, dict[str, str]]:
    names = ("deepspeed", "megatron")
    return {name: {package: metadata.version(package) for package in find_backend(name).packages} for name in names}


def run(request: Request, root: Path, launcher: LocalLauncher) -> list[Bundle]:
    summary, _ = run_on(make_plan(request, stacks()), root, launcher)
    logs = [path.read_text()[-2000:] for path in sorted(root.glob("*/logs/rank-0.log"))]
    assert not summary.failed, logs
    return find_bundles([root])


SHARDED = ("deepspeed zero3 dp2 gather-gen", "megatron tp2 sp dist-opt")
ALL_LAYOUTS = (
    *SHARDED,
    *("deepspeed zero1 dp2", "deepspeed zero2 dp2", "megatron dp2 dist-opt", "megatron pp2 dist-opt"),
)


@pytest.mark.parametrize(
    ("choices", "labels"),
    [
        (LayoutChoices(zero_stage=(3,), tensor=(2,)), SHARDED),
        pytest.param(
            LayoutChoices(zero_stage=(1, 2, 3), tensor=(1, 2), pipeline=(1, 2)), ALL_LAYOUTS, marks=pytest.mark.thorough
        ),
    ],
    ids=["two layouts", "all layouts"],
)
def test_every_layout_of_both_engines_does_the_same_work_on_two_ranks(choices, labels, tmp_path, launcher):
    request = Request(
        backends=("deepspeed", "megatron"),
        sizes=(shape(),),
        ranks=(2,),
        workload=workload(optimizer_steps=2, ppo_epochs=2),
        measure=MEASURE,
        layout=choices,
        repeats=1,
    )
    bundles = run(request, tmp_path / "runs", launcher)
    records = {f"{r.run.backend} {r.run.layout.label()}": r for r in (bundle.record() for bundle in bundles)}
    assert set(records) == set(labels)
    assert len({record.run.work_hash for record in records.values()}) == 1
    counts = {record.counts for record in records.values()}
    assert len(counts) == 1, "equal manifests are equal work, parameters included"
    (count,) = counts
    assert (count.samples, count.response_tokens, count.padded_tokens) == (8, 64, 0)
    assert (count.trained_tokens, count.optimizer_steps) == (8 * 16 * 2, 4)
    for bundle in bundles:
        assert verify(bundle).status == "equal"
        assert derive(bundle).throughput.samples_per_second.value > 0
        assert bundle.record().memory.theoretical_minimum_bytes > 0
    found = read_entries([tmp_path / "runs"])
    assert not found.warnings()
    text = write(found.entries, tmp_path / "report.md").path.read_text()
    assert all(label.split(" ", 1)[1] in text for label in labels if "zero3" not in label)
    assert "zero3 dp2" in text
