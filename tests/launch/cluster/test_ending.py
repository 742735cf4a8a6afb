"""How a run on a cluster ended, from what came back of it."""

import json
from typing import Any

import pytest

from suite.launch.classify import CAUSE, Pattern
from suite.launch.cluster.ending import Transcript, run_outcome
from suite.launch.cluster.launcher import Gathered, SchedulerEnd, Stream
from suite.launch.outcome import Failure

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
    patterns = (Pattern("image_pull", CAUSE, "cannot pull"),)
    return run_outcome(len(ranks), Gathered(STREAMS, end, patterns), transcript)


@pytest.mark.parametrize("status", ["ok", None])
def test_a_run_is_ok_when_every_rank_and_the_scheduler_say_so_or_the_scheduler_has_forgotten(status: Any) -> None:
    outcome = judged([events(OK)] * 4, SchedulerEnd(status=status, started=10.0, ended=25.0))
    assert (outcome.status, outcome.failure, outcome.elapsed_seconds) == ("ok", None, 15.0)
    assert outcome.exit_codes == {0: 0, 1: 0, 2: 0, 3: 0}


def test_one_rank_without_an_end_is_a_failed_run_although_the_scheduler_says_ok() -> None:
    ranks = [events(OK)] * 3 + [events(PHASE)]
    outcome = judged(ranks, SchedulerEnd(status="ok"), notes=("rank 3: event 2 is missing",))
    assert (outcome.status, outcome.failure.kind) == ("failed", "rank_lost")
    assert outcome.failure.evidence == (
        "the scheduler says that the run ended well; the output of rank 3 ends before that: a part was lost",
        "rank 3: event 2 is missing",
    )


TIMEOUT = Failure(kind="timeout", evidence=("Slurm: TIMEOUT",))
OOM_KILLED = Failure(kind="oom_host", evidence=("pod n1: OOMKilled",))
UNSEEN = Failure(kind="rank_lost", evidence=("container suite ended while its runtime was away",))
#: all four ranks say the same
IN_TRAIN, WELL = [events(PHASE)] * 4, [events(OK)] * 4
LAST_HAS_NO_MEMORY = [*IN_TRAIN[:3], events(PHASE, *failed("oom_device", "CUDA out of memory"), rank=3)]
ALL_RAISED = [events(PHASE, *failed("unknown", "RuntimeError: the store is gone"), rank=rank) for rank in range(4)]
OTHERS = TABLE.format(rank=2, code=-15).replace("Root Cause (first observed failure)", "Failures")
SIGNALLED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15"
ECC = "RuntimeError: NCCL error\nCUDA error: uncorrectable ECC error encountered"


def by_codes(**codes: int) -> SchedulerEnd:
    """Exit codes of the nodes; the first was seen to end first."""
    return SchedulerEnd(status="failed", exit_codes={name.replace("_", "-"): code for name, code in codes.items()})


def verdict(failure: Failure, **more: Any) -> SchedulerEnd:
    return SchedulerEnd(status="failed", verdict=failure, **more)


LOST_IT = [events(PHASE, *failed("rank_lost", "Connection closed by peer", time=5.5))] * 3
ALL_TERMINATED = {"node-0": -15, "node-1": -15}
LATE, SEEN_KILLED, SEEN_ENDED = (TABLE.format(rank=3, code=code) for code in (-15, -9, 1))
HALF = IN_TRAIN[:2] + WELL[:2]
PULL = "cannot pull it"


@pytest.mark.parametrize(
    ("ranks", "end", "logs", "kind", "evidence"),
    [
        ([*LOST_IT, LAST_HAS_NO_MEMORY[3]], ENDED_BADLY, {}, "oom_device", "rank 3: CUDA out of memory"),
        (IN_TRAIN, by_codes(node_1=1, node_0=-15), {"node-1": SEEN_KILLED}, "rank_lost", "rank 3 ended by SIGKILL"),
        (IN_TRAIN, by_codes(node_1=1), {"node-1": OTHERS + SEEN_ENDED}, "unknown", "rank 3 ended with exit code 1"),
        (IN_TRAIN, verdict(TIMEOUT, exit_codes=ALL_TERMINATED), {"node-1": LATE}, "timeout", "Slurm: TIMEOUT"),
        (LAST_HAS_NO_MEMORY, verdict(TIMEOUT), {}, "oom_device", "rank 3: CUDA out of memory"),
        (ALL_RAISED, verdict(OOM_KILLED), {}, "unknown", "rank 0: RuntimeError: the store is gone"),
        (ALL_RAISED, verdict(OOM_KILLED, proven=True), {}, "oom_host", "pod n1: OOMKilled"),
        ([[]] * 4, ENDED_BADLY, {"slurm": "error: cannot pull"}, "image_pull", "slurm: error: cannot pull"),
        (IN_TRAIN, by_codes(node_1=1), {"node-1": ECC}, "gpu_unavailable", f"node-1: {ECC.splitlines()[1]}"),
        ([[]] * 4, SchedulerEnd(status=None), {}, "unknown", "node-0 ended in a way that is not known"),
        (WELL, by_codes(node_1=-9, node_0=-15), {}, "rank_lost", "node-1 ended by SIGKILL"),
        (HALF, by_codes(node_0=1, node_1=-15), {"node-0": PULL}, "image_pull", f"node-0: {PULL}"),
        (IN_TRAIN, by_codes(node_1=1, node_0=-15), {"node-1": SIGNALLED}, "rank_lost", "node-1 ended by SIGTERM"),
        (IN_TRAIN, by_codes(node_0=1, node_1=1), {"node-1": SIGNALLED}, "unknown", "node-0 ended with exit code 1"),
        ([*WELL[:3], events(PHASE)], SchedulerEnd(status=None, verdict=UNSEEN), {}, "rank_lost", UNSEEN.evidence[0]),
    ],
    ids=[
        *("a rank without memory before those that lost it", "torchrun saw it killed", "torchrun ended others itself"),
        *("the scheduler's verdict", "a rank's word before the verdict", "what ranks raised", "what is proven"),
        *("a line of the scheduler's programs", "a node's log", "nothing is known", "torchrun is killed"),
        *("a node that was ended after another", "somebody ended torchrun", "told to end after another had failed"),
        "nobody saw it end",
    ],
)
def test_the_cause_is_what_explains_the_others(ranks, end, logs, kind, evidence):
    outcome = judged(ranks, end, logs)
    assert (outcome.status, outcome.failure.kind, outcome.failure.evidence[0]) == ("failed", kind, evidence)
    assert outcome.failure.phase == (None if ranks[0] in ([], events(OK)) else "train")


def test_a_node_that_nobody_saw_end_is_well_where_its_ranks_say_so() -> None:
    assert judged(WELL, SchedulerEnd(status=None, verdict=UNSEEN)).status == "ok"


def test_torchrun_speaks_of_its_own_nodes_ranks_only() -> None:
    for name, code in (("node-0", None), ("node-1", -9)):
        outcome = judged(IN_TRAIN, ENDED_BADLY, {name: TABLE.format(rank=3, code=-9)})
        assert outcome.exit_codes == {0: None, 1: None, 2: None, 3: code}


def test_a_cancelled_run_is_interrupted_whatever_its_ranks_reported() -> None:
    verdict = Failure(kind="interrupted", evidence=("CANCELLED by 1000",))
    outcome = judged(LAST_HAS_NO_MEMORY, SchedulerEnd(status="interrupted", verdict=verdict))
    assert outcome.status == "interrupted"
    assert outcome.failure == Failure(kind="interrupted", phase="train", iteration=4, evidence=("CANCELLED by 1000",))
