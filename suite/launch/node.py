"""``python -m suite.launch.node ... -- PROGRAM ARGUMENT...``: the ranks of one node, where they run.

A container starts this program. It runs the ranks by the local launcher, repeats rank 0's events on standard output,
and says last how the job ended, as an event of the kind ``outcome``.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite.launch.job import Job, JobLimits
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Failure, Outcome
from suite.launch.processes import limit_number
from suite.launch.stream import EVENT_PREFIX
from suite.launch.watching import TURNS
from suite.spec.base import UsageError

OUTCOME_KIND = "outcome"
UNLIMITED = -1
_EXIT_CODES = {"ok": 0, "failed": 1, "interrupted": 130}


def node_arguments(job: Job, folder: str, ulimits: dict[str, int]) -> tuple[str, ...]:
    """What follows ``-m suite.launch.node``. ``folder``: the bundle as the node sees it. ``ulimits``: what must
    hold."""
    limits = job.limits
    return (
        *("--name", job.name, "--ranks", str(job.ranks_per_node), "--folder", folder),
        *("--run-seconds", repr(limits.run_seconds), "--silence-seconds", repr(limits.silence_seconds)),
        *(f"--expect={name}={value}" for name, value in sorted(ulimits.items())),
        *("--", *job.argv),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node's ranks to their end. Exit code 0 ok, 1 failed, 130 interrupted."""
    options = _parse(arguments)
    problems = [line for name, value in options.expect for line in lower_limit(name, value)]
    outcome = _refused(options.ranks, *problems) if problems else _run(options)
    say({"kind": OUTCOME_KIND, **outcome.model_dump(mode="json")})
    return _EXIT_CODES[outcome.status]


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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="suite.launch.node", description="The ranks of one node.")
    parser.add_argument("--name", required=True, help="run id")
    parser.add_argument("--ranks", type=int, required=True, help="how many to start here")
    parser.add_argument("--folder", type=Path, required=True, help="the run's bundle, which holds events/ and logs/")
    parser.add_argument("--run-seconds", type=float, required=True)
    parser.add_argument("--silence-seconds", type=float, required=True)
    parser.add_argument("--expect", type=_expected, action="append", default=[], metavar="LIMIT=VALUE")
    parser.add_argument("argv", nargs="+", help="command of one rank")
    return parser.parse_args(arguments)


def _expected(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    limit_number(name)
    return name, int(value)


def _run(options: argparse.Namespace) -> Outcome:
    job = Job(
        name=options.name,
        argv=tuple(options.argv),
        ranks_per_node=options.ranks,
        env={name: value for name, value in os.environ.items() if name == TURNS},
        limits=JobLimits(run_seconds=options.run_seconds, silence_seconds=options.silence_seconds),
    )
    try:
        return LocalLauncher().run(job, options.folder, say)
    except (UsageError, OSError) as error:
        return _refused(options.ranks, str(error))


def _refused(ranks: int, *evidence: str) -> Outcome:
    return Outcome(
        status="failed",
        exit_codes=dict.fromkeys(range(ranks)),
        elapsed_seconds=0.0,
        failure=Failure(kind="config", evidence=evidence),
    )


if __name__ == "__main__":
    sys.exit(main())
