"""The rule by which engines pad the vocabulary."""

from __future__ import annotations

import pytest

from suite.worker.vocabulary import padded_vocab


@pytest.mark.parametrize("tensor", [1, 2, 4, 8, 16, 64, 128])
def test_gpt2s_vocabulary_has_the_same_rows_at_every_power_of_two(tensor: int) -> None:
    assert padded_vocab(50257, tensor) == 50304


def test_a_multiple_of_128_is_not_padded() -> None:
    assert [padded_vocab(vocab) for vocab in (128, 1024, 50304)] == [128, 1024, 50304]


@pytest.mark.parametrize("tensor", [3, 6, 12])
def test_rows_divide_over_the_tensor_ranks(tensor: int) -> None:
    rows = padded_vocab(50257, tensor)
    assert rows % tensor == 0
    assert rows % 128 == 0
    assert 0 <= rows - 50257 < 128 * tensor
