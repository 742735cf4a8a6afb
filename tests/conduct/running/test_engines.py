"""Both engines for real, from a request to verified records: equal work, every layout, and learning."""

from contextlib import closing

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.request import LayoutChoices
from suite.launch.local import LocalLauncher
from suite.report.facts.model import build
from suite.report.reading import read_entries
from suite.report.text.markdown import write
from tests.conduct.requests import installed_stacks, make_plan, request, workload
from tests.conduct.sessions import work

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]

SHARDED = ("deepspeed zero3 dp2 gather-gen", "megatron tp2 sp dist-opt")
OTHERS = ("deepspeed zero1 dp2", "deepspeed zero2 dp2", "megatron dp2 dist-opt", "megatron pp2 dist-opt")
ALL = LayoutChoices(zero_stage=(1, 2, 3), tensor=(1, 2), pipeline=(1, 2))


@pytest.mark.parametrize(
    ("choices", "labels"),
    [
        (LayoutChoices(zero_stage=(3,), tensor=(2,)), SHARDED),
        pytest.param(ALL, (*SHARDED, *OTHERS), marks=pytest.mark.thorough),
    ],
    ids=["two layouts", "all layouts"],
)
def test_every_layout_of_both_engines_does_the_same_work_on_two_ranks(choices, labels, tmp_path):
    asked = request(ranks=(2,), workload=workload(optimizer_steps=2, ppo_epochs=2), layout=choices, repeats=1)
    with closing(LocalLauncher(start="fork")) as launcher:
        summary, _ = work(make_plan(asked, installed_stacks()), tmp_path / "runs", launcher)
    assert not summary.failed, [path.read_text()[-2000:] for path in sorted(tmp_path.glob("runs/*/logs/rank-0.log"))]
    bundles = find_bundles([tmp_path / "runs"])
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
    text = write(build(found.entries), tmp_path / "report.md")[0].read_text()
    assert all(label.split(" ", 1)[1] in text for label in labels if "zero3" not in label)
    assert "zero3 dp2" in text
