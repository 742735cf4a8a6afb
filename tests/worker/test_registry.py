"""Backends by name in the worker: one line each, their packages prepared first, and what they import asked for."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from suite.backends.registry import own_backends
from suite.worker import registry
from suite.worker.registry import ENGINES, TRAINERS, backend_class
from suite.worker.trainers.base import Trainer
from tests.worker.written import write


def test_every_own_backend_of_the_driver_has_a_class_in_the_worker() -> None:
    drivers = own_backends()
    assert all(name == driver.name for name, driver in drivers.items())
    assert {driver.name for driver in drivers.values() if driver.kind == "engine"} == set(ENGINES)
    assert {driver.name for driver in drivers.values() if driver.kind == "trainer"} == set(TRAINERS)


@pytest.mark.parametrize("target", sorted({*ENGINES.values(), *TRAINERS.values()}))
def test_every_line_of_the_tables_names_a_class_that_is_there(target: str) -> None:
    module, _, attribute = target.partition(":")
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    assert attribute in {node.name for node in body if isinstance(node, ast.ClassDef)}


def test_a_package_is_prepared_before_its_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = "device = None\ndef prepare(device_type):\n    global device\n    device = device_type\n"
    engine = "import toy_stack\nclass Toy:\n    seen_at_import = toy_stack.device\n"
    write(tmp_path, {"toy_stack/__init__.py": prepare, "toy_stack/engine.py": engine})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ENGINES, "toy", "toy_stack.engine:Toy")
    try:
        assert backend_class("toy", "cuda").seen_at_import == "cuda"
    finally:
        for name in ("toy_stack", "toy_stack.engine"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("modules", "told"),
    [(("json",), None), (("json", "no_such_module"), "ModuleNotFoundError: No module named 'no_such_module'")],
)
def test_a_module_that_is_missing_is_named(modules, told, monkeypatch):
    class Some(Trainer):
        imports = modules
        run: Any = None

    monkeypatch.setattr(registry, "use_own_folder", lambda: None)
    monkeypatch.setattr(registry, "backend_class", lambda name, device_type: Some)
    assert registry.problem("verl", "cpu") == told
