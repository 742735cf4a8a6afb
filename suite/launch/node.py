"""``python -m suite.launch.node ASKED``: the ranks of one node, where they run; what is asked for is a JSON object.

A container starts this program. It runs the ranks by the local launcher, repeats rank 0's events on standard output,
and says last how the job ended, as an event of the kind ``outcome``.
"""

import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite.launch.job import Job
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Failure, Outcome
from suite.launch.processes import limit_number
from suite.launch.stream import EVENT_PREFIX
from suite.launch.watching import TURNS
from suite.spec.base import UsageError

OUTCOME_KIND = "outcome"
UNLIMITED = -1


def node_arguments(job: Job, folder: str, ulimits: dict[str, int]) -> tuple[str, ...]:
    """What follows ``-m suite.launch.node``. ``folder``: the bundle as the node sees it. ``ulimits``: what must hold,
    beside the limit of memory, which is the container's."""
    limits = job.limits.model_dump(exclude={"memory_bytes"})
    own = {"name": job.name, "argv": job.argv, "ranks_per_node": job.ranks_per_node, "limits": limits}
    return (json.dumps({"job": own, "folder": folder, "ulimits": ulimits}),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node's ranks to their end. Exit code 0 ok, 1 failed, 130 interrupted."""
    asked = json.loads((arguments or sys.argv[1:])[0])
    env = {name: value for name, value in os.environ.items() if name == TURNS}
    job = Job.model_validate({**asked["job"], "env": env})
    problems = [line for name, value in sorted(asked["ulimits"].items()) for line in lower_limit(name, value)]
    if not problems:
        try:
            outcome = LocalLauncher().run(job, Path(asked["folder"]), say)
        except (UsageError, OSError) as error:
            problems = [str(error)]
    if problems:
        failure, codes = Failure(kind="config", evidence=tuple(problems)), dict.fromkeys(range(job.ranks))
        outcome = Outcome(status="failed", exit_codes=codes, elapsed_seconds=0.0, failure=failure)
    say({"kind": OUTCOME_KIND, **outcome.model_dump(mode="json")})
    return {"ok": 0, "failed": 1, "interrupted": 130}[outcome.status]


def say(event: dict[str, Any]) -> None:
    """Write one event as one line on standard output. Nobody need listen: the ranks' files hold the events too."""
    line = EVENT_PREFIX + json.dumps(event, separators=(",", ":")).encode() + b"\n"
    try:
        while line:
            line = line[os.write(1, line) :]
    except BrokenPipeError:
        return


def lower_limit(name: str, wanted: int) -> list[str]:
    """One line when this process has a lower limit than ``wanted`` (``UNLIMITED``: none at all); else nothing."""
    soft, _ = resource.getrlimit(limit_number(name))
    if soft == resource.RLIM_INFINITY or (wanted != UNLIMITED and soft >= wanted):
        return []
    return [f"the limit {name} is {soft} here, {'unlimited' if wanted == UNLIMITED else wanted} was asked for"]


if __name__ == "__main__":
    sys.exit(main())
