"""Options of sbatch that a user adds, none of which may lose the run, and what is told of how ranks are started."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from suite.launch.slurm.further import refusal
from suite.launch.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("output", ("--output=mine.out", "--outp=mine.out", "-omine.out", "-o", "-Homine")),
        *((name, (f"--{name}=x",)) for name in ("error", "chdir", "job-name", "nodes", "wrap", "open-mode")),
        ("array", ("--array=0-3", "-a0-3")),
        ("wait", ("--wait", "-W")),
    ],
)
def test_what_would_lose_the_result_is_refused(name: str, options: tuple[str, ...]) -> None:
    for option in options:
        why = refusal(option)
        assert why is not None and f"; {name} is set by " in why
        with pytest.raises(ValidationError, match="would lose the run's result"):
            SlurmSettings(options=(option,))


def test_what_only_says_where_or_when_is_taken_and_what_is_no_option_is_named_as_such() -> None:
    options = ("--nodelist=n[1-2]", "-xn7", "-pgpu", "-H", "--exclusive=user", "--wait-all-nodes=1", "--time-min=10")
    assert SlurmSettings(options=options).options == options
    with pytest.raises(ValidationError, match="is no option"):
        SlurmSettings(options=("exclude=n7",))


def test_ranks_that_are_started_or_bound_otherwise_are_told_as_another_measurement() -> None:
    assert SlurmSettings().manner is None
    assert SlurmSettings(starter="srun").manner == "srun"
    assert SlurmSettings(hint="nomultithread").manner == "torchrun hint=nomultithread"
    bound = SlurmSettings(starter="srun", cpu_bind="cores", cpus_per_task=4)
    assert bound.manner == "srun cpus-per-task=4 cpu-bind=cores"
