"""Algorithms as a user names them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from suite.spec.algorithms import Algorithm, declarations
from suite.spec.base import UsageError


def algorithm(text: str) -> Algorithm:
    return Algorithm.model_validate(text)


def test_ppo_comes_first_and_every_declaration_is_whole() -> None:
    assert next(iter(declarations())) == "ppo"
    for declared in declarations().values():
        assert declared.summary and "arXiv" in declared.source
        assert declared.reference is None or declared.reference in declared.options
        assert declared.group >= declared.least_group
        texts = [name for name, value in declared.options.items() if isinstance(value, str)]
        assert all(declared.options[name] in declared.choices[name] for name in texts)
        assert set(declared.most) <= set(declared.options)


def test_options_are_read_in_the_type_of_their_default() -> None:
    made = algorithm(" GRPO:kl-coefficient=1e-3, scale=No,loss=sequence")
    assert made.name == "grpo"
    asked = {"kl_coefficient": 0.001, "scale": False, "loss": "sequence"}
    assert made.options == {**asked, "clip_low": 0.2, "clip_high": 0.2}
    assert made.text() == "grpo:kl_coefficient=0.001,scale=False,loss=sequence"
    assert algorithm(made.text()) == made
    assert hash(algorithm(made.text())) == hash(made)
    assert algorithm("grpo:clip_low=0.2") == algorithm("grpo"), "an option at its default is the algorithm itself"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope", "there is no algorithm 'nope'; known are ppo, "),
        ("gpro", "did you mean 'grpo'"),
        ("grpo:foo=1", "grpo has no option 'foo'; its options are kl_coefficient"),
        ("ppo:clip_low=0.1", "ppo has no option 'clip_low'; its options are none"),
        ("grpo:clip_low", "is not one option=value"),
        ("grpo:clip_low=0.1,clip-low=0.2", "each once"),
        ("grpo:clip_low=1.5", "from 0 to 1"),
        ("grpo:kl_coefficient=nan", "a number from 0"),
        ("grpo:scale=maybe", "yes or no"),
        ("grpo:loss=words", "one of token, sequence"),
    ],
)
def test_what_no_algorithm_has_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises((UsageError, ValidationError), match=said) as caught:
        algorithm(text)
    assert isinstance(caught.value, ValidationError) or "\n" not in str(caught.value)
    with pytest.raises((UsageError, ValidationError), match="no option 'foo'"):
        Algorithm(name="grpo", options={"foo": 1})  # as a file has them
