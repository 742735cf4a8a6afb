"""Further options of sbatch that a user gives: those that would lose a run's result, or its place, are refused."""

from __future__ import annotations

#: long name -> who sets it instead; sbatch takes every beginning of a name that means one option
_OURS = {
    "output": "the results folder (--runs)",
    "error": "the results folder (--runs)",
    "input": "nothing: ranks read no input",
    "open-mode": "the results folder (--runs)",
    "chdir": "the results folder (--runs)",
    "array": "--array and --array-limit",
    "job-name": "the run's id",
    "nodes": "--nodes",
    "ntasks": "--nodes, --gpus-per-node and --starter",
    "ntasks-per-node": "--gpus-per-node and --starter",
    "time": "--timeout and --allowance",
    "wrap": "the run's own script",
    "parsable": "suite submit itself",
    "test-only": "--dry-run",
    "wait": "suite collect --wait",
    "requeue": "--requeue",
    "no-requeue": "--requeue",
    "help": "sbatch --help",
    "usage": "sbatch --usage",
    "version": "sbatch --version",
}
_SHORT = {
    "o": "output",
    "e": "error",
    "i": "input",
    "D": "chdir",
    "a": "array",
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "t": "time",
    "W": "wait",
    "h": "help",
    "V": "version",
}
#: short ones that take no value, so that others may follow at once
_FLAGS = "HIkOQsvuWhVX"


def refusal(option: str) -> str | None:
    """Why a further option of sbatch is not taken; None for one that is."""
    name = _long_name(option)
    if name is None:
        return None
    return f"--sbatch={option} would lose the run's result or change the run; {name} is set by {_OURS[name]}"


def _long_name(option: str) -> str | None:
    """The option of ``_OURS`` that is meant."""
    if option.startswith("--"):
        given = option[2:].partition("=")[0]
        if given in _OURS:
            return given
        return next((name for name in _OURS if len(given) > 1 and name.startswith(given)), None)
    for letter in option[1:] if option.startswith("-") else "":
        if letter in _SHORT:
            return _SHORT[letter]
        if letter not in _FLAGS:
            return None
    return None
