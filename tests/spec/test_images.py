"""The catalogue of images: complete, spelt helpfully, and of one mind with the backends."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from suite.backends.registry import backends
from suite.spec.images import BaseImage, bases, find_image, images, images_of, stack_labels, stack_versions_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("image", images().values(), ids=lambda image: image.name)
def test_what_an_image_names_is_there(image) -> None:
    assert (ROOT / image.dockerfile).is_file()
    assert image.lock is None or (ROOT / "requirements/images" / image.lock).is_file()
    assert image.cpu_stack is None or (ROOT / "requirements" / image.cpu_lock).is_file()
    assert (image.lock is None) == (image.interpreter is not None)
    assert set(image.backends) <= set(backends())
    assert set(image.sources) <= set(image.packages)


@pytest.mark.parametrize("image", images().values(), ids=lambda image: image.name)
def test_labels_answer_for_what_the_backends_of_an_image_check(image) -> None:
    checked = {package for name in image.backends for package in backends()[name].packages}
    # the base decides which build of torch it brings; the launcher asks inside where a label is missing
    from_base = {"torch"} if image.name == "nemo" else checked if image.interpreter else set()
    assert checked - from_base <= set(image.packages)


def test_every_backend_has_an_image_and_the_usual_one_is_not_upstreams_own() -> None:
    assert [name for name in backends() if not images_of(name)] == []
    assert [image.name for image in images_of("trlx-deepspeed")] == ["trlx", "trlx-upstream"]
    assert images_of("nothing") == ()


def test_a_tag_names_image_and_version_and_is_one_that_engines_take() -> None:
    assert find_image("nemo").tag("0.1.0") == "suite-nemo:0.1.0"
    assert find_image("nemo").tag("0.1.0+source") == "suite-nemo:0.1.0-source"


def test_a_base_without_a_known_digest_is_named_by_its_tag_alone() -> None:
    assert BaseImage(reference="a:1", digest=None).pinned == "a:1"
    assert BaseImage(reference="a:1", digest="sha256:" + "0" * 64).pinned == "a:1@sha256:" + "0" * 64
    unknown = [name for name, base in bases().items() if base.digest is None]
    assert unknown == ["ngc-23.02", "nemo-rl-0.7.0"]


@pytest.mark.parametrize("digest", ["latest", "sha256:12", "sha512:" + "0" * 64, "sha256:" + "G" * 64])
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(ValidationError):
        BaseImage(reference="a:1", digest=digest)


def test_versions_come_back_from_labels_as_they_went_in() -> None:
    versions = {"torch": "2.13.0+cpu", "nemo_toolkit": "1.17.0"}
    assert stack_versions_of({**stack_labels(versions), "maintainer": "x"}) == versions
