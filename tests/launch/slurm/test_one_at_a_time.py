"""Jobs are handed over so that runs do not measure each other: each waits for those before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster.hand_over import hand_over
from suite.conduct.cluster.to_do import prepare
from suite.launch.cluster.launcher import NodeSetup
from suite.launch.slurm.launcher import SlurmLauncher
from suite.launch.slurm.options import SlurmOptions
from tests.launch.slurm.jobs import manifest
from tests.launch.slurm.test_client import say


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins: sbatch counts jobs from 5 on and writes down how it was called."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    say(
        folder,
        "sbatch",
        f'cat >/dev/null; [ "$1" = --test-only ] && exit; echo "$*" >>{folder}/calls; '
        f"echo $(( 4 + $(wc -l <{folder}/calls) ))",
    )
    ahead = tmp_path / "runs" / ".submitted"
    say(
        folder,
        "squeue",
        f'case "$*" in *%F*) printf "3|{ahead}\\n3|{ahead}\\n4|/elsewhere\\n";; '
        "*) printf '5|RUNNING|N/A|N/A|n1|None|/\\n';; esac",
    )
    return folder


def handed_over(slurm: Path, root: Path, launcher: SlurmLauncher, repeats: int = 3) -> list[str]:
    """The options by which each job waits."""
    runs = [manifest(nodes=1, gpus=1, repeat=repeat, device="cpu") for repeat in range(1, repeats + 1)]
    for document in launcher.render(prepare(runs, launcher.scheduler(), launcher.site), root):
        hand_over(launcher, document, root)
    calls = (slurm / "calls").read_text().splitlines()
    return [next((word for word in call.split() if word.startswith("--dependency")), "") for call in calls]


def launcher_of(**options: Any) -> SlurmLauncher:
    return SlurmLauncher(SlurmOptions(**options), NodeSetup(python="python"))


def test_each_job_waits_for_the_one_before_and_the_first_for_what_is_under_way(slurm: Path, tmp_path: Path) -> None:
    waits = handed_over(slurm, tmp_path / "runs", launcher_of())
    assert waits == ["--dependency=afterany:3", "--dependency=afterany:5", "--dependency=afterany:6"]


def test_as_many_as_asked_for_are_under_way_at_once(slurm: Path, tmp_path: Path) -> None:
    waits = handed_over(slurm, tmp_path / "runs", launcher_of(at_once=2))
    assert waits == ["", "--dependency=afterany:3", "--dependency=afterany:5"]


def test_an_array_waits_too(slurm: Path, tmp_path: Path) -> None:
    assert handed_over(slurm, tmp_path / "runs", launcher_of(array=True)) == ["--dependency=afterany:3"]


def test_nothing_starts_before_a_first_run_has_ended_well(slurm: Path, tmp_path: Path) -> None:
    launcher = launcher_of()
    run = prepare([manifest(nodes=1, gpus=1, device="cpu")], launcher.scheduler(), launcher.site)[0]
    launcher.start_after([run.with_scheduler(job="3")])
    waits = handed_over(slurm, tmp_path / "runs", launcher, repeats=2)
    assert waits == ["--dependency=afterok:3", "--dependency=afterok:3,afterany:5"]
    assert "--kill-on-invalid-dep=yes" in (slurm / "calls").read_text()
