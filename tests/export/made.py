"""Results of every kind of run for what is exported: good, failed, cut off, suspect, uneven, hostile."""

from pathlib import Path

from suite.bundle.imported.record import Told
from suite.spec.layout import Layout
from tests.bundle.imported.made import imported
from tests.synthetic import facts_of, grpo_workload, make_bundle, synthetic_manifest

HOSTILE = '=HYPERLINK("http://x","a"),;\t\u202e\x1b[31m\r\nb'
#: As far as an importer may go: no line may end within it.
HOSTILE_NAME = '=HYPERLINK("http://x","a"),;|<b>'


def results(root: Path) -> Path:
    """Two good runs on two ranks, an uneven one, a failed one, one cut off, and one whose facts are hostile; beside
    them another tool's log."""
    layout = Layout(devices_per_node=2, data=2)
    for repeat in (1, 2):
        manifest = synthetic_manifest(layout=layout, repeat=repeat)
        make_bundle(root, manifest, lambda index, rank, repeat=repeat: 1.0 + 0.01 * index * repeat + 1e-4 * rank)
    make_bundle(root, synthetic_manifest(workload=grpo_workload(), backend="megatron"), [2.0, 2.0, 2.1, 1.9])
    failed = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["=1+1", "CUDA out of memory"]}
    make_bundle(root, synthetic_manifest(repeat=1), status="failed", failure=failed, completed=1)
    make_bundle(root, synthetic_manifest(repeat=2), status=None, completed=0)
    manifest = synthetic_manifest(repeat=3)
    facts = facts_of(manifest)
    facts["cpu"]["model"] = HOSTILE
    facts["kernel"], facts["python"] = 7, "@SUM(A1)"
    facts["cpu"]["cores"] = 1 << 63
    make_bundle(root, manifest, 1.5, facts=facts)
    imported(root, told=Told(model=HOSTILE_NAME, devices=2, note="=1+1"))
    return root
