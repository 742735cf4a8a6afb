"""config.json of the supported families becomes the shape of the model that it builds; others are refused."""

import json
from pathlib import Path

import pytest

from suite.spec.catalogue import find_size
from suite.spec.shape_file import load_shape
from suite.theory.parameters import parameter_count
from tests.spec.test_shape_file import refused

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 100, "n_positions": 64}
BLOCKS = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
TOKENS = {"vocab_size": 100, "max_position_embeddings": 64}
OPT = {**BLOCKS, **TOKENS, "model_type": "opt", "ffn_dim": 128}
LLAMA = {**BLOCKS, **TOKENS, "model_type": "llama", "intermediate_size": 88, "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAR = {**LLAMA3, "original_max_position_embeddings": 10**12}
QWEN2 = {**LLAMA, "model_type": "qwen2"}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN3_MOE = {
    **QWEN3, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
}  # fmt: skip
FAMILIES = (GPT2, OPT, LLAMA, QWEN2, QWEN3, MIXTRAL, QWEN3_MOE)
OPTIONAL = {"model_type", "n_positions", "max_position_embeddings", "num_key_value_heads", "head_dim"}


def written(folder, config):
    (folder / "tiny").mkdir(exist_ok=True)
    path = folder / "tiny" / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config["model_type"])
@pytest.mark.parametrize("tied", [True, False, None])
def test_the_shape_holds_the_parameters_of_the_model_that_transformers_builds(tmp_path, config, tied):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = config if tied is None else {**config, "tie_word_embeddings": tied}
    rest = {key: value for key, value in config.items() if key != "model_type"}
    if config["model_type"] == "opt":
        rest |= {"word_embed_proj_dim": rest["hidden_size"], "pad_token_id": 1}
    theirs = transformers.AutoConfig.for_model(config["model_type"], **rest)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(theirs)
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


@pytest.mark.parametrize("config", FAMILIES[2:], ids=lambda config: config["model_type"])
def test_what_is_not_written_is_what_transformers_takes_for_it(tmp_path, config):
    """Norms, positions, base of the frequencies and heads of a file with only the widths."""
    transformers = pytest.importorskip("transformers")
    family = config["model_type"]
    bare = {key: value for key, value in config.items() if key not in OPTIONAL}
    bare |= {"hidden_size": 256, "num_attention_heads": 32}
    theirs = transformers.AutoConfig.for_model(family, **bare)
    size = load_shape(written(tmp_path, {**bare, "model_type": family}))
    assert (size.kv_heads, size.positions) == (theirs.num_key_value_heads, theirs.max_position_embeddings)
    assert size.tied_embeddings == theirs.tie_word_embeddings
    assert (size.norm_epsilon or 1e-6) == theirs.rms_norm_eps
    assert (size.rope_theta or 10000.0) == theirs.rope_parameters["rope_theta"]
    assert size.head_dim == (getattr(theirs, "head_dim", None) or size.hidden // size.heads)
    if size.experts is not None:
        assert size.experts.normalise == getattr(theirs, "norm_topk_prob", True)


def test_what_a_shape_means_anyway_is_left_out_of_it(tmp_path):
    """So that equal models are equal work, however their files are written."""
    plain = load_shape(written(tmp_path, LLAMA))
    said = {"head_dim": 8, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu", "rope_scaling": None}
    for rope in ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}):
        assert load_shape(written(tmp_path, {**LLAMA, **said, **rope})) == plain
    assert not {"head_width", "norm_epsilon", "rope_theta", "rope_scaling", "experts"} & set(plain.model_dump())


def test_both_spellings_of_rotary_positions_are_one_shape(tmp_path):
    scaling = {**LLAMA3, "original_max_position_embeddings": 32}
    old = load_shape(written(tmp_path, {**LLAMA, "rope_theta": 5e5, "rope_scaling": scaling}))
    new = load_shape(written(tmp_path, {**LLAMA, "rope_parameters": {**scaling, "rope_theta": 5e5}}))
    assert old == new and old.rope_theta == 5e5
    frequencies = {"low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
    assert old.rope_scaling.model_dump() == {"kind": "llama3", "factor": 8.0, **frequencies, "original_positions": 32}
    linear = load_shape(written(tmp_path, {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2}}))
    assert (linear.rope_scaling.kind, linear.rope_scaling.factor, linear.rope_theta) == ("linear", 2.0, None)


#: name of a size -> its config.json as published, the fields that tell a shape
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_size_of_the_catalogue_is_the_published_configuration(tmp_path, name):
    size = find_size(name)
    read = load_shape(written(tmp_path, PUBLISHED[name]))
    about = {"name", "note", "source"}
    assert read.model_dump(exclude=about) == size.model_dump(exclude=about)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bert"}, "'bert' is not supported; supported are gpt2, llama, mixtral, opt, qwen2, qwen3"),
        ({"model_type": ["gpt2"]}, "is not supported"),
        ({**GPT2, "n_embd": {}}, "n_embd is '{}', not a whole number"),
        ({**GPT2, "n_head": 0}, "heads is 0"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention True is not supported"),
        ({**OPT, "word_embed_proj_dim": 16}, "word_embed_proj_dim 16 is not supported: of what a shape"),
        ({**OPT, "do_layer_norm_before": False}, "do_layer_norm_before False is not supported"),
        ({**OPT, "enable_bias": False}, "enable_bias False is not supported"),
        ({**LLAMA, "attention_bias": True}, "attention_bias True is not supported"),
        ({**LLAMA, "mlp_bias": True}, "mlp_bias True is not supported"),
        ({**LLAMA, "hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({**LLAMA, "head_dim": True}, "head_dim is 'True', not a whole number"),
        ({**LLAMA, "head_dim": 7}, "rotary positions need heads of even width, not 7"),
        ({**LLAMA, "rms_norm_eps": "small"}, "rms_norm_eps is 'small', not a number"),
        ({**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2}}, "rope_scaling of type 'dynamic' is not"),
        ({**LLAMA, "rope_scaling": {"rope_type": ["linear"]}}, "rope_scaling of type ['linear'] is not supported"),
        ({**LLAMA, "rope_scaling": 2.0}, "rope_scaling is 2.0, not an object"),
        ({**LLAMA, "rope_scaling": {"type": "linear"}}, "rope_scaling has no factor, which its type needs"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 10**400}}, "not a number"),
        ({**LLAMA, "rope_scaling": FAR}, "rope_scaling.original_positions is larger than"),
        ({**LLAMA, "rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5 is not supported"),
        ({**LLAMA, "rope_parameters": {}, "rope_scaling": {}}, "the same in two spellings"),
        ({**QWEN2, "use_sliding_window": True}, "use_sliding_window True is not supported"),
        ({**QWEN3, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types ['full_attention', "),
        ({**MIXTRAL, "sliding_window": 4096}, "sliding_window 4096 is not supported"),
        ({**MIXTRAL, "num_experts_per_tok": 5}, "5 experts per token, but there are 4"),
        ({**MIXTRAL, "num_local_experts": 1}, "experts.count is 1"),
        ({**QWEN3_MOE, "decoder_sparse_step": 2}, "decoder_sparse_step 2 is not supported"),
        ({**QWEN3_MOE, "mlp_only_layers": [0]}, "mlp_only_layers [0] is not supported"),
    ],
)
def test_what_a_shape_cannot_tell_is_refused(tmp_path, config, reason):
    message = refused(written(tmp_path, config))
    assert reason in message and "config.json" in message


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config["model_type"])
def test_a_missing_key_is_named(tmp_path, config):
    if config is QWEN3_MOE:  # the width of MLPs that it has no block with
        config = {key: value for key, value in config.items() if key != "intermediate_size"}
    for key in set(config) - OPTIONAL:
        assert f"{key} is missing" in refused(written(tmp_path, {k: v for k, v in config.items() if k != key}))
