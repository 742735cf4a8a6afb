"""What a user asks Slurm for, which may lose no run: options of sbatch, images by Docker's names, limits of a queue."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from suite.launch.slurm.client import limit_seconds, why_never
from suite.launch.slurm.script import apptainer_image, pyxis_image
from suite.launch.slurm.settings import SlurmSettings, refusal


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("output", ("--output=mine.out", "--outp=mine.out", "-omine.out", "-o", "-Homine")),
        *((name, (f"--{name}=x",)) for name in ("error", "chdir", "job-name", "nodes", "wrap", "open-mode")),
        ("array", ("--array=0-3", "-a0-3")),
        ("wait", ("--wait", "-W")),
    ],
)
def test_what_would_lose_the_result_is_refused(name: str, options: tuple[str, ...]) -> None:
    for option in options:
        why = refusal(option)
        assert why is not None and f"; {name} is set by " in why
        with pytest.raises(ValidationError, match="would lose the run's result"):
            SlurmSettings(options=(option,))


def test_what_only_says_where_or_when_is_taken_and_what_is_no_option_is_named_as_such() -> None:
    options = ("--nodelist=n[1-2]", "-xn7", "-pgpu", "-H", "--exclusive=user", "--wait-all-nodes=1", "--time-min=10")
    assert SlurmSettings(options=options).options == options
    with pytest.raises(ValidationError, match="is no option"):
        SlurmSettings(options=("exclude=n7",))


def test_ranks_that_are_started_or_bound_otherwise_are_told_as_another_measurement() -> None:
    assert SlurmSettings().manner is None
    assert SlurmSettings(starter="srun").manner == "srun"
    assert SlurmSettings(hint="nomultithread").manner == "torchrun hint=nomultithread"
    bound = SlurmSettings(starter="srun", cpu_bind="cores", cpus_per_task=4)
    assert bound.manner == "srun cpus-per-task=4 cpu-bind=cores"


DIGEST = "sha256:" + "5" * 64


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("registry.example/team/engines:0.1.0", "registry.example#team/engines:0.1.0"),
        ("localhost:5000/engines", "localhost:5000#engines"),
        ("registry.example/engines:0.1.0@" + DIGEST, "registry.example#engines:" + DIGEST),
        ("team/engines@" + DIGEST, "team/engines:" + DIGEST),
        ("docker://registry.example/engines:1", "registry.example#engines:1"),
        ("$oauthtoken@nvcr.io#nvidia/pytorch:23.02-py3", "$oauthtoken@nvcr.io#nvidia/pytorch:23.02-py3"),
        ("/scratch/team/engines.sqsh", "/scratch/team/engines.sqsh"),
    ],
)
def test_pyxis_gets_the_registry_and_the_digest_as_enroot_reads_them(image: str, wanted: str) -> None:
    assert pyxis_image(image) == wanted


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("registry.example/engines:0.1.0", "docker://registry.example/engines:0.1.0"),
        ("registry.example/engines:0.1.0@" + DIGEST, "docker://registry.example/engines@" + DIGEST),
        ("oras://registry.example/engines:0.1.0", "oras://registry.example/engines:0.1.0"),
        ("/scratch/team/engines.sif", "/scratch/team/engines.sif"),
    ],
)
def test_apptainer_gets_a_source_and_a_digest_without_a_tag(image: str, wanted: str) -> None:
    assert apptainer_image(image) == wanted


JOB = "JobId=7 JobName=run Partition=gpu NumNodes=4 NumCPUs=8 TimeLimit=02:01:00 TRES=cpu=8,node=4"
PARTITION = "PartitionName=gpu AllowGroups=ALL MaxNodes={nodes} MaxTime={time} State=UP TotalCPUs=16 TotalNodes=8"


@pytest.mark.parametrize(
    ("nodes", "time", "words"),
    [
        ("2", "UNLIMITED", "NumNodes=4 is more than MaxNodes=2 of partition gpu"),
        ("2", "1:00", "TimeLimit=02:01:00 is more than MaxTime=1:00 and NumNodes=4 is more than MaxNodes=2"),
        ("UNLIMITED", "1-00:00:00", "partition gpu gives, which has MaxNodes=UNLIMITED, TotalNodes=8"),
    ],
)
def test_the_limit_that_is_exceeded_is_named(nodes: str, time: str, words: str) -> None:
    assert "scontrol show partition" in why_never("PartitionConfig", "", ""), "where it tells nothing"
    text = why_never("PartitionConfig", JOB, PARTITION.format(nodes=nodes, time=time))
    assert words in text and "(PartitionConfig)" in text and "--timeout" in text


def test_times_as_slurm_writes_them() -> None:
    texts = {"00:30:00": 1800, "1:30": 90, "2-01:00:00": 49 * 3600, "UNLIMITED": math.inf}
    for text, value in (texts | dict.fromkeys(("", "Partition_Limit", "1:2:3:4"), 0)).items():
        assert limit_seconds(text) == value
