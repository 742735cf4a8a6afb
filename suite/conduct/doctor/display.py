"""What `suite doctor` shows on a terminal."""

from __future__ import annotations

from suite.conduct.doctor.examine import Diagnosis
from suite.report.formatting.width import unbroken, wrapped
from suite.spec.terminal import say

_STATE_WIDTH = len("missing  ")


def print_diagnosis(diagnosis: Diagnosis, columns: int | None = None) -> None:
    """The checks line by line, then which sizes one device can hold at the least.

    ``columns``: what lines are broken at; ``None``: nowhere.
    """
    width = max(len(check.name) for check in diagnosis.checks) + 2
    for check in diagnosis.checks:
        lines = wrapped(check.found, columns, f"{check.state:<{_STATE_WIDTH}}{check.name:<{width}}")
        if check.advice:
            lines += wrapped(check.advice, columns, " " * _STATE_WIDTH + "-> ")
        say("\n".join(lines))
    floors = (
        "memory floor of one device (a lower bound, on the backend that needs least; what does not fit needs more "
        "devices or offload):"
    )
    lines = wrapped(floors, columns, rest="  ")
    for ladder in dict.fromkeys(fit.ladder for fit in diagnosis.fits):
        # the least of all backends comes last, and stays
        most_first = sorted(diagnosis.fits, key=lambda fit: -fit.floor_bytes)
        found = {fit.size: fit for fit in most_first if fit.ladder == ladder}
        row = {fit.size: found[fit.size] for fit in diagnosis.fits if fit.ladder == ladder}
        cells = [f"{name} {fit.floor_bytes / 2**30:.2f} GiB{'' if fit.fits else ' (no)'}" for name, fit in row.items()]
        lines += wrapped(unbroken(cells), columns, f"  {ladder}: ", "    ")
    say("\n".join(lines))
