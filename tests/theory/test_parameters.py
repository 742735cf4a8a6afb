"""Parameter counts against the models that Hugging Face builds, and against the published ladder."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, sizes
from suite.theory.parameters import parameter_count, trainable_count
from tests.theory.shapes import ARCHITECTURES, shapes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def fields_of(size):
    """What Hugging Face calls the fields of a shape."""
    fields = {
        "num_hidden_layers": size.layers, "hidden_size": size.hidden, "num_attention_heads": size.heads,
        "max_position_embeddings": size.positions, "vocab_size": size.vocab,
        "tie_word_embeddings": size.tied_embeddings,
    }  # fmt: skip
    if size.architecture == "gpt2":
        return {**fields, "n_inner": size.ffn}
    if size.architecture == "opt":
        return {**fields, "ffn_dim": size.ffn, "word_embed_proj_dim": size.hidden, "pad_token_id": 0}
    fields |= {"num_key_value_heads": size.kv_heads, "head_dim": size.head_dim, "intermediate_size": size.ffn}
    if size.experts is not None:
        fields["num_experts_per_tok"] = size.experts.per_token
        mixtral = size.architecture == "mixtral"
        fields["num_local_experts" if mixtral else "num_experts"] = size.experts.count
        fields |= {} if mixtral else {"moe_intermediate_size": size.ffn}
    return fields


def build(size):
    """The Hugging Face model of a shape, on the meta device: parameters have shapes but no memory."""
    config = transformers.AutoConfig.for_model(size.architecture, **fields_of(size))
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def blocks_of(model):
    base = model.base_model
    return getattr(base, "h", None) or getattr(base, "decoder", base).layers


def elements(module):
    return sum(parameter.numel() for parameter in module.parameters())


@settings(max_examples=25)
@given(shapes(architectures=("gpt2", "opt"), grouped=False) | shapes(architectures=ARCHITECTURES[2:]))
def test_total_equals_the_instantiated_model(size):
    assert parameter_count(size).total == elements(build(size))


@pytest.mark.parametrize("name", ["8M", "125M", "1.3B-trlx", "66B", *sizes("modern"), *sizes("cpu-qwen")])
def test_ladder_sizes_equal_the_instantiated_model(name):
    size = find_size(name)
    model = build(size)
    count = parameter_count(size)
    assert count.total == elements(model)
    assert count.per_layer == elements(blocks_of(model)[0])


@settings(max_examples=25)
@given(size=shapes(grouped=False), data=st.data())
def test_trainable_count_equals_the_unfrozen_blocks_of_the_model(size, data):
    trainable = data.draw(st.integers(0, size.layers))
    model = build(size)
    blocks = blocks_of(model)
    unfrozen = sum(elements(block) for block in blocks[len(blocks) - trainable :])
    norm = size.hidden if size.rotary else 2 * size.hidden
    value_head = torch.nn.Sequential(torch.nn.Linear(size.hidden, 2 * size.hidden), torch.nn.Linear(2 * size.hidden, 1))
    assert trainable_count(size, trainable) == unfrozen + norm + elements(value_head)


def test_what_a_shape_cannot_have_is_refused():
    size = find_size("66B")
    with pytest.raises(ValueError, match="smaller than the 50257"):
        parameter_count(size, vocab=50000)
    for trainable in (-1, 65):
        with pytest.raises(ValueError, match="66B has 64"):
            trainable_count(size, trainable)


#: name -> parameters that huggingface.co shows for the repository's weights
PUBLISHED = {
    "Llama-3.2-1B": 1_235_814_400,
    "Qwen3-4B": 4_022_468_096,
    "deepseek-llm-7b": 6_910_365_696,
    "Qwen2.5-7B": 7_615_616_512,
    "Llama-3.1-8B": 8_030_261_248,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-32B": 32_762_123_264,
    "Llama-3.1-70B": 70_553_706_496,
}


def test_models_that_are_trained_now_hold_what_is_published():
    shapes_of = {**sizes("modern"), **sizes("published-7b")}
    assert {name: parameter_count(size).total for name, size in shapes_of.items()} == PUBLISHED
