"""Slurm's commands as they answer, refuse, are missing or hang."""

from pathlib import Path

import pytest

from suite.launch.slurm import client
from suite.spec.base import UsageError
from tests.launch.slurm.stand_in import with_programs


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds all commands there are; none at first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def say(folder: Path, name: str, script: str) -> None:
    with_programs(folder, {name: script})


SUBMITTED = '[ "$1" = --test-only ] || echo'
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def test_where_there_is_no_slurm_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no Slurm here: sbatch cannot be run"):
        client.submit("#!/bin/bash\n")


def test_the_id_is_the_number_alone_although_clusters_have_names(stand_in: Path) -> None:
    say(stand_in, "sbatch", f'{SUBMITTED} "4711;north"')
    assert client.submit("#!/bin/bash\n") == "4711"


def test_a_job_does_not_inherit_the_allocation_that_it_is_submitted_from(stand_in, tmp_path, monkeypatch):
    say(stand_in, "sbatch", f"env | grep -o '^SLURM[^=]*' | sort >{tmp_path}/seen; echo 1")
    for name in ("SLURM_CONF", "SLURM_GPUS", "SLURM_MEM_PER_CPU"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    client.submit("#!/bin/bash\n")
    usual = {"SLURM_CONF", "SLURM_GPUS", "SLURM_MEM_PER_CPU", "SLURM_TIME_FORMAT"}
    assert usual <= set((tmp_path / "seen").read_text().split()), "outside of a job it is the user's own word"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    client.submit("#!/bin/bash\n")
    assert (tmp_path / "seen").read_text().split() == ["SLURM_CONF", "SLURM_TIME_FORMAT"]


def test_a_refusal_is_slurms_words_in_one_line_each_once(stand_in: Path) -> None:
    words = r"sbatch: error: bad thing\nsbatch: error: bad thing\nallocation failure: no\n"
    say(stand_in, "sbatch", f"printf '{words}' >&2; exit 1")
    with pytest.raises(UsageError, match=r"^Slurm refuses \(sbatch\): bad thing; allocation failure: no$"):
        client.submit("#!/bin/bash\n")


def test_a_controller_that_does_not_answer_is_not_waited_for(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ASK_SECONDS", 0.2)
    say(stand_in, "squeue", "exec sleep 600")
    with pytest.raises(UsageError, match="did not answer within"):
        client.find("1")


def test_a_line_of_squeue_is_read_field_by_field(stand_in: Path) -> None:
    say(stand_in, "squeue", "echo '12|RUNNING|1700000000|N/A|n[1-2]|None|/runs'")
    assert client.find("12") == ("12", "RUNNING", 1700000000.0, None, "n[1-2]", "", "/runs")
    say(stand_in, "squeue", "echo '12_3|PENDING|N/A|N/A||Resources|/a|b'")
    assert client.find("12") == ("12_3", "PENDING", None, None, "", "Resources", "/a|b")


def test_the_accounting_is_asked_where_the_queue_has_forgotten(stand_in: Path) -> None:
    say(stand_in, "squeue", FORGOTTEN)
    say(stand_in, "sacct", "echo '12|CANCELLED by 1000|1700000000|1700000060|n1|None'")
    found = client.find("12")
    assert found is not None and (found.state, found.ended) == ("CANCELLED", 1700000060.0)
    say(stand_in, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert client.find("12") is None


def test_a_job_is_found_by_name_only_in_its_own_folder(stand_in: Path) -> None:
    job = "PENDING|N/A|N/A||Priority"
    say(stand_in, "squeue", f"printf '1_0|{job}|/a\\n1_1|{job}|/a\\n2_0|{job}|/b\\n'")
    found = client.find_by_name("run", "/a", 0)
    assert found is not None and found.job == "1_0"
    assert client.find_by_name("run", "/c", None) is None


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "Priority", "Resources", "QOSMaxJobsPerUserLimit"])
def test_a_job_that_can_never_start_is_taken_back_and_one_that_waits_stays(stand_in: Path, reason: str) -> None:
    say(stand_in, "sbatch", f"{SUBMITTED} 7")
    say(stand_in, "squeue", f"echo '7|PENDING|N/A|N/A||{reason}|/'")
    say(stand_in, "scancel", f"echo $* >{stand_in}/cancelled")
    if reason != "PartitionTimeLimit":
        assert client.submit("#!/bin/bash\n") == "7"
        return
    with pytest.raises(UsageError, match=r"can never start this job \(PartitionTimeLimit\): compare --nodes"):
        client.submit("#!/bin/bash\n")
    assert (stand_in / "cancelled").read_text() == "7\n"
