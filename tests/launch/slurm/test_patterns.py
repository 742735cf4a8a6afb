"""Lines of Slurm and of its containers' programs, and what they prove."""

from __future__ import annotations

import pytest

from suite.launch.patterns import PATTERNS, strongest
from suite.launch.slurm.output import SLURM_PATTERNS


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks", "oom_host"),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=5.0 cgroup.", "oom_host"),
        ("RuntimeError: the server socket has failed, code: -98, name: EADDRINUSE", "port_taken"),
        ("slurmstepd: error: Exceeded job memory limit", "oom_host"),
        ("slurmstepd: error: Step 7.0 exceeded memory limit (2097152 > 1048576), being killed", "oom_host"),
        ("srun: error: n1: task 0: Out Of Memory", "oom_host"),
        ("slurmstepd: error: pyxis: failed to import docker image", "image_pull"),
        (
            "slurmstepd: error: pyxis:     [ERROR] URL https://ghcr.io/token returned error code: 403 Forbidden",
            "image_pull",
        ),
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
        ("slurmstepd: error: *** STEP 19.0 ON n1 CANCELLED AT 2026-11-21T13:01:58 ***", None),
        ("srun: cluster configuration lacks support for cpu binding", None),
    ],
)
def test_a_line_proves_its_kind_and_no_other(line: str, kind: str | None) -> None:
    match = strongest([line], (*PATTERNS, *SLURM_PATTERNS), started=False)
    assert (match and match.pattern.kind) == kind
