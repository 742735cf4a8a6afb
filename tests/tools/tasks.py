"""python -m tests.tools.tasks [TASK ...]: compare, gate and buy by the commands of their pages alone (`make tasks`).

Each task has an empty folder and one shell, which knows nothing of this checkout but a clone of its last commit.
Commands run as they stand on the page, until the first that fails. What pages leave to their reader, and what takes
a GPU, stands here.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 1200
#: what would make an environment of this one show in a task's
NOT_THEIRS = ("MAKE", "MFLAGS", "PYTHON", "SUITE_", "VIRTUAL_ENV")
STEP = r"""
step() {
    local begin=$SECONDS code=0
    printf '\n$ %s\n' "$1"
    eval "$1" || code=$?
    printf '(%s s, exit code %s)\n' $((SECONDS - begin)) "$code"
    [[ " $2 " == *" $code "* ]] || exit 1
}
"""


class Part(NamedTuple):
    """Of a page, as far as a heading where the reader need not go on."""

    page: str
    until: str | None = None

    def text(self) -> str:
        whole = (ROOT / self.page).read_text(encoding="utf-8")
        read, found, _ = whole.partition(f"\n{self.until}\n")
        assert found or self.until is None, f"{self.page} has no {self.until}"
        return read


class Task(NamedTuple):
    """``page`` has the commands, ``further`` is read too. ``given``: shell lines that make what is the reader's own.

    ``instead``: what a command, found by a regular expression, is on a machine without GPUs.
    """

    name: str
    page: Part
    further: tuple[Part, ...] = ()
    given: str = ""
    instead: tuple[tuple[str, str], ...] = ()

    def words(self) -> int:
        parts = (Part("README.md", "## Why to trust it"), self.page, *self.further)
        return sum(len(re.findall(r"\S*\w\S*", part.text())) for part in parts)

    def commands(self) -> list[str]:
        """Of the page's blocks, with what stands ``instead``."""
        blocks = re.findall(r"^( *)```(?:sh)?\n(.*?)^\1```$", self.page.text(), re.DOTALL | re.MULTILINE)
        lines = "\n".join(textwrap.dedent(block) for _, block in blocks).replace("\\\n", " ").splitlines()
        commands = [line for line in lines if re.match(r"(suite|git|python3|pip) ", line)]
        for pattern, other in (("URL", shlex.quote(str(ROOT))), *self.instead):
            commands = [re.sub(pattern, other, command) for command in commands]
        return commands


#: The gate's fork: DeepSpeed's source as it was released, with a pause of 50 ms in each step of its engine.
FORK = """
python3 -m venv for-pip
for-pip/bin/pip download --quiet --no-deps --no-binary deepspeed deepspeed
mkdir DeepSpeed && tar xzf deepspeed-*.tar.gz -C DeepSpeed --strip-components 1
cd DeepSpeed/deepspeed/runtime
sed -i 's/^    def step(self, lr_kwargs=None):$/&\\n        __import__("time").sleep(0.05)/' engine.py
grep -q 'sleep(0.05)' engine.py
"""
#: Runs on GPUs are planned, and read in the bundles that one H200 left.
WITHOUT_GPUS = (
    (r"^suite run (?!.*--dry-run).*", r"\g<0> --dry-run"),
    (r"^suite run .*", r"\g<0> --device cuda"),
    (r"^suite report (smoke|runs)\b.*", r"mkdir -p \1 && cp -r docs/results/h200/runs/. \1 && \g<0>"),
)
TASKS = (
    Task("compare", Part("docs/how-to/gpu-node.md"), (Part("docs/reading-a-verdict.md"),), instead=WITHOUT_GPUS),
    Task("gate", Part("docs/how-to/in-my-ci.md", "## A history for the branch"), given=FORK),
    Task("buy", Part("docs/planner.md", "## Layouts on devices that you have")),
)
#: exit codes that are the answer of a command; of all others only 0 is
ANSWERS = {"suite compare": "0 3 4"}


def done(task: Task) -> bool:
    """Do it, and say how long that took: whether all went well."""
    steps = []
    for command in task.commands():
        answers = next((codes for start, codes in ANSWERS.items() if command.startswith(start)), "0")
        steps.append(f"step {shlex.quote(command)} {shlex.quote(answers)}")
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)}
    print(f"\n== {task.name}: {len(steps)} commands of {task.page.page}", flush=True)
    with tempfile.TemporaryDirectory(prefix="task-") as folder:
        environment = {**theirs, "SUITE_CACHE": f"{folder}/cache"}
        made = subprocess.run(["bash", "-ec", task.given], cwd=folder, env=environment)
        began = time.monotonic()
        script = "\n".join([STEP, *steps])
        ended = subprocess.run(["bash", "-c", script], cwd=folder, env=environment) if made.returncode == 0 else made
        minutes = (time.monotonic() - began) / 60
    words = task.words()
    is_well = ended.returncode == 0 and words <= MOST_WORDS
    print(f"== {task.name}: {words:,} words, {minutes:.1f} minutes, {'done' if is_well else 'FAILED'}", flush=True)
    return is_well


if __name__ == "__main__":
    chosen = [task for task in TASKS if not sys.argv[1:] or task.name in sys.argv[1:]]
    failed = [task.name for task in chosen if not done(task)]
    sys.exit(1 if failed else 0)
