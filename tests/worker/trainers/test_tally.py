"""Models that are made instead of fetched, and counts of a trainer's iteration: from its tensors, over all replicas."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from suite.spec.shape import Shape
from suite.theory.parameters import parameter_count
from suite.worker.rank import ConfigError
from suite.worker.trainers import drawn_model
from suite.worker.trainers.iteration import Tally
from tests.worker.tiny import tiny_body
from tests.worker.trainers.runs import ALONE, tiny_shape

pytestmark = pytest.mark.usefixtures("group_of_one")
PAD = 7


def tally(**more: Any) -> Tally:
    return Tally(tiny_body(), ALONE, **more)


def tokens(rows: int, columns: int, value: int = 1) -> torch.Tensor:
    return torch.full((rows, columns), value)


def test_padding_is_counted_apart_and_neither_it_nor_another_length_is_the_manifests_work():
    counted = tally()
    responses = tokens(4, 8)
    responses[0, 5:] = PAD
    counted.add_samples(tokens(4, 8), responses, PAD)
    assert (counted.prompt_tokens, counted.response_tokens, counted.padded_tokens) == (32, 29, 3)
    for prompt, response in ((7, 8), (8, 9), (8, 7)):
        with pytest.raises(ConfigError, match=r"8 \+ 8 tokens were forced"):
            counted.add_samples(tokens(4, prompt), tokens(4, response), PAD)
    counted.trained_tokens, counted.optimizer_steps = 64, 1
    with pytest.raises(ConfigError, match="response_tokens 32 wanted, 29 done; padded_tokens 0 wanted, 3 done"):
        counted.counts(60, 100)


@pytest.mark.parametrize(
    ("leader", "steps", "words"),
    [(True, 2, "optimizer_steps 1 wanted, 2 done"), (False, 1, "samples 4 wanted, 0 done")],
)
def test_a_step_too_many_and_a_rank_that_speaks_for_no_replica_are_told(leader, steps, words):
    counted = tally(leader=leader)
    counted.add_samples(tokens(4, 8), tokens(4, 8), PAD)
    counted.trained_tokens, counted.optimizer_steps = 64, steps
    with pytest.raises(ConfigError, match=words):
        counted.counts(60, 100)


def test_uneven_samples_are_counted_by_their_numbers_and_padding_by_what_training_reads():
    body = tiny_body()
    body["work"]["lengths"] = {"prompt": [8, 8, 8, 8], "response": [3, 8, 1, 5]}
    counted = Tally(body, ALONE)
    for number, length in enumerate((3, 8, 1, 5)):
        counted.add_sample(number, 8, length)
    mask = (torch.arange(8) < torch.tensor([[3], [8], [1], [5]])).long()
    counted.add_trained(tokens(4, 8), mask)
    counted.optimizer_steps = 1
    wanted = {"samples": 4, "response_tokens": 17, "trained_tokens": 49, "padded_tokens": 15}
    assert wanted.items() <= counted.counts(60, 100).items()
    with pytest.raises(ConfigError, match=r"sample 1 has 8 \+ 7 tokens, where 8 \+ 8 were forced"):
        Tally(body, ALONE).add_sample(1, 8, 7)


def shape(architecture: str = "qwen2", **changes: Any) -> dict[str, Any]:
    """Of a vocabulary with three special tokens behind a thousand others."""
    return tiny_shape(architecture, vocab=1003, **changes).model_dump(mode="json")


@pytest.mark.parametrize(
    "size",
    [shape("gpt2"), shape("llama"), shape("qwen2"), shape("qwen3", head_width=8)],
    ids=lambda s: s["architecture"],
)
def test_a_model_has_the_shapes_parameters_and_equal_seeds_give_equal_models(size):
    first, second, other = (drawn_model.draw_model(size, seed, torch.device("cpu")) for seed in (1, 1, 2))
    total, trainable = drawn_model.count_parameters(first.parameters())
    assert total == trainable == parameter_count(Shape.model_validate(size)).total
    assert drawn_model.count_on_paper(size) == (total, trainable)
    pairs = list(zip(first.parameters(), second.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two, _ in pairs)
    assert not all(torch.equal(one, three) for one, _, three in pairs)


def test_a_word_is_the_number_of_its_id(tmp_path):
    drawn_model.write_tokenizer(str(tmp_path), 1003)
    prompts = torch.tensor([[0, 999, 17], [1000, 1002, 5]])
    texts = drawn_model.as_text(prompts, 1003)
    assert texts == ["0 999 17", "0 2 5"], "ids of special tokens become ordinary ones"
    for tokenizer in (drawn_model.build_tokenizer(1003), PreTrainedTokenizerFast.from_pretrained(tmp_path)):
        ids = tokenizer(texts)["input_ids"]
        assert ids == [[0, 999, 17], [0, 2, 5]] == drawn_model.as_tokens(texts).tolist()
        assert tokenizer.batch_decode(ids) == texts
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (1000, 1002)


def test_special_tokens_may_lie_behind_the_vocabulary():
    model = drawn_model.draw_model(shape(), 1, torch.device("cpu"), has_special=False)
    assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (None, None)
    assert drawn_model.count_parameters(model.parameters()) == drawn_model.count_on_paper(shape())
    assert drawn_model.build_tokenizer(1003 + 3)(["1002"])["input_ids"] == [[1002]]
