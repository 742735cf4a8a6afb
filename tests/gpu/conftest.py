"""The device of these tests, or one line that says why there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.launch.probe import local_devices

ROOT = Path(__file__).resolve().parents[2]
#: set by `make test-gpu`: a device that is not there fails a test that needs it
REQUIRED = "SUITE_TEST_GPU_REQUIRED"
NO_DEVICE = "no CUDA device: no NVIDIA driver shows one; `make test-gpu` is for a machine that has one"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is surely no device, one line a file says so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not os.environ.get(REQUIRED) and not local_devices():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=NO_DEVICE))


@pytest.fixture(scope="session")
def device() -> dict[str, Any]:
    """The device, as ``tests.gpu.look`` tells it from a process of its own, so that pytest holds no memory there.

    Without one the test is skipped, or fails where one is required.
    """
    done = subprocess.run((sys.executable, "-m", "tests.gpu.look"), cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])
