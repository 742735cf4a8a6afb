"""Slurm's commands as a script of ours: a queue of files. It knows jobs by id and by name, as long as it is let to."""

from pathlib import Path

from tests.programs import python_program

SCRIPT = """
import os, sys, time
here, name, words = {here!r}, os.path.basename(sys.argv[0]), sys.argv[1:]
jobs = os.path.join(here, "jobs")
told = dict(word.lstrip("-").partition("=")[::2] for word in words)

def said(file):
    try:
        return open(os.path.join(here, file)).read()
    except FileNotFoundError:
        return ""

def entries():
    for number in sorted(os.listdir(jobs), key=int):
        yield number, *open(os.path.join(jobs, number)).read().splitlines()

if name == "sbatch":
    script = sys.stdin.read()
    if "--test-only" in words:
        sys.exit(0)
    if said("refuse"):
        sys.stderr.write("sbatch: error: " + said("refuse") + chr(10))
        sys.exit(1)
    lines = dict(line[len("#SBATCH --"):].partition("=")[::2] for line in script.splitlines() if "#SBATCH --" in line)
    lines.update(told)
    for number in range(70, 1000):
        try:
            made = os.open(os.path.join(jobs, str(number)), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            break
        except FileExistsError:
            pass
    with os.fdopen(made, "w") as file:
        file.write(chr(10).join((lines["job-name"], lines["chdir"], lines["output"], lines.get("array", ""))))
    time.sleep(float(said("sleep") or 0))
    print(number)
elif name == "squeue":
    if said("down"):
        sys.stderr.write("squeue: error: Unable to contact slurm controller" + chr(10))
        sys.exit(1)
    for number, called, folder, output, *array in entries():
        last = int(array[0].partition("%")[0].partition("-")[2]) if array else -1
        for job in [number + "_" + str(index) for index in range(last + 1)] or [number]:
            if job == told.get("jobs", job) and called == told.get("name", called):
                print("|".join((job, "PENDING", "N/A", "N/A", "", "Priority", folder)))
elif name == "scancel":
    os.unlink(os.path.join(jobs, words[0]))
else:
    sys.stderr.write("Slurm accounting storage is disabled" + chr(10))
    sys.exit(1)
"""


def with_programs(folder: Path, texts: dict[str, str]) -> Path:
    """The folder with a program of bash by each name."""
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


class StandIn:
    """A folder with the commands. ``jobs``: by id, name, folder and output pattern of each, and the array's numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)
        for name in ("sbatch", "squeue", "scancel", "sacct"):
            python_program(folder / name, SCRIPT.format(here=str(folder)), "-S")

    @property
    def jobs(self) -> dict[str, list[str]]:
        return {path.name: path.read_text().splitlines() for path in (self.folder / "jobs").iterdir()}

    def output(self, job: str) -> Path:
        return Path(self.jobs[job][2].replace("%j", job).replace("%%", "%"))

    def say(self, file: str, text: str) -> None:
        """``sleep``: seconds of sbatch before it answers; ``refuse``: its message; ``down``: the queue is not shown."""
        (self.folder / file).write_text(text)

    def forget(self) -> None:
        """As Slurm does some minutes after a job has ended."""
        for path in (self.folder / "jobs").iterdir():
            path.unlink()
