"""Lines of Slurm, its container plug-in and Apptainer that say why a run could not start or was ended."""

from __future__ import annotations

from suite.launch.patterns import Pattern

#: Texts of Slurm 22.05 to 24.11, pyxis 0.20, enroot 3.5 and Apptainer 1.3, as they print them.
SLURM_PATTERNS: tuple[Pattern, ...] = (
    Pattern("oom_host", "cause", r"[Dd]etected \d+ oom.kill event"),
    Pattern("oom_host", "cause", r"srun: error: \S+: tasks? \S+: Out Of Memory"),
    Pattern("image_pull", "cause", r"pyxis: failed to import docker image"),
    Pattern("image_pull", "cause", r"\[ERROR\] URL https?://\S+ returned error code: \d+"),
    Pattern("image_pull", "cause", r"FATAL: .*[Uu]nable to handle \S+ uri"),
    Pattern("image_missing", "cause", r"pyxis: error: .*[Nn]o such file or directory"),
    Pattern("image_missing", "cause", r"\[ERROR\] No such file or directory: \S+\.sqsh"),
    Pattern("image_missing", "cause", r"FATAL: .*could not open image"),
    Pattern("config", "cause", r"unrecognized option '--container-image"),
    Pattern("config", "cause", r"^env: .*: (No such file or directory|Permission denied)$", before_start=True),
    Pattern("config", "cause", r"line \d+: (apptainer|srun): command not found", before_start=True),
    Pattern("config", "cause", r"srun: error: Unable to create step for job \d+: "),
    Pattern("disk_full", "cause", r"mktemp: .*No space left on device"),
    Pattern("rank_lost", "cause", r"srun: error: Node failure on \S+"),
    Pattern("rank_lost", "consequence", r"srun: error: .*: Socket timed out on send/recv operation"),
)
