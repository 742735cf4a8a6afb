"""The backends by name: the suite's own, and those that other packages register."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from suite.backends import registry
from suite.backends.deepspeed import DeepSpeed
from suite.backends.registry import backends, find_backend
from suite.spec.base import UsageError


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'megatron'"):
        find_backend("megatorn")


class Toy(DeepSpeed):
    """What another package might bring."""

    name = "toy"
    packages = ("toy-stack",)


def registered(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint(name="toy", value=value, group=registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    forget()


def forget() -> None:
    registry.backends.cache_clear()
    registry._registered.cache_clear()


@pytest.fixture(autouse=True)
def _forget_registered_backends() -> Iterator[None]:
    yield
    forget()


def test_another_package_adds_a_backend_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, "tests.backends.test_registry:Toy")
    assert list(backends())[-1] == "toy"
    assert find_backend("toy").packages == ("toy-stack",)


@pytest.mark.parametrize("value", ["tests.no_such_module:Toy", "tests.backends.test_registry:NoSuchName"])
def test_a_registered_backend_that_does_not_load_is_told_in_one_line(monkeypatch, value):
    registered(monkeypatch, value)
    with pytest.raises(UsageError, match=r"'toy' of tests.*does not load") as refused:
        backends()
    assert "\n" not in str(refused.value)
