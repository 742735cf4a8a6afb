"""What a workload makes of algorithm, group and lengths, what does not fit together; algorithms as users name them."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from suite.spec.algorithms import Algorithm
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import work_hash
from suite.spec.resolve import layout_errors, resolve_work
from suite.spec.workload import PseudoReward, Workload

UNEVEN = "lognormal:mean=6,sigma=0.6,cap=8"


def workload(**changes: Any) -> Workload:
    return find_workload("cpu").changed(changes)


def test_a_workload_without_the_new_fields_is_written_as_it_was() -> None:
    new = {"algorithm", "group", "lengths", "prompt_lengths", "lora_rank", "critic"}
    for name, fields in (("cpu", set()), ("trlx-ds-chat", set()), ("ds-chat-step3", {"critic"})):
        assert new & set(find_workload(name).model_dump(mode="json")) == fields
    assert "lengths" not in resolve_work(find_size("1M"), workload(), Layout(devices_per_node=1, data=1)).model_dump()


def test_another_algorithm_brings_its_group_its_reward_and_no_values() -> None:
    grpo = workload(algorithm="grpo", rollouts=16)
    assert (grpo.group, grpo.reward, grpo.uses_values, grpo.uses_reference) == (8, PseudoReward(), False, False)
    assert workload(algorithm="rloo").uses_reference
    assert workload(algorithm="reinforce++").group == 1
    assert grpo.changed({"algorithm": "ppo"}) == workload(rollouts=16)
    groups = [workload(algorithm="grpo", rollouts=rollouts).group for rollouts in (4, 12, 24)]
    assert groups == [4, 6, 8], "smaller where the usual one would not divide a device's rollouts"
    assert workload(algorithm="grpo", rollouts=4, group=2).group == 2


def test_the_longest_lengths_follow_from_their_distribution_and_fixed_ones_are_a_number() -> None:
    made = workload(lengths=UNEVEN, prompt_lengths="lognormal:mean=3,sigma=0.2,cap=5")
    assert (made.new_tokens, made.prompt_tokens, made.uneven) == (8, 5, True)
    assert not made.changed({"new_tokens": 16, "prompt_tokens": 4}).uneven
    assert made.changed({"lengths": "lognormal:mean=6,sigma=0.6,cap=20"}).new_tokens == 20
    assert Workload.model_validate(json.loads(made.model_dump_json())) == made
    fixed, plain = workload(lengths="fixed:24"), workload(new_tokens=24)
    assert fixed == plain, "the same work as the number itself"
    assert work_hash(find_size("1M"), fixed, 2, 0) == work_hash(find_size("1M"), plain, 2, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": "hydra"}, "trainable_layers must be given"),
        ({"algorithm": "grpo", "group": 1}, "--group is at least 2"),
        ({"lengths": UNEVEN, "new_tokens": 32}, "new_tokens 32 is not the longest of lengths, lognormal:mean=6"),
        ({"prompt_lengths": UNEVEN + ",group-correlation=0.5"}, "--prompt-lengths has no group-correlation"),
        ({"lengths": UNEVEN + ",group-correlation=0.5"}, "--group is at least 2 for it"),
        ({"algorithm": "grpo", "critic": {"layers": 1, "hidden": 8, "ffn": 8, "heads": 1}}, "critic must be left out"),
        ({"critic": {"layers": 1, "hidden": 8, "ffn": 8, "heads": 3}}, "hidden 8 is not divisible by 3 heads"),
        ({"lora_rank": 8, "trainable_layers": 2}, "every block, so trainable_layers must be left out"),
        ({"lora_rank": 0}, "greater than 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        workload(**changes)


def test_equal_work_counts_algorithm_group_lengths_and_their_seed() -> None:
    size = find_size("1M")
    made = [
        workload(),
        workload(group=4),
        workload(algorithm="rloo"),
        workload(algorithm="rloo:kl_coefficient=0.1"),
        workload(algorithm="grpo"),
        workload(lengths=UNEVEN),
        workload(lengths=UNEVEN + ",at-cap=0.1"),
        workload(prompt_lengths=UNEVEN),
    ]
    hashes = [work_hash(size, each, 2, 1234) for each in made]
    assert len(set(hashes)) == len(made)
    assert work_hash(size, made[0], 2, 0) == hashes[0], "even work has no seed"
    assert work_hash(size, made[5], 2, 0) != hashes[5]


def test_lengths_are_the_samples_own_on_every_layout() -> None:
    size, made = find_size("1M"), workload(lengths=UNEVEN, prompt_lengths=UNEVEN, algorithm="grpo", scaling="strong")
    made = made.changed({"rollouts": 16})
    works = [resolve_work(size, made, Layout(devices_per_node=ranks, data=ranks), seed=5) for ranks in (1, 2, 4)]
    assert len({work.lengths for work in works}) == 1
    prompts = works[0].lengths.prompt
    assert len(prompts) == 16
    assert all(len(set(prompts[first : first + made.group])) == 1 for first in range(0, 16, made.group))
    assert resolve_work(size, made, Layout(devices_per_node=1, data=1), seed=6).lengths != works[0].lengths


def test_groups_that_do_not_divide_and_lengths_beyond_positions_name_their_options() -> None:
    size, layout = find_size("1M"), Layout(devices_per_node=1, data=1)
    (error,) = layout_errors(size, workload(algorithm="grpo", group=3), layout)
    assert error == "4 rollouts do not divide into groups of 3: other --rollouts or --group"
    (error,) = layout_errors(size, workload(lengths="lognormal:mean=6,sigma=0.6,cap=800"), layout)
    assert error.endswith("exceed the 128 positions of 1M: choose a lower cap with --lengths (at most 800)")
    four = Layout(devices_per_node=4, data=4)
    assert layout_errors(size, workload(algorithm="grpo", rollouts=2, group=4), four) == [], "it lies across replicas"


def algorithm(text: str) -> Algorithm:
    return Algorithm.model_validate(text)


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
