"""A job's output file: whose line is whose, and what Slurm's own lines say."""

from __future__ import annotations

import pytest

from suite.launch.slurm.output import read_output, verdict
from suite.spec.layout import Layout

TWO_NODES = Layout(nodes=2, devices_per_node=2, data=4)
TIME_LIMIT = "slurmstepd-n1: error: *** JOB 23 ON n1 CANCELLED AT 2026-11-21T13:03:10 DUE TO TIME LIMIT ***"
CANCELLED = "slurmstepd-n1: error: *** JOB 25 ON n1 CANCELLED AT 2026-11-21T13:02:18 ***"
PREEMPTED = CANCELLED.removesuffix("***") + "DUE TO PREEMPTION ***"
NODE_FAILED = CANCELLED.removesuffix("***") + "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
STEP_CANCELLED = "0: slurmstepd-n1: error: *** STEP 19.0 ON n1 CANCELLED AT 2026-11-21T13:01:58 ***"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."
OVER_LIMIT = "slurmstepd: error: Exceeded job memory limit"
BEING_KILLED = "slurmstepd: error: Step 7.0 exceeded memory limit (2097152 > 1048576), being killed"
AT_SOME_POINT = "slurmstepd: error: Exceeded step memory limit at some point."
KILLED = "srun: error: n1: task 0: Killed"


def lines(*texts: str) -> list[bytes]:
    return [f"{text}\n".encode() for text in texts]


def test_each_tasks_lines_are_its_own_and_the_rest_is_slurms() -> None:
    output = read_output(lines("begin", "0: a", "1: b", "0: ", "1: 0: c", "7: of nobody"), TWO_NODES, "torchrun")
    assert [(stream.name, stream.lines, stream.ranks) for stream in output.streams] == [
        ("node-0", lines("a", ""), (0, 1)),
        ("node-1", lines("b", "0: c"), (2, 3)),
        ("slurm", lines("begin", "7: of nobody"), ()),
    ]


def test_tasks_that_are_ranks_are_named_so_and_their_numbers_may_be_padded() -> None:
    layout = Layout(nodes=2, devices_per_node=8, data=16)
    output = read_output(lines(" 3: a", "12: b"), layout, "srun")
    assert len(output.streams) == 17
    assert {stream.name: stream.lines for stream in output.streams if stream.lines} == {
        "rank-3": lines("a"),
        "rank-12": lines("b"),
    }


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("srun: error: n2: task 1: Exited with exit code 3", {"node-1": 3}),
        ("srun: error: n2: task 1: Exited with exit code 137", {"node-1": -9}),
        ("srun: error: n1: task 0: Killed", {"node-0": -9}),
        ("srun: error: n1: task 0: Segmentation fault (core dumped)", {"node-0": -11}),
        ("srun: error: n[1-2]: tasks 0-1: Terminated", {"node-0": -15, "node-1": -15}),
        ("srun: error: n[1-2]: tasks 0,1: Exited with exit code 1", {"node-0": 1, "node-1": 1}),
        ("srun: error: n1: task 0: Something new", {}),
        ("srun: error: n9: task 9: Killed", {}),
    ],
)
def test_what_srun_says_of_a_tasks_end(line: str, codes: dict[str, int]) -> None:
    assert read_output(lines(line), TWO_NODES, "torchrun").exit_codes == codes


def test_the_task_that_ended_first_comes_first() -> None:
    output = read_output(
        lines("srun: error: n2: task 1: Exited with exit code 1", "srun: error: n1: task 0: Terminated"),
        TWO_NODES,
        "torchrun",
    )
    assert list(output.exit_codes.items()) == [("node-1", 1), ("node-0", -15)]


@pytest.mark.parametrize(
    ("line", "word", "kind"),
    [
        (TIME_LIMIT, "TIMEOUT", "timeout"),
        (TIME_LIMIT, None, "timeout"),
        ("", "DEADLINE", "timeout"),
        (CANCELLED, "CANCELLED", "interrupted"),
        (CANCELLED, None, "interrupted"),
        (PREEMPTED, None, "interrupted"),
        (NODE_FAILED, "NODE_FAIL", "rank_lost"),
        (NODE_FAILED, None, "rank_lost"),
        (OOM, "OUT_OF_MEMORY", "oom_host"),
        (OOM, None, "oom_host"),
        (OOM, "FAILED", "oom_host"),
        (STEP_CANCELLED, "FAILED", None),
        ("", "COMPLETED", None),
        ("", None, None),
    ],
)
def test_why_slurm_itself_ended_a_job(line: str, word: str | None, kind: str | None) -> None:
    output = read_output(lines(line), TWO_NODES, "torchrun")
    found = verdict(output.own, word, "")
    assert (found and found.kind) == kind
    if found is not None:
        assert found.evidence, "a verdict is proven"


@pytest.mark.parametrize(
    ("printed", "word", "kind"),
    [
        ((OVER_LIMIT, CANCELLED, KILLED), "CANCELLED", "oom_host"),
        ((BEING_KILLED, KILLED), "FAILED", "oom_host"),
        (("0: " + OVER_LIMIT, KILLED), None, "oom_host"),
        ((AT_SOME_POINT, KILLED), "FAILED", "oom_host"),
        ((AT_SOME_POINT,), "FAILED", None),
        ((AT_SOME_POINT,), "COMPLETED", None),
        ((AT_SOME_POINT, CANCELLED), "CANCELLED", "interrupted"),
    ],
)
def test_a_job_that_slurm_ended_for_its_memory_is_no_cancelled_one(
    printed: tuple[str, ...], word: str | None, kind: str | None
) -> None:
    output = read_output(lines(*printed), TWO_NODES, "torchrun")
    found = verdict(output.own, word, "")
    assert (found and found.kind) == kind
    if kind == "oom_host":
        assert found is not None and any("memory limit" in line for line in found.evidence)


def test_a_reason_that_slurm_gives_is_part_of_the_evidence() -> None:
    found = verdict((), "TIMEOUT", "TimeLimit")
    assert found is not None
    assert found.evidence == ("Slurm's state of the job: TIMEOUT (TimeLimit)",)


def test_the_evidence_of_a_lost_node_names_the_node_that_was_lost() -> None:
    """The line of the job's end names its first node, which may live."""
    lost = "srun: error: Node failure on n2"
    output = read_output(lines(lost, NODE_FAILED), TWO_NODES, "torchrun")
    found = verdict(output.own, "NODE_FAIL", "")
    assert found is not None
    assert found.evidence == ("Slurm's state of the job: NODE_FAIL", lost)


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("srun: error: x: tasks 0-99999999999999: Exited with exit code 3", {"node-0": 3, "node-1": 3}),
        ("srun: error: x: tasks 1-999999999: Exited with exit code 3", {"node-1": 3}),
        ("srun: error: x: tasks ,-,: Exited with exit code 3", {}),
        (f"srun: error: x: tasks 0: Exited with exit code {'9' * 5000}", {}),
        (f"srun: error: x: tasks {'9' * 5000}: Killed", {}),
        (f"{'9' * 5000}: hello", {}),
    ],
)
def test_numbers_beyond_any_job_keep_nobody_busy(line: str, codes: dict[str, int]) -> None:
    assert read_output(lines(line), TWO_NODES, "torchrun").exit_codes == codes
