"""A job's output file: whose line is whose, and what Slurm's own lines and those of its containers' programs prove."""

import pytest

from suite.launch.classify import PATTERNS, strongest
from suite.launch.slurm.scheduler import SLURM_PATTERNS, read_output, verdict
from suite.spec.layout import Layout

TWO_NODES = Layout(nodes=2, devices_per_node=2, data=4)
TIME_LIMIT = "slurmstepd-n1: error: *** JOB 23 ON n1 CANCELLED AT 2026-11-21T13:03:10 DUE TO TIME LIMIT ***"
CANCELLED = "slurmstepd-n1: error: *** JOB 25 ON n1 CANCELLED AT 2026-11-21T13:02:18 ***"
PREEMPTED = CANCELLED.removesuffix("***") + "DUE TO PREEMPTION ***"
NODE_FAILED = CANCELLED.removesuffix("***") + "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
STEP_CANCELLED = "0: slurmstepd-n1: error: *** STEP 19.0 ON n1 CANCELLED AT 2026-11-21T13:01:58 ***"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."
OVER_LIMIT = "slurmstepd: error: Exceeded job memory limit"
AT_SOME_POINT = "slurmstepd: error: Exceeded step memory limit at some point."
KILLED = "srun: error: n1: task 0: Killed"
NODE_LOST = "srun: error: Node failure on n2"


def lines(*texts: str) -> list[bytes]:
    return [f"{text}\n".encode() for text in texts]


def read(*texts: str) -> tuple:
    return read_output(lines(*texts), TWO_NODES, "torchrun")


def test_each_tasks_lines_are_its_own_and_the_rest_is_slurms() -> None:
    streams, _, _ = read("begin", "0: a", "1: b", "0: ", "1: 0: c", "7: of nobody")
    assert [(stream.name, stream.lines, stream.ranks) for stream in streams] == [
        ("node-0", lines("a", ""), (0, 1)),
        ("node-1", lines("b", "0: c"), (2, 3)),
        ("slurm", lines("begin", "7: of nobody"), ()),
    ]


def test_tasks_that_are_ranks_are_named_so_and_their_numbers_may_be_padded() -> None:
    layout = Layout(nodes=2, devices_per_node=8, data=16)
    streams, _, _ = read_output(lines(" 3: a", "12: b"), layout, "srun")
    assert len(streams) == 17
    found = {stream.name: stream.lines for stream in streams if stream.lines}
    assert found == {"rank-3": lines("a"), "rank-12": lines("b")}


ONE_AFTER_ANOTHER = "srun: error: n2: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Terminated"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (ONE_AFTER_ANOTHER, {"node-1": 1, "node-0": -15}),
        ("srun: error: n2: task 1: Exited with exit code 3", {"node-1": 3}),
        ("srun: error: n2: task 1: Exited with exit code 137", {"node-1": -9}),
        (KILLED, {"node-0": -9}),
        ("srun: error: n1: task 0: Segmentation fault (core dumped)", {"node-0": -11}),
        ("srun: error: n[1-2]: tasks 0-1: Terminated", {"node-0": -15, "node-1": -15}),
        ("srun: error: n[1-2]: tasks 0,1: Exited with exit code 1", {"node-0": 1, "node-1": 1}),
        ("srun: error: n1: task 0: Something new", {}),
        ("srun: error: x: tasks 0-99999999999999: Exited with exit code 3", {"node-0": 3, "node-1": 3}),
        ("srun: error: x: tasks ,-,: Exited with exit code 3", {}),
        (f"srun: error: x: tasks 0: Exited with exit code {'9' * 5000}", {}),
        (f"srun: error: x: tasks {'9' * 5000}: Killed", {}),
        (f"{'9' * 5000}: hello", {}),
    ],
)
def test_what_srun_says_of_a_tasks_end_first_to_last_and_numbers_beyond_any_job(text, codes):
    assert list(read(*text.splitlines())[2].items()) == list(codes.items())


@pytest.mark.parametrize(
    ("printed", "word", "kind"),
    [
        ((TIME_LIMIT,), None, "timeout"),
        ((), "DEADLINE", "timeout"),
        ((CANCELLED,), None, "interrupted"),
        ((PREEMPTED,), None, "interrupted"),
        ((NODE_FAILED,), None, "rank_lost"),
        ((OOM,), "FAILED", "oom_host"),
        ((STEP_CANCELLED,), "FAILED", None),
        ((), "COMPLETED", None),
        ((), None, None),
        ((OVER_LIMIT, CANCELLED, KILLED), "CANCELLED", "oom_host"),
        (("0: " + OVER_LIMIT, KILLED), None, "oom_host"),
        ((AT_SOME_POINT, KILLED), "FAILED", "oom_host"),
        ((AT_SOME_POINT,), "FAILED", None),
        ((AT_SOME_POINT, CANCELLED), "CANCELLED", "interrupted"),
    ],
)
def test_why_slurm_itself_ended_a_job_and_by_what_that_is_proven(printed, word, kind):
    found = verdict(read(*printed)[1], word, "")
    assert (found and found.kind) == kind
    assert found is None or found.evidence
    if KILLED in printed:
        assert found is not None and any("memory limit" in line for line in found.evidence)


def test_the_evidence_holds_slurms_reason_and_the_node_that_was_lost() -> None:
    """The line of the job's end names its first node, which may live."""
    late, lost = verdict((), "TIMEOUT", "TimeLimit"), verdict(read(NODE_LOST, NODE_FAILED)[1], "NODE_FAIL", "")
    assert late is not None and late.evidence == ("Slurm's state of the job: TIMEOUT (TimeLimit)",)
    assert lost is not None and lost.evidence == ("Slurm's state of the job: NODE_FAIL", NODE_LOST)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (OOM, "oom_host"),
        ("RuntimeError: the server socket has failed, code: -98, name: EADDRINUSE", "port_taken"),
        (OVER_LIMIT, "oom_host"),
        ("srun: error: n1: task 0: Out Of Memory", "oom_host"),
        ("slurmstepd: error: pyxis: failed to import docker image", "image_pull"),
        ("slurmstepd: error: pyxis:     [ERROR] URL https://ghcr.io/token returned error code: 403", "image_pull"),
        ("slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/x.sqsh", "image_missing"),
        ("slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file", "config"),
        ("FATAL:   could not open image /images/x.sif: failed to retrieve path", "image_missing"),
        ("FATAL:   While making image from oci registry: error fetching image", "image_pull"),
        ("srun: unrecognized option '--container-image=x'", "config"),
        ("env: '/nowhere/python': No such file or directory", "config"),
        ("bash: line 7: apptainer: command not found", "config"),
        ("srun: error: Unable to create step for job 7: More processors requested than permitted", "config"),
        ("srun: error: Node failure on n2", "rank_lost"),
        ("srun: error: n2: task 1: Exited with exit code 1", None),
        ("srun: cluster configuration lacks support for cpu binding", None),
    ],
)
def test_a_line_proves_its_kind_and_no_other(line: str, kind: str | None) -> None:
    match = strongest([line], (*PATTERNS, *SLURM_PATTERNS), started=False)
    assert (match and match[0].kind) == kind
