"""What a user asks Slurm for, which may lose no run: options of sbatch, images by Docker's names."""

import pytest
from pydantic import ValidationError

from suite.launch.slurm.launcher import container_image
from suite.launch.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, f"--{name}=x") for name in ("output", "error", "chdir", "job-name", "nodes", "wrap", "open-mode")),
        *(("array", "--array=0-3"), ("output", "--outp=mine.out"), ("wait", "--wait")),
    ],
)
def test_what_would_lose_the_result_is_refused(name: str, option: str) -> None:
    with pytest.raises(
        ValidationError, match=f"would lose the run's result or change the run; suite submit sets {name} itself"
    ):
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


#: pyxis: the registry and the digest as enroot reads them; Apptainer: a source, and a digest without a tag
@pytest.mark.parametrize(
    ("container", "image", "wanted"),
    [
        ("pyxis", "registry.example/team/engines:0.1.0", "registry.example#team/engines:0.1.0"),
        ("pyxis", "localhost:5000/engines", "localhost:5000#engines"),
        ("pyxis", "registry.example/engines:0.1.0@" + DIGEST, "registry.example#engines:" + DIGEST),
        ("pyxis", "team/engines@" + DIGEST, "team/engines:" + DIGEST),
        ("pyxis", "docker://registry.example/engines:1", "registry.example#engines:1"),
        ("pyxis", "$oauthtoken@nvcr.io#nvidia/pytorch:23.02-py3", "$oauthtoken@nvcr.io#nvidia/pytorch:23.02-py3"),
        ("pyxis", "/scratch/team/engines.sqsh", "/scratch/team/engines.sqsh"),
        ("apptainer", "registry.example/engines:0.1.0", "docker://registry.example/engines:0.1.0"),
        ("apptainer", "registry.example/engines:0.1.0@" + DIGEST, "docker://registry.example/engines@" + DIGEST),
        ("apptainer", "oras://registry.example/engines:0.1.0", "oras://registry.example/engines:0.1.0"),
        ("apptainer", "/scratch/team/engines.sif", "/scratch/team/engines.sif"),
    ],
)
def test_an_image_is_named_as_its_container_runtime_reads_it(container, image, wanted):
    assert container_image(image, container) == wanted
