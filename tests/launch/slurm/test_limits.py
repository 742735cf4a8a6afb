"""What a user is told of a job that can never start."""

from __future__ import annotations

import math

import pytest

from suite.launch.slurm.limits import seconds, why_never

JOB = "JobId=7 JobName=run Partition=gpu NumNodes=4 NumCPUs=8 TimeLimit=02:01:00 TRES=cpu=8,node=4"
PARTITION = "PartitionName=gpu AllowGroups=ALL MaxNodes={nodes} MaxTime={time} State=UP TotalCPUs=16 TotalNodes=8"


@pytest.mark.parametrize(
    ("nodes", "time", "words"),
    [
        ("UNLIMITED", "00:30:00", "TimeLimit=02:01:00 is more than MaxTime=00:30:00 of partition gpu"),
        ("2", "UNLIMITED", "NumNodes=4 is more than MaxNodes=2 of partition gpu"),
        ("2", "1:00", "TimeLimit=02:01:00 is more than MaxTime=1:00 and NumNodes=4 is more than MaxNodes=2"),
        ("UNLIMITED", "1-00:00:00", "partition gpu gives, which has MaxNodes=UNLIMITED, TotalNodes=8"),
    ],
)
def test_the_limit_that_is_exceeded_is_named(nodes: str, time: str, words: str) -> None:
    text = why_never("PartitionConfig", JOB, PARTITION.format(nodes=nodes, time=time))
    assert words in text and "(PartitionConfig)" in text and "--timeout" in text


def test_where_scontrol_tells_nothing_the_user_is_sent_to_it() -> None:
    assert "scontrol show partition" in why_never("PartitionConfig", "", "")


def test_times_as_slurm_writes_them() -> None:
    texts = {"00:30:00": 1800, "1:30": 90, "2-01:00:00": 49 * 3600, "UNLIMITED": math.inf}
    for text, value in (texts | dict.fromkeys(("", "Partition_Limit", "1:2:3:4"), 0)).items():
        assert seconds(text) == value
