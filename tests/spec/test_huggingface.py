"""config.json of the supported families becomes the shape of the model that it builds; others are refused."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.spec.base import UsageError
from suite.spec.catalogue import load_shape
from suite.theory.parameters import parameter_count

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 100, "n_positions": 64}
OPT = {
    "model_type": "opt", "num_hidden_layers": 2, "hidden_size": 32, "ffn_dim": 128, "num_attention_heads": 4,
    "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 88, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip


def written(folder, config):
    (folder / "tiny").mkdir(exist_ok=True)
    path = folder / "tiny" / "config.json"
    path.write_text(json.dumps(config))
    return path


def refused(path):
    with pytest.raises(UsageError) as caught:
        load_shape(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("config", [GPT2, OPT, LLAMA], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("tied", [True, False, None])
def test_the_shape_holds_the_parameters_of_the_model_that_transformers_builds(tmp_path, config, tied):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = config if tied is None else {**config, "tie_word_embeddings": tied}
    rest = {key: value for key, value in config.items() if key != "model_type"}
    if config["model_type"] == "opt":
        rest |= {"word_embed_proj_dim": rest["hidden_size"], "pad_token_id": 1}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **rest)
        )
    (tmp_path / "saved").mkdir()
    model.config.to_json_file(tmp_path / "saved" / "config.json")
    total = sum(parameter.numel() for parameter in model.parameters())
    for path in (written(tmp_path, config), tmp_path / "saved" / "config.json"):
        assert parameter_count(load_shape(path)).total == total


def test_the_shape_is_named_after_the_folder_of_a_config_or_after_its_own_file(tmp_path):
    assert load_shape(written(tmp_path, GPT2)).name == "tiny"
    (tmp_path / "other.json").write_text(json.dumps(GPT2))
    assert load_shape(tmp_path / "other.json").name == "other"


def test_keys_left_out_have_the_familys_defaults(tmp_path):
    gpt2 = load_shape(written(tmp_path, {key: value for key, value in GPT2.items() if key != "n_positions"}))
    assert (gpt2.ffn, gpt2.positions, gpt2.tied_embeddings) == (128, 1024, True)
    llama = load_shape(written(tmp_path, {**LLAMA, "num_key_value_heads": None}))
    assert (llama.kv_heads, llama.tied_embeddings) == (4, False)
    assert load_shape(written(tmp_path, {**GPT2, "n_inner": 64})).ffn == 64


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bert"}, "model type 'bert' is not supported; supported are gpt2, llama, opt"),
        ({"model_type": ["gpt2"]}, "is not supported"),
        ({"architectures": ["Foo"]}, "model type None is not supported"),
        ({**GPT2, "n_embd": None}, "n_embd is 'None', not a whole number"),
        ({**GPT2, "n_embd": {}}, "n_embd is '{}', not a whole number"),
        ({**GPT2, "n_layer": 2.5}, "n_layer is '2.5'"),
        ({**GPT2, "n_head": 5}, "hidden 32 is not divisible by 5 heads"),
        ({**GPT2, "n_head": 0}, "heads is 0"),
        ({**GPT2, "n_inner": "wide"}, "ffn is 'wide'"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention True is not supported"),
        ({**OPT, "word_embed_proj_dim": 16}, "word_embed_proj_dim 16 differs from hidden_size 32, as in opt-350m"),
        ({**OPT, "do_layer_norm_before": False}, "do_layer_norm_before False is not supported"),
        ({**OPT, "enable_bias": False}, "enable_bias False is not supported"),
        ({**LLAMA, "attention_bias": True}, "attention_bias True is not supported"),
        ({**LLAMA, "head_dim": 16}, "4 heads of head_dim 16 do not make up hidden_size 32"),
        ({**LLAMA, "head_dim": "8"}, "head_dim 8 do not make up"),
        ({**LLAMA, "num_key_value_heads": 3}, "not divisible by 3 key-value heads"),
    ],
)
def test_what_a_shape_cannot_tell_is_refused(tmp_path, config, reason):
    message = refused(written(tmp_path, config))
    assert reason in message and "config.json" in message


@pytest.mark.parametrize("config", [GPT2, OPT, LLAMA], ids=lambda config: config["model_type"])
def test_a_missing_key_is_named(tmp_path, config):
    for key in set(config) - {"model_type", "n_positions", "max_position_embeddings", "num_key_value_heads"}:
        assert f"{key} is missing" in refused(written(tmp_path, {k: v for k, v in config.items() if k != key}))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(config=st.sampled_from([GPT2, OPT, LLAMA]), data=st.data())
def test_any_value_of_any_key_gives_a_shape_or_a_refusal(tmp_path, config, data):
    keys = [*config, "tie_word_embeddings", "head_dim", "n_inner", "word_embed_proj_dim", "mlp_bias"]
    broken = {**config, data.draw(st.sampled_from(keys)): data.draw(values)}
    path = written(tmp_path, broken)
    try:
        load_shape(path)
    except UsageError as error:
        assert "\n" not in str(error)
