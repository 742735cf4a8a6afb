"""Ranks that are started or bound otherwise are another measurement, and the report's command says how."""

from __future__ import annotations

from suite.launch.slurm.settings import SlurmSettings


def test_the_usual_way_needs_no_words() -> None:
    assert SlurmSettings().manner is None
    assert SlurmSettings(starter="srun").manner == "srun"
    assert SlurmSettings(hint="nomultithread").manner == "torchrun hint=nomultithread"
    bound = SlurmSettings(starter="srun", cpu_bind="cores", cpus_per_task=4)
    assert bound.manner == "srun cpus-per-task=4 cpu-bind=cores"
