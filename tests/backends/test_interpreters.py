"""Which interpreter holds a backend's stack."""

import sys
from pathlib import Path

import pytest

from suite.backends import registry
from suite.backends.registry import environment_python, read_interpreters
from suite.backends.trlx import TrlxDdp
from suite.spec.base import UsageError


class Foreign(TrlxDdp):
    name = "foreign"
    environment = "abroad"


@pytest.fixture(autouse=True)
def _a_backend_with_an_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {**registry.backends(), "foreign": Foreign()}
    monkeypatch.setattr(registry, "backends", lambda: known)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.delenv("SUITE_PYTHON", raising=False)
    monkeypatch.setattr("shutil.which", lambda path: None if "nowhere" in path else path)


def make_environment(tmp_path: Path) -> str:
    python = tmp_path / ".venv-abroad" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return str(python)


def test_without_a_word_each_takes_this_interpreter():
    asked = read_interpreters(())
    assert asked.of("deepspeed") == sys.executable
    assert asked.of("foreign") == sys.executable, "its environment is not there"


@pytest.mark.parametrize(
    ("texts", "foreign", "deepspeed"),
    [
        ((), "BESIDE", sys.executable),
        (("foreign=/a/python",), "/a/python", sys.executable),
        (("abroad=/a/python",), "/a/python", sys.executable),
        (("abroad=/a/python", "foreign=/b/python", "/c/python"), "/b/python", "/c/python"),
        (("/c/python",), "/c/python", "/c/python"),
        (("/with=sign/python",), "/with=sign/python", "/with=sign/python"),
    ],
)
def test_an_environment_beside_this_one_is_its_backends_alone_and_what_is_named_comes_first(
    tmp_path, monkeypatch, texts, foreign, deepspeed
):
    beside = make_environment(tmp_path)
    assert environment_python("abroad") == beside
    asked = read_interpreters(texts)
    assert (asked.of("foreign"), asked.of("deepspeed")) == (foreign.replace("BESIDE", beside), deepspeed)
    monkeypatch.setenv("SUITE_PYTHON", "/d/python")
    assert texts or read_interpreters(texts).of("foreign") == "/d/python"


def test_other_names_are_environments_of_every_backend_that_has_none_of_its_own() -> None:
    asked = read_interpreters(("before=/a", "after=/b", "megatron=/c"), compares=True)
    assert asked.seats("deepspeed") == {"deepspeed@before": "/a", "deepspeed@after": "/b"}
    assert asked.seats("megatron") == {"megatron": "/c"}
    for texts in (("before=/a",), ("before=/a", "a/b=/b"), ("before=/a", "a b=/b")):
        with pytest.raises(UsageError):
            read_interpreters(texts, compares=True)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("foreing=/a",), "there is no backend or environment 'foreing', did you mean 'foreign'?"),
        (("/a", "/b"), "--python '/b': one interpreter for all backends"),
        (("foreign=",), "or NAME=PATH, each once"),
        (
            ("foreign=/a", "foreign=/b"),
            "or NAME=PATH, each once",
        ),
        (("before=/a", "after=/b"), "there is no backend or environment 'before'"),
        (("foreign=/nowhere/python",), "there is no interpreter at /nowhere/python"),
    ],
)
def test_what_makes_no_sense_is_told(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_interpreters(texts)
    assert said in str(error.value)
