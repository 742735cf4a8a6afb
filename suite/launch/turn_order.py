"""In which order rows take their turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

Row = TypeVar("Row")


def balanced_orders(rows: Sequence[Row], seed: str) -> Iterator[tuple[Row, ...]]:
    """Orders of ``rows`` without end, drawn block by block.

    Over a block every row has every place equally often and, within rounds, follows every other one equally often: a
    Latin square of Williams' design (E. J. Williams, Aust. J. Sci. Res. A 2, 149, 1949), with its mirror image where
    the number of rows is odd. A block has as many rounds as there are rows, or twice as many.
    """
    random, count = Random(seed), len(rows)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) % count for place in range(count)]
    while True:
        names = random.sample(rows, count)
        block = [[names[(step + shift) % count] for step in zigzag] for shift in range(count)]
        if count % 2:
            block += [order[::-1] for order in block]
        random.shuffle(block)
        yield from map(tuple, block)
