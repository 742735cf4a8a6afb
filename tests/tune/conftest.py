"""A whole study of the scripted worker, made once, and copies of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import suite
from tests.needs import require_optuna
from tests.scripted_suite import use_scripted_worker

#: Of DeepSpeed ZeRO-1 and a micro batch of 2 are faster than its own ZeRO-2 and 4; Megatron is at its best by itself.
SCRIPT = {
    "noise": 0.01,
    "run_noise": 0.002,
    "of": {
        "deepspeed": {"seconds": 0.02, "times": {"layout.zero_stage=1": 0.7, "work.micro_batch=2": 0.9}},
        "megatron": {"seconds": 0.018, "times": {"layout.distributed_optimizer=false": 1.3}},
    },
}
#: Few rows, so that a study ends when all were tried, however fast the machine is.
ASKED = (
    *("tune", "--size", "1M", "--budget", "1h", "--iterations", "9", "--starts", "2"),
    *("--zero", "2", "--zero", "1", "--knob", "zero_stage", "--knob", "micro_batch", "--knob", "distributed_optimizer"),
)

#: Two rows of one backend, for what happens around them.
FEW = (
    *("tune", "--size", "1M", "--backend", "deepspeed", "--budget", "1h", "--iterations", "3", "--starts", "2"),
    *("--zero", "2", "--zero", "1", "--knob", "zero_stage"),
)


@pytest.fixture(scope="module")
def scripted() -> Iterator[Callable[[dict], None]]:
    """Both engines are the scripted worker; called, it says what that does."""
    require_optuna()
    with pytest.MonkeyPatch.context() as patch:
        use_scripted_worker(patch.setattr)
        yield lambda script: patch.setenv("SUITE_SCRIPT", json.dumps(script))


@pytest.fixture(scope="module")
def made(scripted: Callable[[dict], None], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a study, and what the command printed."""
    scripted(SCRIPT)
    folder = tmp_path_factory.mktemp("tune") / "tuned"
    done = suite(*ASKED, "--runs", folder)
    assert done.exit_code == 0, done.output
    return folder, done.stdout


@pytest.fixture
def copy(made: tuple[Path, str], tmp_path: Path) -> Path:
    """Of the study, to be changed."""
    return Path(shutil.copytree(made[0], tmp_path / "tuned"))
