"""`suite doctor`: what this machine can run, and why not."""

from pathlib import Path

from suite.backends.registry import read_interpreters
from suite.cli.command import Python, command, option
from suite.cli.output import DONE, GATE_NOT_MET, answer
from suite.conduct.doctor.examine import commands_to_install, examine, print_diagnosis
from suite.spec.terminal import say
from suite.spec.width import terminal_columns


@command("print as JSON")
def doctor(
    python: Python = None,
    runs: Path = option("results folder to look at", Path("runs")),
    install: str | None = option("only print the commands that install this backend's stack", metavar="BACKEND"),
) -> int:
    """Look at interpreter, stacks, devices, memory, disk and container runtime. Exit 3 when no backend can run here."""
    if install is not None:
        say("\n".join(commands_to_install(install)))
        return DONE
    diagnosis = examine(read_interpreters(python or ()), runs)
    facts = {**diagnosis.model_dump(mode="json"), "able": diagnosis.able}
    answer(facts, lambda: print_diagnosis(diagnosis, terminal_columns()))
    return DONE if diagnosis.able else GATE_NOT_MET
