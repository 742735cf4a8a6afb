"""How a run on a cluster ended, from what came back of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suite.launch.cluster.ending import run_outcome
from suite.launch.cluster.scheduler import Gathered, SchedulerEnd, Stream
from suite.launch.cluster.transcript import Transcript
from suite.launch.outcome import Failure
from suite.launch.patterns import Pattern

#: two nodes of two ranks
STREAMS = (Stream("node-0", (), (0, 1)), Stream("node-1", (), (2, 3)), Stream("slurm", ()))
ENDED_BADLY = SchedulerEnd(status="failed")
TABLE = (
    "Root Cause (first observed failure):\n[0]:\n  rank      : {rank} (local_rank: 1)\n  exitcode  : {code} (pid: 1)\n"
)


def events(*bodies: dict[str, Any], rank: int = 0) -> list[bytes]:
    head = {"kind": "start", "time": 1.0}
    return [json.dumps({**head, **body, "rank": rank, "seq": seq}).encode() for seq, body in enumerate(({}, *bodies))]


OK = {"kind": "end", "status": "ok", "time": 9.0}
PHASE = {"kind": "phase", "phase": "train", "iteration": 4, "time": 5.0}


def failed(kind: str, line: str, time: float = 6.0) -> tuple[dict[str, Any], dict[str, Any]]:
    failure = {"kind": "failure", "failure": kind, "phase": "train", "iteration": 4, "evidence": [line], "time": time}
    return failure, {"kind": "end", "status": "failed", "time": time}


def judged(
    ranks: list[list[bytes]], end: SchedulerEnd, logs: dict[str, str] | None = None, notes: tuple[str, ...] = ()
):
    transcript = Transcript(
        events={rank: lines for rank, lines in enumerate(ranks) if lines},
        logs={name: [f"{line}\n".encode() for line in text.splitlines()] for name, text in (logs or {}).items()},
        notes=list(notes),
    )
    patterns = (Pattern("image_pull", "cause", "cannot pull"),)
    return run_outcome(len(ranks), Gathered(STREAMS, end, patterns), transcript)


@pytest.mark.parametrize("status", ["ok", None])
def test_a_run_is_ok_when_every_rank_and_the_scheduler_say_so_or_the_scheduler_has_forgotten(status: Any) -> None:
    outcome = judged([events(OK)] * 4, SchedulerEnd(status=status, started=10.0, ended=25.0))
    assert (outcome.status, outcome.failure, outcome.elapsed_seconds) == ("ok", None, 15.0)
    assert outcome.exit_codes == {0: 0, 1: 0, 2: 0, 3: 0}


def test_one_rank_without_an_end_is_a_failed_run_although_the_scheduler_says_ok() -> None:
    outcome = judged(
        [events(OK)] * 3 + [events(PHASE)], SchedulerEnd(status="ok"), notes=("rank 3: event 2 is missing",)
    )
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.kind == "rank_lost"
    assert outcome.failure.evidence == (
        "the scheduler says that the run ended well; the output of rank 3 ends before that: a part was lost",
        "rank 3: event 2 is missing",
    )


def test_the_rank_that_ran_out_of_memory_goes_before_those_that_lost_it() -> None:
    ranks = [events(PHASE, *failed("rank_lost", "Connection closed by peer", time=5.5))] * 3
    ranks += [events(PHASE, *failed("oom_device", "CUDA out of memory", time=6.0), rank=3)]
    outcome = judged(ranks, ENDED_BADLY)
    assert outcome.failure == Failure(
        kind="oom_device", phase="train", iteration=4, evidence=("rank 3: CUDA out of memory",)
    )


def test_a_rank_that_torchrun_saw_killed_is_named() -> None:
    logs = {"node-1": TABLE.format(rank=3, code=-9)}
    end = SchedulerEnd(status="failed", exit_codes={"node-1": 1, "node-0": -15})
    outcome = judged([events(PHASE)] * 4, end, logs)
    assert outcome.exit_codes == {0: None, 1: None, 2: None, 3: -9}
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.evidence) == ("rank_lost", ("rank 3 ended by SIGKILL",))


def test_a_rank_that_torchrun_ended_itself_is_not_the_cause() -> None:
    others = TABLE.format(rank=2, code=-15).replace("Root Cause (first observed failure)", "Failures")
    logs = {"node-1": others + TABLE.format(rank=3, code=1)}
    outcome = judged([events(PHASE)] * 4, SchedulerEnd(status="failed", exit_codes={"node-1": 1}), logs)
    assert outcome.failure is not None
    assert outcome.failure.evidence[0] == "rank 3 ended with exit code 1"


def test_torchrun_speaks_of_its_own_nodes_ranks_only() -> None:
    outcome = judged([events(PHASE)] * 4, ENDED_BADLY, {"node-0": TABLE.format(rank=3, code=-9)})
    assert outcome.exit_codes[3] is None


def test_the_schedulers_verdict_explains_what_no_rank_could_say() -> None:
    verdict = Failure(kind="timeout", evidence=("Slurm: TIMEOUT",))
    end = SchedulerEnd(status="failed", verdict=verdict, exit_codes={"node-0": -15, "node-1": -15})
    outcome = judged([events(PHASE)] * 4, end, {"node-1": TABLE.format(rank=3, code=-15)})
    assert outcome.failure == Failure(kind="timeout", phase="train", iteration=4, evidence=("Slurm: TIMEOUT",))


def test_a_rank_that_reported_why_before_goes_before_the_schedulers_verdict() -> None:
    ranks = [events(PHASE)] * 3 + [events(PHASE, *failed("oom_device", "CUDA out of memory"), rank=3)]
    verdict = Failure(kind="timeout", evidence=("Slurm: TIMEOUT",))
    assert judged(ranks, SchedulerEnd(status="failed", verdict=verdict)).failure.kind == "oom_device"


def test_what_the_scheduler_did_itself_goes_before_what_the_ranks_then_raised() -> None:
    ranks = [events(PHASE, *failed("unknown", "RuntimeError: the store is gone"), rank=rank) for rank in range(4)]
    verdict = Failure(kind="oom_host", evidence=("pod n1: OOMKilled",))
    assert judged(ranks, SchedulerEnd(status="failed", verdict=verdict)).failure.kind == "unknown"
    assert judged(ranks, SchedulerEnd(status="failed", verdict=verdict, proven=True)).failure.kind == "oom_host"


def test_a_cancelled_run_is_interrupted_whatever_its_ranks_reported() -> None:
    verdict = Failure(kind="interrupted", evidence=("CANCELLED by 1000",))
    outcome = judged([events(PHASE)] * 4, SchedulerEnd(status="interrupted", verdict=verdict))
    assert outcome.status == "interrupted"
    assert outcome.failure == Failure(kind="interrupted", phase="train", iteration=4, evidence=("CANCELLED by 1000",))


def test_a_line_of_the_schedulers_own_programs_explains_a_run_that_never_began() -> None:
    outcome = judged([[]] * 4, ENDED_BADLY, {"slurm": "error: cannot pull the image"})
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.phase) == ("image_pull", None)
    assert outcome.failure.evidence[0] == "slurm: error: cannot pull the image"


def test_a_nodes_log_explains_ranks_that_could_not_say_it() -> None:
    logs = {"node-1": "RuntimeError: NCCL error\nCUDA error: uncorrectable ECC error encountered"}
    outcome = judged([events(PHASE)] * 4, SchedulerEnd(status="failed", exit_codes={"node-1": 1}), logs)
    assert outcome.failure is not None
    assert outcome.failure.kind == "gpu_unavailable"
    assert outcome.failure.evidence[0].startswith("node-1: CUDA error")


def test_a_run_of_which_nothing_is_known_says_so() -> None:
    outcome = judged([[]] * 4, SchedulerEnd(status=None))
    assert outcome.failure is not None
    assert outcome.failure.kind == "unknown"
    assert outcome.exit_codes == dict.fromkeys(range(4))


def test_a_torchrun_that_is_killed_is_the_cause_also_where_its_ranks_ended_well() -> None:
    killed = SchedulerEnd(status="failed", exit_codes={"node-1": -9, "node-0": -15})
    outcome = judged([events(OK)] * 4, killed)
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.evidence) == ("rank_lost", ("node-1 ended by SIGKILL",))


def test_a_node_that_the_scheduler_ended_after_another_is_not_the_cause() -> None:
    killed = SchedulerEnd(status="failed", exit_codes={"node-0": 1, "node-1": -15})
    outcome = judged([events(PHASE)] * 2 + [events(OK)] * 2, killed, {"node-0": "cannot pull it"})
    assert outcome.failure is not None and outcome.failure.kind == "image_pull"


SIGNALLED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15"


def test_a_torchrun_that_somebody_ended_is_the_cause() -> None:
    end = SchedulerEnd(status="failed", exit_codes={"node-1": 1, "node-0": -15})
    outcome = judged([events(PHASE)] * 4, end, {"node-1": SIGNALLED})
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.evidence[0]) == ("rank_lost", "node-1 ended by SIGTERM")


def test_a_torchrun_that_was_told_to_end_after_another_node_had_failed_is_not_the_cause() -> None:
    end = SchedulerEnd(status="failed", exit_codes={"node-0": 1, "node-1": 1})
    outcome = judged([events(PHASE)] * 4, end, {"node-0": "something", "node-1": SIGNALLED})
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.evidence) == (
        "unknown",
        ("node-0 ended with exit code 1", "node-0: something"),
    )


@pytest.mark.parametrize(("last", "status"), [(OK, "ok"), (PHASE, "failed")])
def test_where_nobody_saw_a_node_end_its_ranks_own_words_count(last: dict[str, Any], status: str) -> None:
    verdict = Failure(kind="rank_lost", evidence=("container suite ended while its runtime was away",))
    outcome = judged([events(OK)] * 3 + [events(last)], SchedulerEnd(status=None, verdict=verdict))
    assert outcome.status == status
    if status == "failed":
        assert outcome.failure is not None and outcome.failure.evidence == verdict.evidence
