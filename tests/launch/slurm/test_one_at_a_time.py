"""Jobs are handed over so that runs do not measure each other: each waits for those before it."""

from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster.hand_over import hand_over, prepare
from suite.launch.cluster.launcher import NodeSetup
from suite.launch.slurm.launcher import SlurmLauncher
from suite.launch.slurm.settings import SlurmSettings
from tests.launch.slurm.jobs import manifest
from tests.launch.slurm.stand_in import with_programs


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins: sbatch counts jobs from 5 on and writes down how it was called."""
    folder, ahead = tmp_path / "tools", tmp_path / "runs" / ".submitted"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    calls, queue = f"{folder}/calls", rf"3|{ahead}\n3|{ahead}\n4|/elsewhere\n"
    sbatch = f'cat >/dev/null; [ "$1" = --test-only ] && exit; echo "$*" >>{calls}; echo $(( 4 + $(wc -l <{calls}) ))'
    squeue = f"""case "$*" in *%F*) printf "{queue}";; *) echo '5|RUNNING|N/A|N/A|n1|None|/';; esac"""
    return with_programs(folder, {"sbatch": sbatch, "squeue": squeue})


def handed_over(slurm: Path, root: Path, launcher: SlurmLauncher, repeats: int = 3) -> list[str]:
    """The options by which each job waits."""
    runs = [manifest(nodes=1, gpus=1, repeat=repeat, device="cpu") for repeat in range(1, repeats + 1)]
    for document in launcher.render(prepare(runs, launcher), root):
        hand_over(launcher, document, root)
    calls = (slurm / "calls").read_text().splitlines()
    return [call.partition("--dependency=")[2].partition(" ")[0] for call in calls]


def launcher_of(**options: Any) -> SlurmLauncher:
    return SlurmLauncher(SlurmSettings(**options), NodeSetup(python="python"))


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({}, ["afterany:3", "afterany:5", "afterany:6"]),
        ({"at_once": 2}, ["", "afterany:3", "afterany:5"]),
        ({"array": True}, ["afterany:3"]),
    ],
    ids=["one at a time, after what is under way", "two at once", "an array"],
)
def test_jobs_wait_for_those_before(slurm: Path, tmp_path: Path, options: dict[str, Any], waits: list[str]) -> None:
    assert handed_over(slurm, tmp_path / "runs", launcher_of(**options)) == waits


def test_nothing_starts_before_a_first_run_has_ended_well(slurm: Path, tmp_path: Path) -> None:
    launcher = launcher_of()
    run = prepare([manifest(nodes=1, gpus=1, device="cpu")], launcher)[0]
    launcher.start_after([run.with_scheduler(job="3")])
    waits = handed_over(slurm, tmp_path / "runs", launcher, repeats=2)
    assert waits == ["afterok:3", "afterok:3,afterany:5"]
    assert "--kill-on-invalid-dep=yes" in (slurm / "calls").read_text()
