"""Lines of Slurm, its container plug-in and Apptainer that say why a run could not start or was ended."""

from __future__ import annotations

from suite.launch.patterns import Pattern

#: As Slurm's, pyxis's, enroot's and Apptainer's sources and issue trackers have them; a real Slurm in the tests printed
#: those of srun and env.
SLURM_PATTERNS: tuple[Pattern, ...] = (
    Pattern("oom_host", "cause", r"[Dd]etected \d+ oom.kill event"),
    Pattern("oom_host", "cause", r"srun: error: \S+: tasks? \S+: Out Of Memory"),
    Pattern("image_missing", "cause", r"\[ERROR\] No such file or directory: \S+"),
    Pattern("image_missing", "cause", r"FATAL: .*could not open image"),
    Pattern("image_pull", "cause", r"pyxis: failed to import docker image"),
    Pattern("image_pull", "cause", r"\[ERROR\] URL https?://\S+ returned error code: \d+"),
    Pattern("image_pull", "cause", r"FATAL: .*(making image from oci registry|[Uu]nable to handle \S+ uri)"),
    Pattern("config", "cause", r"unrecognized option '--container-image"),
    Pattern("config", "cause", r"enroot-switchroot: failed to execute: "),
    Pattern("config", "cause", r"^env: .*: (No such file or directory|Permission denied)$", before_start=True),
    Pattern("config", "cause", r"line \d+: \S+: command not found", before_start=True),
    Pattern("config", "cause", r"srun: error: Unable to create step for job \d+: "),
    Pattern("rank_lost", "cause", r"srun: error: Node failure on \S+"),
)
