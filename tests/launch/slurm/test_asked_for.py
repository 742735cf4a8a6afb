"""What a user asks Slurm for, which may lose no run: options of sbatch, images by Docker's names, limits of a queue."""

import pytest
from pydantic import ValidationError

from suite.launch.slurm.client import why_never
from suite.launch.slurm.script import apptainer_image, pyxis_image
from suite.launch.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, f"--{name}=x") for name in ("output", "error", "chdir", "job-name", "nodes", "wrap", "open-mode")),
        *(("array", "--array=0-3"), ("output", "--outp=mine.out"), ("wait", "--wait")),
    ],
)
def test_what_would_lose_the_result_is_refused(name: str, option: str) -> None:
    with pytest.raises(ValidationError, match=f"would lose the run's result or change the run; {name} is set by "):
        SlurmSettings(options=(option,))


def test_what_only_says_where_or_when_is_taken_and_by_its_full_name() -> None:
    options = ("--nodelist=n[1-2]", "--hold", "--exclusive=user", "--wait-all-nodes=1", "--time-min=10")
    assert SlurmSettings(options=options).options == options
    for option in ("exclude=n7", "-xn7", "-omine"):
        with pytest.raises(ValidationError, match="name the option in full"):
            SlurmSettings(options=(option,))


def test_ranks_that_are_started_or_bound_otherwise_are_told_as_another_measurement() -> None:
    assert SlurmSettings().manner is None
    assert SlurmSettings(starter="srun").manner == "srun"
    assert SlurmSettings(hint="nomultithread").manner == "torchrun hint=nomultithread"
    bound = SlurmSettings(starter="srun", cpu_bind="cores", cpus_per_node=32)
    assert bound.manner == "srun cpus-per-node=32 cpu-bind=cores"


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
PARTITION = "PartitionName=gpu AllowGroups=ALL MaxNodes=2 MaxTime=1:00 State=UP TotalCPUs=16 TotalNodes=8"


def test_what_can_never_start_is_told_beside_what_the_partition_has() -> None:
    text = why_never("PartitionConfig", JOB, PARTITION)
    assert "(PartitionConfig): it asks for NumNodes=4, TimeLimit=02:01:00, and partition gpu has MaxNodes=2" in text
    assert "MaxTime=1:00" in text and "--timeout" in text
    assert "scontrol show partition" in why_never("PartitionConfig", "", ""), "where it tells nothing"
