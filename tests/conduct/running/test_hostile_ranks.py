"""Whatever ranks print and whenever its user stops it, a driver shows what it can and writes what can be read."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.bundle import files
from suite.bundle.derive import derive
from suite.bundle.files import replace_atomically
from suite.bundle.last_words import end_fields, failure_fields
from suite.bundle.shown_events import is_shown
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.running.progress import LiveView
from suite.conduct.running.session import Summary
from suite.launch.outcome import Failure, Outcome
from suite.launch.requests import stop_requests
from tests.conduct.requests import STACKS, request
from tests.conduct.sessions import work
from tests.scripted_suite import WORKER

Script = Callable[..., None]

#: Prints these before it is the scripted worker.
WORKER_WITH = """
import runpy, sys
for line in {lines!r}:
    print("::suite:: " + line, flush=True)
runpy.run_path({worker!r}, run_name="__main__")
"""


def iteration(prompt_tokens: Any, seconds: float = 1.0) -> dict[str, Any]:
    counts = {"samples": 1, "response_tokens": 1, "prompt_tokens": prompt_tokens}
    return {"kind": "iteration", "time": 1.0, "iteration": 0, "seconds": seconds, "counts": counts}


NONSENSE = [
    *(iteration("many"), iteration(None), iteration(10**400), iteration(1, seconds=5e-324)),
    {"kind": "phase", "phase": ["generate"]},
    {"kind": "start", "time": {}},
    {"kind": "environment", "time": 1.0, "facts": {"a": "\ud800"}},
    {"kind": "phase", "time": 1.0, "phase": "\ud800" + "x" * 900_000, "iteration": -(10**300)},
]


@pytest.fixture
def plan() -> Plan:
    return make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)


@pytest.fixture
def run(plan: Plan, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Summary]:
    """Run the plan; its worker prints these events first, and does as the script says."""

    def call(*events: dict[str, Any], **fields: Any) -> Summary:
        script(**fields)
        program = tmp_path / "worker.py"
        program.write_text(WORKER_WITH.format(lines=list(map(json.dumps, events)), worker=WORKER))
        monkeypatch.setattr("suite.backends.deepspeed.own_worker_argv", lambda m, b: (str(program), m, "--bundle", b))
        return work(plan, tmp_path / "runs", view=LiveView(io.StringIO()))[0]

    return call


@pytest.fixture
def bundle(plan: Plan, tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "runs" / plan.manifests[0].run.id)


def test_events_that_are_none_are_not_shown_and_neither_view_nor_driver_breaks(
    run: Callable[..., Summary], bundle: Bundle
) -> None:
    assert len(run(*NONSENSE, at={"iteration": 0, "do": "exit", "phase": "generate"}).failed) == 1
    assert verify(bundle).status == "equal"
    assert bundle.record().failure.evidence[0] == "rank 0 ended with exit code 1"
    assert not any(map(is_shown, NONSENSE))


def test_events_that_are_some_are_shown(
    run: Callable[..., Summary], bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict] = []
    monkeypatch.setattr(LiveView, "event", lambda self, event: seen.append(event))
    assert run().measured
    written = (bundle.path / "events" / "rank-0.jsonl").read_text().splitlines()
    assert seen == [json.loads(line) for line in written]


def test_what_the_driver_writes_of_an_end_is_bounded() -> None:
    failure = Failure(kind="hang", phase="\udfff" + "p" * 1000, iteration=-1, evidence=("\ud800" + "e" * 5000,) * 5000)
    told = failure_fields(failure)
    assert told["phase"] == "?" + "p" * 79 and told["iteration"] is None
    assert told["evidence"] == ["?" + "e" * 499] * 500
    outcome = Outcome(status="failed", exit_codes={0: 1 << 40, 1: -9, 7: 0, -1: 0}, elapsed_seconds=1e300)
    assert end_fields(outcome, 2) == {"status": "failed", "exit_codes": {"0": None, "1": -9}, "elapsed_seconds": 1e9}


@pytest.mark.parametrize("status", ["ok", "interrupted"])
def test_a_request_to_stop_while_the_record_is_derived_loses_nothing(
    run: Callable[..., Summary], bundle: Bundle, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """As a second Ctrl-C does; one that did not stop the run itself still stops the plan."""
    script = {}
    if status == "interrupted":
        script = {"at": {"iteration": 0, "do": "hang"}}
        monkeypatch.setattr(LiveView, "event", lambda self, event: os.kill(os.getpid(), signal.SIGINT))

    def derive_and_be_stopped(bundle: Bundle, is_over: bool) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return derive(bundle, is_over=is_over)

    monkeypatch.setattr("suite.bundle.derive.derive", derive_and_be_stopped)
    try:
        run(**script)
        assert status == "interrupted"
    except KeyboardInterrupt:
        assert status == "ok"
    assert bundle.record().status == status
    assert not [path for path in bundle.path.iterdir() if path.name.startswith(".")]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_the_middle_of_a_file_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            replace_atomically(tmp_path / "record.json", "{}")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f".record.json.{os.getpid()}").write_text("of a process of this number that was killed")
    replace_atomically(tmp_path / "record.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_requests_within_requests_are_the_same() -> None:
    with stop_requests() as outer:
        os.kill(os.getpid(), signal.SIGTERM)
        with stop_requests() as inner:
            assert inner.take() == "SIGTERM"
            os.kill(os.getpid(), signal.SIGINT)
        assert outer.take() == "SIGINT" and outer.take() is None
