from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suite.spec.names import nearest, repeated


@given(st.lists(st.text(max_size=2)))
def test_the_first_name_that_comes_again_is_found(names: list[str]) -> None:
    again = [name for index, name in enumerate(names) if name in names[:index]]
    assert repeated(names) == (again[0] if again else None)


def test_a_misspelt_name_is_near_those_it_may_mean() -> None:
    assert nearest("deepsped", ("deepspeed", "megatron")) == ", did you mean 'deepspeed'?"
    assert nearest("zzz", ("deepspeed", "megatron")) == ""
