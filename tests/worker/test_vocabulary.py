"""The rule by which engines pad the vocabulary."""

from suite.worker.vocabulary import padded_vocab


def test_the_rows_are_the_next_multiple_of_128_that_the_tensor_ranks_divide() -> None:
    assert [padded_vocab(vocab) for vocab in (128, 1024, 50304)] == [128, 1024, 50304]
    assert {padded_vocab(50257, tensor) for tensor in (1, 2, 4, 8, 16, 64, 128)} == {50304}
    for tensor in (3, 6, 12):
        rows = padded_vocab(50257, tensor)
        assert rows % tensor == rows % 128 == 0
        assert 0 <= rows - 50257 < 128 * tensor
