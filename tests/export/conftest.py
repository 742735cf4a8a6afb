"""Results of every kind of run, made once for a module."""

from pathlib import Path

import pytest

from tests.export.made import results


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("results"))
