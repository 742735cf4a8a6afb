"""From what node, runtime and driver know to one outcome, and the words of runtimes by which it is known."""

import re
from typing import Any

import pytest

from suite.launch.docker.conclude import RUNTIME_PATTERNS, ContainerEnd, conclude, runtime_failure
from suite.launch.outcome import Failure, Outcome

OK = Outcome(status="ok", exit_codes={0: 0, 1: 0}, elapsed_seconds=3.0)


def failed(kind: str, *evidence: str, **where: Any) -> Outcome:
    failure = Failure(kind=kind, evidence=evidence, **where)
    return Outcome(status="failed", exit_codes={0: -9, 1: 1}, elapsed_seconds=3.0, failure=failure)


def end(**known: Any) -> ContainerEnd:
    return ContainerEnd(**{"ranks": 2, "elapsed_seconds": 5.0, "phase": "train", "iteration": 4, **known})


def test_the_nodes_word_counts_where_nothing_speaks_against_it() -> None:
    for outcome in (OK, failed("oom_device", "rank 0: CUDA out of memory")):
        assert conclude(end(outcome=outcome, exit_code=1)) == outcome


def test_a_report_that_went_with_the_connection_is_made_up_for_by_exit_code_0_alone() -> None:
    assert conclude(end(exit_code=0, **BROKEN)) == OK.model_copy(update={"elapsed_seconds": 5.0})
    for known in ({"exit_code": 1}, {"exit_code": 0, "oom_killed": True}, {"exit_code": 0, "gone": "it was removed"}):
        assert conclude(end(**known, **BROKEN)).status == "failed"
    assert conclude(end(exit_code=0)).status == "failed", "with no break there is no reason for the silence"


BROKEN = {"trouble": ("the runtime broke off in mid-run: reset",)}
BY_KERNEL = "the kernel killed a process of the container"


@pytest.mark.parametrize(
    ("known", "kind", "evidence"),
    [
        ({"exit_code": 137, "oom_killed": True}, "oom_host", "the container ended with exit code 137 and OOMKilled"),
        ({"exit_code": 137}, "rank_lost", "killed from outside (exit code 137, OOMKilled false)"),
        ({"exit_code": 143}, "rank_lost", "killed from outside (exit code 143"),
        ({"gone": "the container was removed"}, "rank_lost", "the container was removed"),
        ({"exit_code": 255, **BROKEN}, "rank_lost", "the container ended while its runtime was away"),
        ({"exit_code": 255}, "unknown", "ended with exit code 255 before its node reported"),
        ({"exit_code": 3, "tail": ("some line",)}, "unknown", "ended with exit code 3 before its node reported"),
        ({"exit_code": 127, "error": "exec: no such file or directory"}, "config", "exec: no such file"),
        ({"exit_code": 1, "tail": ("x: No module named 'suite'",)}, "config", "No module named 'suite'"),
        ({"exit_code": 1, "tail": ("write: no space left on device",)}, "disk_full", "no space left"),
        ({"outcome": OK, "oom_killed": True}, "oom_host", BY_KERNEL),
        ({"outcome": failed("rank_lost", "rank 1 ended by SIGKILL"), "oom_killed": True}, "oom_host", BY_KERNEL),
        ({"outcome": failed("disk_full", "No space left"), "oom_killed": True}, "disk_full", "No space left"),
    ],
)
def test_each_end_has_its_kind_and_its_proof(known: dict, kind: str, evidence: str) -> None:
    outcome = conclude(end(**known))
    assert outcome.status == "failed" and outcome.failure.kind == kind and evidence in outcome.failure.evidence[0]


def test_a_node_that_others_stopped_is_a_lost_run_and_no_interrupt() -> None:
    failure = Failure(kind="interrupted", evidence=("the driver was sent SIGTERM",))
    stopped = OK.model_copy(update={"status": "interrupted", "exit_codes": {0: -15, 1: -15}, "failure": failure})
    by_others = conclude(end(outcome=stopped, **BROKEN))
    assert (by_others.status, by_others.failure.kind) == ("failed", "rank_lost")
    assert by_others.failure.evidence == ("the container was sent SIGTERM, and not by this driver", *BROKEN["trouble"])
    assert by_others.exit_codes == {0: -15, 1: -15}
    by_us = conclude(end(outcome=stopped, interrupted_by="SIGINT"))
    assert (by_us.status, by_us.failure.evidence) == ("interrupted", ("the driver was sent SIGINT",))


def test_the_users_stop_counts_before_all_and_the_drivers_verdict_before_the_nodes() -> None:
    verdict = Failure(kind="timeout", evidence=("too long",))
    assert conclude(end(verdict=verdict, outcome=OK)).failure == verdict
    assert conclude(end(verdict=verdict, interrupted_by="SIGINT", oom_killed=True)).status == "interrupted"


def test_phase_and_exit_codes_are_the_nodes_where_it_reported_them() -> None:
    outcome = conclude(end(outcome=failed("rank_lost", "x", phase="score", iteration=2), oom_killed=True))
    assert (outcome.failure.phase, outcome.failure.iteration, outcome.exit_codes) == ("score", 2, {0: -9, 1: 1})
    silent = conclude(end(exit_code=137))
    assert (silent.failure.phase, silent.failure.iteration, silent.exit_codes) == ("train", 4, {0: None, 1: None})


#: as dockerd 20.10 and 26.1, containerd, runc 1.1, tini and NVIDIA's container tools word it
HOOK = "OCI runtime create failed: runc create failed: error running hook #0: nvidia-container-cli: "
REAL_LINES = [
    ("image_missing", "No such image: sha256:0f3c", None),
    ("image_pull", "pull access denied for x/y, repository does not exist or may require 'docker login'", None),
    ("image_pull", 'Error response from daemon: Get "https://nvcr.io/v2/": net/http: request canceled', None),
    ("driver_mismatch", f"{HOOK}requirement error: unsatisfied condition: cuda>=12.8, please update your driver", None),
    ("driver_mismatch", f"{HOOK}initialization error: nvml error: driver/library version mismatch: unknown", None),
    ("driver_mismatch", "nvidia-container-cli: requirement error: invalid expression", None),
    ("driver_mismatch", "CUDA error 804: forward compatibility was attempted on non supported HW", None),
    ("gpu_unavailable", 'could not select device driver "" with capabilities: [[gpu]]', "container toolkit"),
    ("gpu_unavailable", 'could not select device driver "cdi" with capabilities: []', "features.cdi"),
    ("gpu_unavailable", "Unknown runtime specified nvidia", "container toolkit"),
    ("gpu_unavailable", "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=9", None),
    ("gpu_unavailable", "nvidia-container-cli: device error: 9: unknown device: unknown", None),
    ("gpu_unavailable", "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", None),
    ("gpu_unavailable", 'error gathering device information while adding custom device "/dev/nvidia-modeset"', None),
    ("oom_host", "container init was OOM-killed (memory limit too low?): unknown", None),
    ("disk_full", "mkdir /var/lib/docker/overlay2/x: no space left on device", None),
    ("config", "error setting rlimit type 8: operation not permitted: unknown", "--ulimit memlock=8388608"),
    ("config", "[FATAL tini (7)] exec /opt/suite/bin/python failed: Exec format error", "architecture"),
    ("config", "[FATAL tini (7)] exec /opt/suite/bin/python failed: No such file or directory", "suite images build"),
    ("config", "/opt/suite/bin/python: No module named suite", "suite images build"),
    ("config", 'invalid mount config for type "bind": bind source path does not exist: /x', "--copy-back"),
    ("config", "Requested CPUs are not available - requested 0-99, available: 0-1", "--cpuset"),
    ("config", "container create: unable to find network with name or ID x: network not found", "--network"),
    ("config", "network nonet not found", "--network"),
    ("config", "unknown ulimit type: foo", None),
    ("config", "Minimum memory limit allowed is 6MB", "--memory"),
]


@pytest.mark.parametrize(("kind", "line", "advice"), REAL_LINES)
def test_a_runtimes_errors_have_their_kind_and_their_next_step(kind: str, line: str, advice: str | None) -> None:
    failure = runtime_failure("nothing of interest", line)
    assert failure is not None and failure.kind == kind
    assert len(failure.evidence) == (1 if advice is None else 2)
    assert advice is None or (failure.evidence[1].startswith("next step: ") and advice in failure.evidence[1])


def test_every_pattern_has_a_real_line_that_it_is_the_first_to_fit() -> None:
    expressions = [entry.expression for entry in RUNTIME_PATTERNS]
    fitting = ([each for each in expressions if re.search(each, line)] for _, line, _ in REAL_LINES)
    assert {found[0] for found in fitting} == set(expressions)
