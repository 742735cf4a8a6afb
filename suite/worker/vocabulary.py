"""The vocabulary of the embedding and output matrices: padded by one rule, so that engines multiply equal shapes."""

import math

#: Megatron pads to it by default (``--make-vocab-size-divisible-by``): whole tiles for tensor cores
VOCABULARY_MULTIPLE = 128


def padded_vocab(vocab: int, tensor: int = 1) -> int:
    """Rows of the matrices for ``vocab`` tokens: the next multiple of 128 that divides over ``tensor`` ranks.

    For every power of two up to 128 tensor ranks that is the same number. Padded rows stand for no token: an engine
    never samples them, leaves them out of the softmax, and does not count them.
    """
    multiple = VOCABULARY_MULTIPLE * tensor // math.gcd(VOCABULARY_MULTIPLE, tensor)
    return -(-vocab // multiple) * multiple
