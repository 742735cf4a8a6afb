"""Pipeline schedules: in which order a stage works through the passes of its micro batches, and what each waits for.

1F1B and its interleaved form are those of Narayanan et al., arXiv 2104.04473, section 2.2: a stage runs as many forward
passes as there are stages behind it, then one forward and one backward pass in turns, then the backward passes that are
left. Interleaved, each of p stages holds v chunks of the layers, and micro batches go through in groups of p.
"""

from typing import NamedTuple


class Pass(NamedTuple):
    """One micro batch through one chunk of one stage's layers, forward or backward."""

    forward: bool
    micro: int
    chunk: int


def schedule(stage: int, stages: int, chunks: int, micros: int) -> list[Pass]:
    """The order of a stage's passes: 1F1B where every stage holds one chunk, else interleaved, whose groups are whole;
    one stage alone goes micro batch by micro batch."""
    if stages == 1:
        return [Pass(forward, micro, 0) for micro in range(micros) for forward in (True, False)]
    assert chunks == 1 or micros % stages == 0, "the planner interleaves whole groups"
    group, behind = (micros, 1) if chunks == 1 else (stages, 2)
    order = [
        (first + micro, chunk) for first in range(0, micros, group) for chunk in range(chunks) for micro in range(group)
    ]
    forward = [Pass(True, micro, chunk) for micro, chunk in order]
    backward = [Pass(False, micro, chunks - 1 - chunk) for micro, chunk in order]
    warm_up = min(len(forward), behind * (stages - stage - 1) + (chunks - 1) * stages)
    taking_turns = [one for pair in zip(forward[warm_up:], backward, strict=False) for one in pair]
    return forward[:warm_up] + taking_turns + backward[len(forward) - warm_up :]


def before(one: Pass, stage: int, stages: int, chunks: int) -> tuple[int, Pass] | None:
    """The pass, and its stage, whose result a pass needs; ``None`` for the first chunk's forward pass.

    Chunk c of stage s is part c p + s of the model. The last part's backward pass follows its own forward pass.
    """
    part = one.chunk * stages + stage
    if one.forward:
        wanted = part - 1
        return None if wanted < 0 else (wanted % stages, Pass(True, one.micro, wanted // stages))
    wanted = part + 1
    if wanted == stages * chunks:
        return stage, Pass(True, one.micro, one.chunk)
    return wanted % stages, Pass(False, one.micro, wanted // stages)
