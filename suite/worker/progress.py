"""How far a rank has come, for the failure event."""

from dataclasses import dataclass
from typing import Optional

SETUP = "setup"


@dataclass
class Progress:
    """The phase and iteration at work (iteration None before the first), and how many iterations are complete."""

    phase: str = SETUP
    iteration: Optional[int] = None
    completed_iterations: int = 0
