"""What is told of an image file's stack: written from the image itself, found beside the file, refused when stale."""

import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.conduct.cluster.machine import ClusterMachine, cluster_machine, file_digest
from suite.images.inside import StackFile, beside, of_image, read_stack
from suite.spec.base import UsageError
from tests.command import suite
from tests.images.test_inside import runtime_of

#: what the image of trlx's NeMo trainer has, as its own interpreters would answer; torch is NVIDIA's own build
NEMO = {
    "torch": "1.14.0a0+44dac51c.nv23.02",
    "nemo-toolkit": "1.17.0",
    "apex": "0.1",
    "pytorch-lightning": "1.9.5",
    "transformers": "4.27.1",
}
STACK = {"python": "3.8.10", "packages": NEMO, "commits": {}}


def answering(stack: dict[str, Any] | None) -> Mock:
    """A runtime whose image tells this of its stack."""
    told = json.dumps({"user": 1000, "suite": "1", "driver": None, "stack": stack}).encode()
    return runtime_of([told], **{"inspect_image.return_value": {"Id": "sha256:" + "1" * 64}})


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "nemo.sqsh"
    path.write_bytes(b"an image")
    return path


def write(image: Path) -> StackFile:
    found = of_image(answering(STACK), "suite-nemo:1", file_digest(image))
    beside(image).write_text(found.text())
    return found


def machine(image: Path | str, **changes: Any) -> ClusterMachine:
    body = {"device": "cuda", "gpu": None, "python": "python", "image": str(image), "max_ranks": 8, "given": {}}
    return cluster_machine(**{**body, **changes})


def test_a_trainer_is_planned_by_the_file_beside_its_image(image: Path) -> None:
    with pytest.raises(UsageError, match="needs the version of torch"):
        machine(image).stacks(["trlx-nemo"])
    assert write(image) == read_stack(beside(image))
    found = machine(image).stacks(["trlx-nemo"])["trlx-nemo"]
    assert found == {"nemo_toolkit": "1.17.0", **{name: NEMO[name] for name in NEMO if name != "nemo-toolkit"}}
    typed = machine(image, given={"torch": "2"}).stacks(["trlx-nemo"])["trlx-nemo"]
    assert typed["torch"] == "2", "what is typed wins"


def test_what_is_missing_is_told_with_the_file_and_the_options_that_give_it(image: Path) -> None:
    with pytest.raises(UsageError) as refused:
        machine(image).stacks(["trlx-nemo"])
    told = str(refused.value)
    assert f"write {image}.stack.json with `suite images stack IMAGE --file {image}`" in told
    assert "give --stack torch=VERSION" in told and "install" not in told
    with pytest.raises(UsageError, match="--stack FILE with what `suite images stack IMAGE > FILE`"):
        machine("registry/suite-nemo:1").stacks(["trlx-nemo"])
    write(image)
    with pytest.raises(
        UsageError, match="nemo-rl needs the version of ray, nemo-rl, which the file of its stack does not tell"
    ):
        machine(image).stacks(["nemo-rl"])


def test_an_image_that_was_built_anew_is_not_planned_by_its_old_file(image: Path) -> None:
    write(image)
    image.write_bytes(b"another image")
    with pytest.raises(UsageError, match=r"was written for another image file .* write it anew"):
        machine(image)


def test_a_file_that_is_named_serves_any_image(image: Path, tmp_path: Path) -> None:
    write(image)
    named = machine("registry/suite-nemo:1", stack_file=beside(image))
    assert named.stacks(["trlx-nemo"])["trlx-nemo"]["torch"] == NEMO["torch"]
    with pytest.raises(UsageError, match="there is no file"):
        machine(image, stack_file=tmp_path / "none")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "suite/image-stack/2"}', '{"packages": {"torch": 2}}', "\x1b[31m{", "nul\0"]
)
def test_what_is_no_such_file_is_refused_in_one_line(image: Path, text: str) -> None:
    beside(image).write_text(text)
    with pytest.raises(UsageError, match=r"is no file of `suite images stack`") as refused:
        machine(image)
    assert str(refused.value).isprintable()


def test_an_image_without_a_stack_is_refused() -> None:
    with pytest.raises(UsageError, match="has no stack"):
        of_image(answering(None), "foreign:1", None)


def test_the_command_prints_it_or_writes_it_beside_the_file(image: Path) -> None:
    done = suite("images", "stack", "--python", sys.executable)
    printed = StackFile.model_validate_json(done.stdout)
    assert printed.file is None and "pytest" in printed.packages
    done = suite("images", "stack", "--python", sys.executable, "--file", image)
    assert re.search(rf"wrote {image}\.stack\.json: \d+ packages", done.output)
    assert read_stack(beside(image)).file == file_digest(image)
