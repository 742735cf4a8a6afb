"""Options of sbatch that a user adds: none of them may lose the run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from suite.launch.slurm.further import refusal
from suite.launch.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--output=mine.out", "output"),
        ("--outp=mine.out", "output"),
        ("-omine.out", "output"),
        ("-o", "output"),
        ("-Homine", "output"),
        ("--error=e", "error"),
        ("--array=0-3", "array"),
        ("-a0-3", "array"),
        ("--chdir=/tmp", "chdir"),
        ("--job-name=x", "job-name"),
        ("--nodes=9", "nodes"),
        ("--wrap=true", "wrap"),
        ("--wait", "wait"),
        ("-W", "wait"),
        ("--open-mode=append", "open-mode"),
    ],
)
def test_what_would_lose_the_result_is_refused(option: str, name: str) -> None:
    why = refusal(option)
    assert why is not None and f"; {name} is set by " in why
    with pytest.raises(ValidationError, match="would lose the run's result"):
        SlurmSettings(options=(option,))


@pytest.mark.parametrize(
    "option",
    [
        *(
            "--exclude=n7",
            "--nodelist=n[1-2]",
            "--begin=now+1hour",
            "--switches=1",
            "--wait-all-nodes=1",
            "--comment=x",
        ),
        *("-xn7", "-H", "-pgpu", "--mail-type=END", "--exclusive=user", "--time-min=10"),
    ],
)
def test_what_only_says_where_or_when_is_taken(option: str) -> None:
    assert SlurmSettings(options=(option,)).options == (option,)


def test_what_is_no_option_is_named_as_such() -> None:
    with pytest.raises(ValidationError, match="is no option"):
        SlurmSettings(options=("exclude=n7",))
