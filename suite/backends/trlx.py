"""What the backends around trlx share: the question whether an interpreter holds the trlx that is measured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import suite
from suite.spec.base import UsageError

ASK_SECONDS = 60.0


def trlx_errors(python: str, engine: bool = False) -> list[str]:
    """One line for each problem, with what to do; ``engine``: also that of Accelerate on DeepSpeed.

    Raises UsageError when the interpreter cannot be asked.
    """
    return [text for about, text in trlx_problems(python).items() if text and (engine or about != "engine")]


def trlx_problems(python: str) -> dict[str, str | None]:
    """What is wrong with the interpreter's ``trlx``, ``transformers``, ``imports`` and ``engine``; None: nothing.

    ``imports`` is what trlx imports and is missing, ``engine`` how Accelerate and DeepSpeed fit together.
    Imports none of them. Raises UsageError when the interpreter cannot be asked.
    """
    root = str(Path(next(iter(suite.__path__))).resolve().parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        answer = subprocess.run(
            (python, "-m", "suite.worker.trlx_source"),
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
            check=True,
        )
        return json.loads(answer.stdout)
    except OSError as error:
        raise UsageError(f"no interpreter at {python}: {error.strerror}; name one with --python") from error
    except (subprocess.SubprocessError, ValueError) as error:
        raise UsageError(f"{python} cannot tell which trlx it has; name another interpreter with --python") from error
