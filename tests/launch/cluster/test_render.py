"""Quoting: for a shell, for sbatch's own lines, for YAML."""

import shlex

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from suite.launch.cluster.render import directive_word, render_shell, shell_word, to_json
from suite.spec.base import UsageError

text = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)


@settings(max_examples=40)
@given(text.filter(lambda value: "\0" not in value))
@example("{{ x }}")
@example("-rf")
def test_a_shell_word_is_one_word_and_the_same(value: str) -> None:
    assert shlex.split(shell_word(value)) == [value]


def test_what_a_word_cannot_carry_and_what_a_template_does_not_get_is_refused() -> None:
    for value in ("a\nb", "a\0b", "\x1b[0m", "\u2028"):
        with pytest.raises(UsageError, match="cannot carry"):
            directive_word(value)
    with pytest.raises(UsageError, match="NUL"):
        shell_word("a\0b")
    with pytest.raises(UndefinedError):
        render_shell("slurm/task.sh.j2")


@settings(max_examples=40)
@given(
    st.recursive(
        text | st.integers() | st.booleans() | st.none(), lambda part: st.lists(part) | st.dictionaries(text, part)
    )
)
@example("{{ x }}: - &a *a !tag | > % @ `")
@example("\x85\u2028\ufeff")
def test_a_value_in_yaml_is_the_same_value(value: object) -> None:
    assert yaml.safe_load(f"a: {to_json(value)}") == {"a": value}
