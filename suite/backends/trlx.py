"""What the backends around trlx share: the question whether an interpreter holds the trlx that is measured."""

import re

from suite.launch.probe import ask_worker

#: trlx's own copies of model code, of which its hydra reference is made: 4.35 breaks OPT's, 4.36 Llama's, 4.48 GPT-2's
#: (without a word)
_FIRST_WITHOUT_BRANCHES = (4, 35)
TESTED_TRANSFORMERS = "4.33.3"


def branch_error(transformers: str | None) -> str | None:
    """Why trlx's own model code does not run on this transformers, with what to do; None where it does."""
    numbers = re.match(r"(\d+)\.(\d+)", transformers or "")
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _FIRST_WITHOUT_BRANCHES:
        return None
    return f"transformers {transformers} is too new for trlx's own model code; install {TESTED_TRANSFORMERS}"


def trlx_errors(python: str) -> list[str]:
    """What is wrong with the interpreter's ``trlx`` and ``transformers``, of which it imports neither: a line each,
    with what to do. Raises UsageError when the interpreter cannot be asked."""
    found: dict[str, str | None] = ask_worker(python, "suite.worker.trainers.trlx.source")
    return [text for text in found.values() if text]
