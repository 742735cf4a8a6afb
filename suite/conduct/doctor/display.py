"""What `suite doctor` shows on a terminal."""

from __future__ import annotations

from suite.conduct.doctor.examine import Diagnosis


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """The checks line by line, then which sizes one device can hold at the least."""
    marks = {"ok": "ok     ", "warning": "warning", "missing": "missing"}
    for check in diagnosis.checks:
        print(f"{marks[check.state]}  {check.name:<20} {check.found}")
        if check.advice:
            print(f"{'':9}{'':20} -> {check.advice}")
    print("memory floor of one device (a lower bound; what does not fit needs more devices or offload):")
    for ladder in dict.fromkeys(fit.ladder for fit in diagnosis.fits):
        row = {fit.size: fit for fit in diagnosis.fits if fit.ladder == ladder}
        cells = [f"{name} {fit.floor_bytes / 2**30:.2f} GiB{'' if fit.fits else ' (no)'}" for name, fit in row.items()]
        print(f"  {ladder}: {', '.join(cells)}")
