"""Events whose seconds and counts a trainer told: what they may leave open, and what they may not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.files import DamagedBundle
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.spec.layout import Layout
from tests.bundle.tampering import Event, change
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

UNTOLD = ("padded_tokens", "trained_tokens", "optimizer_steps", "trainable_parameters", "total_parameters")


def told(event: Event) -> None:
    """As a trainer's log tells it: its own seconds, and no count of what it does not log."""
    if event["kind"] in ("phase", "iteration"):
        event["source"] = "trainer"
    if event["kind"] == "iteration":
        event["counts"].update(dict.fromkeys(UNTOLD))
    if event["kind"] == "environment":
        event["facts"]["clock"] = "the trainer's own log"


def bundle(root: Path, ranks: int = 1) -> Path:
    layout = Layout(devices_per_node=ranks, data=ranks)
    manifest = synthetic_manifest(backend="nemo-rl", kind="trainer", iterations=4, layout=layout)
    return make_bundle(root, manifest, [1.0, 1.1, 1.2, 1.0, 1.3, 1.1], facts={**facts_of(manifest), "derivation": 3})


def test_counts_that_the_log_does_not_tell_are_null_in_the_record_and_make_no_rate(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    change(path, told)
    record = derive(Bundle(path))
    assert [getattr(record.counts, name) for name in UNTOLD] == [None] * len(UNTOLD)
    assert record.phases.train.tokens_per_second is None and record.phases.generate.tokens_per_second is not None
    assert record.environment.worker["clock"] == "the trainer's own log"


def test_ranks_that_tell_the_same_log_are_no_copies_of_each_other(tmp_path: Path) -> None:
    path = bundle(tmp_path, ranks=2)
    assert "copied-rank" in {finding.name for finding in verify(Bundle(path)).findings}
    change(path, told)
    assert "copied-rank" not in {finding.name for finding in verify(Bundle(path)).findings}


def count(name: str, value: object) -> Callable[[Event], object]:
    return lambda event: event["kind"] == "iteration" and event["counts"].update({name: value})


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        *(((told, count(name, None)), "counts is") for name in ("samples", "prompt_tokens", "response_tokens")),
        ((count("optimizer_steps", None),), "counts is"),
        ((told, lambda event: event.get("counts", {}).pop("padded_tokens", None)), "counts is"),
        ((lambda event: event["kind"] == "phase" and event.update(source="guess"),), "source is 'guess'"),
    ],
    ids=["samples", "prompts", "responses", "a count of the suite's own", "a count that is left out", "the source"],
)
def test_what_a_rate_is_made_of_what_the_suite_counts_and_who_told_it_are_never_open(tmp_path, edits, says):
    with pytest.raises(DamagedBundle, match=says):
        change(bundle(tmp_path), lambda event: [edit(event) for edit in edits])
