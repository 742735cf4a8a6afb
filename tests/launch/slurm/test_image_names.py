"""Images by Docker's names, as enroot and Apptainer want them spelt."""

from __future__ import annotations

import pytest

from suite.launch.slurm.image_names import apptainer_image, pyxis_image

DIGEST = "sha256:" + "5" * 64


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("registry.example/team/engines:0.1.0", "registry.example#team/engines:0.1.0"),
        ("localhost:5000/engines", "localhost:5000#engines"),
        ("registry.example/engines:0.1.0@" + DIGEST, "registry.example#engines:" + DIGEST),
        ("team/engines@" + DIGEST, "team/engines:" + DIGEST),
        ("team/engines:0.1.0", "team/engines:0.1.0"),
        ("docker://registry.example/engines:1", "registry.example#engines:1"),
        ("registry.example#team/engines:0.1.0", "registry.example#team/engines:0.1.0"),
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
        ("docker://registry.example/engines:0.1.0", "docker://registry.example/engines:0.1.0"),
        ("registry.example/engines:0.1.0@" + DIGEST, "docker://registry.example/engines@" + DIGEST),
        ("oras://registry.example/engines:0.1.0", "oras://registry.example/engines:0.1.0"),
        ("/scratch/team/engines.sif", "/scratch/team/engines.sif"),
    ],
)
def test_apptainer_gets_a_source_and_a_digest_without_a_tag(image: str, wanted: str) -> None:
    assert apptainer_image(image) == wanted
