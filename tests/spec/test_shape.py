"""A shape divides, and its vocabulary is padded up to a multiple."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.spec.catalogue import find_size


@given(multiple=st.integers(1, 10_000), vocab=st.integers(1, 100_000))
def test_the_padded_vocabulary_is_the_next_multiple(multiple, vocab):
    padded = find_size("1M").model_copy(update={"vocab": vocab}).padded_vocab(multiple)
    assert padded % multiple == 0
    assert vocab <= padded < vocab + multiple


def test_megatron_pads_gpt2s_vocabulary_as_the_script_does():
    assert [find_size("66B").padded_vocab(128 * tensor) for tensor in (1, 2, 4, 8)] == [50304, 50432, 50688, 51200]


@pytest.mark.parametrize("changes", [{"heads": 5, "kv_heads": 5}, {"kv_heads": 3}, {"layers": 0}, {"hiden": 3}])
def test_what_does_not_divide_or_is_misspelt_is_refused(changes):
    with pytest.raises(ValidationError):
        type(find_size("1M")).model_validate({**find_size("1M").model_dump(), **changes})
