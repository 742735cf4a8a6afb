"""Pipeline schedules: in which order a stage works through the passes of its micro batches, and what each waits for.

1F1B and its interleaved form are those of Narayanan et al., arXiv 2104.04473, section 2.2: a stage runs as many forward
passes as there are stages behind it, then one forward and one backward pass in turns, then the backward passes that are
left. Interleaved, each of p stages holds v chunks of the layers, and micro batches go through in groups of p.
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """One micro batch through one chunk of one stage's layers, forward or backward."""

    forward: bool
    micro: int
    chunk: int


def one_f_one_b(stage: int, stages: int, micros: int) -> list[Pass]:
    """The order of a stage's passes; every stage holds one chunk."""
    return _alternating(
        [Pass(True, micro, 0) for micro in range(micros)],
        [Pass(False, micro, 0) for micro in range(micros)],
        stages - stage - 1,
    )


def interleaved(stage: int, stages: int, chunks: int, micros: int) -> list[Pass]:
    """The same where each stage holds ``chunks`` of the layers. Raises ValueError where the stages do not divide the
    micro batches, which this schedule needs."""
    if micros % stages:
        raise ValueError(f"{micros} micro batches are no multiple of {stages} stages, which interleaving needs")
    order = [
        (group * stages + micro, chunk)
        for group in range(micros // stages)
        for chunk in range(chunks)
        for micro in range(stages)
    ]
    forward = [Pass(True, micro, chunk) for micro, chunk in order]
    backward = [Pass(False, micro, chunks - 1 - chunk) for micro, chunk in order]
    return _alternating(forward, backward, 2 * (stages - stage - 1) + (chunks - 1) * stages)


def schedule(stage: int, stages: int, chunks: int, micros: int) -> list[Pass]:
    """1F1B where every stage holds one chunk, else interleaved; one stage alone goes micro batch by micro batch."""
    if stages == 1:
        return [Pass(forward, micro, 0) for micro in range(micros) for forward in (True, False)]
    return one_f_one_b(stage, stages, micros) if chunks == 1 else interleaved(stage, stages, chunks, micros)


def _alternating(forward: list[Pass], backward: list[Pass], warm_up: int) -> list[Pass]:
    first = min(warm_up, len(forward))
    order = forward[:first]
    for ahead, behind in zip(forward[first:], backward, strict=False):
        order += [ahead, behind]
    return order + backward[len(forward) - first :]


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
