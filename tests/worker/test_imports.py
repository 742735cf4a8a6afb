"""What a run imports is asked for before one."""

from typing import Any

import pytest

from suite.worker import imports
from suite.worker.trainers.base import Trainer


@pytest.mark.parametrize(
    ("modules", "told"),
    [(("json",), None), (("json", "no_such_module"), "ModuleNotFoundError: No module named 'no_such_module'")],
)
def test_a_module_that_is_missing_is_named(modules, told, monkeypatch):
    class Some(Trainer):
        imports = modules
        run: Any = None

    monkeypatch.setattr(imports, "use_own_folder", lambda: None)
    monkeypatch.setattr(imports, "trainer_class", lambda name, device_type: Some)
    assert imports.problem("verl", "cpu") == told
