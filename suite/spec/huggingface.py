"""From a Hugging Face ``config.json`` to the fields of a shape."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from suite.spec.base import UsageError

Config = Mapping[str, Any]
#: What a shape means where it says nothing (``Shape``): of LayerNorm, of RMSNorm, and the base of rotary frequencies.
NORM_EPSILON, RMS_NORM_EPSILON, ROPE_THETA = 1e-5, 1e-6, 10000.0


def shape_from_config(config: Config, *, name: str, where: str) -> dict[str, Any]:
    """The fields of ``Shape``, unchecked, of a configuration of one of its families.

    Keys that a file leaves out have the family's default in Hugging Face transformers. What equals a shape's own
    default is left out of it, so that equal models are equal work however their files are written. ``where`` opens
    each error. Raises UsageError for another family, a missing width, depth, head count, vocabulary or number of
    experts, and for variants that a shape cannot tell.
    """
    family = config.get("model_type")
    reader = _READERS.get(family) if isinstance(family, str) else None
    if reader is None:
        raise UsageError(
            f"{where}: model type {_shown(family)} is not supported; supported are {', '.join(sorted(_READERS))}. "
            "To plan or measure a model of that size all the same, name a YAML file with --shape that has name, "
            "architecture (one of these), layers, hidden, ffn, heads, kv_heads, vocab, positions and tied_embeddings"
        )
    try:
        fields = reader(config)
    except KeyError as error:
        raise UsageError(f"{where}: {error.args[0]} is missing, which a {family} configuration needs") from error
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    return {"name": name, "architecture": family, "source": f"config.json of {name}", **fields}


def _gpt2(config: Config) -> dict[str, Any]:
    _expect(config, "add_cross_attention", False)
    own = _wholes(config, layers="n_layer", hidden="n_embd", heads="n_head", kv_heads="n_head", vocab="vocab_size")
    return {
        **_unless(NORM_EPSILON, "norm_epsilon", _number(config, "layer_norm_epsilon", NORM_EPSILON)),
        **own,
        "ffn": _or(config, "n_inner", lambda: 4 * own["hidden"]),
        "positions": _or(config, "n_positions", lambda: 1024),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: True),
    }


#: what most families call the same
_USUAL = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocab": "vocab_size"}


def _opt(config: Config) -> dict[str, Any]:
    own = _wholes(config, **_USUAL, kv_heads="num_attention_heads", ffn="ffn_dim")
    hidden = own["hidden"]
    projection = _or(config, "word_embed_proj_dim", lambda: hidden)
    if projection != hidden:
        raise UsageError(
            f"word_embed_proj_dim {_shown(projection)} differs from hidden_size {hidden!r}, as in opt-350m: "
            "a shape has no projection between embedding and blocks"
        )
    _expect(config, "do_layer_norm_before", True)
    _expect(config, "enable_bias", True)
    _expect(config, "layer_norm_elementwise_affine", True)
    _expect(config, "_remove_final_layer_norm", False)
    return {
        **own,
        "positions": _or(config, "max_position_embeddings", lambda: 2048),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: True),
    }


@dataclass(frozen=True)
class _Defaults:
    """What transformers takes where a file of a family with rotary positions leaves a key out; null: hidden / heads,
    and as many key-value heads as heads."""

    positions: int
    kv_heads: int | None = None
    head_dim: int | None = None
    rope_theta: float = ROPE_THETA
    norm_epsilon: float = RMS_NORM_EPSILON


def _rotary(config: Config, defaults: _Defaults) -> dict[str, Any]:
    """What all families with rotary positions have in common, without the width of the MLP."""
    own = _wholes(config, **_USUAL)
    for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
        _expect(config, key, False)
    if _or(config, "hidden_act", lambda: "silu") not in ("silu", "swish"):
        raise _unsupported(config, "hidden_act", "a shape's gated MLP has silu")
    kinds = config.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        raise _unsupported(config, "layer_types", "every block of a shape has full attention")
    head_width = _or(config, "head_dim", lambda: defaults.head_dim)
    if head_width is not None:
        head_width = _whole({"head_dim": head_width}, "head_dim")
    return {
        **own,
        "kv_heads": _or(config, "num_key_value_heads", lambda: defaults.kv_heads or own["heads"]),
        "positions": _or(config, "max_position_embeddings", lambda: defaults.positions),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: False),
        **({} if head_width is None or head_width * own["heads"] == own["hidden"] else {"head_width": head_width}),
        **_unless(RMS_NORM_EPSILON, "norm_epsilon", _number(config, "rms_norm_eps", defaults.norm_epsilon)),
        **_rope(config, defaults.rope_theta),
    }


def _rope(config: Config, theta: float) -> dict[str, Any]:
    """Base and scaling of the rotary frequencies, as transformers 5 writes them (``rope_parameters``) or as before."""
    if config.get("rope_parameters") is not None and config.get("rope_scaling") is not None:
        raise UsageError("rope_parameters and rope_scaling say the same in two spellings: keep one of them")
    key = "rope_scaling" if config.get("rope_parameters") is None else "rope_parameters"
    rope = _or(config, key, dict)
    if not isinstance(rope, dict):
        raise UsageError(f"{key} is {_shown(rope)}, not an object of fields with values")
    for place in (config, rope):
        if _number(place, "partial_rotary_factor", 1.0) != 1:
            raise UsageError("partial_rotary_factor is not supported: a shape rotates the whole of each head")
    theta = _number(rope, "rope_theta", _number(config, "rope_theta", theta))
    scaling = _rope_scaling(rope, key, config)
    return {
        **_unless(ROPE_THETA, "rope_theta", theta),
        **({} if scaling is None else {"rope_scaling": scaling}),
    }


def _rope_scaling(rope: Config, key: str, config: Config) -> dict[str, Any] | None:
    kind = _or(rope, "rope_type", lambda: _or(rope, "type", lambda: "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise UsageError(f"{key} of type {_shown(kind)} is not supported; supported are default, linear and llama3")
    scaling: dict[str, Any] = {"kind": kind, "factor": _required(rope, "factor", key)}
    if kind == "llama3":
        scaling |= {
            "low_frequency_factor": _required(rope, "low_freq_factor", key),
            "high_frequency_factor": _required(rope, "high_freq_factor", key),
            "original_positions": _or(
                rope, "original_max_position_embeddings", lambda: config.get("max_position_embeddings")
            ),
        }
    return scaling


def _dense(config: Config, defaults: _Defaults) -> dict[str, Any]:
    return {**_rotary(config, defaults), "ffn": _whole(config, "intermediate_size")}


def _mixtral(config: Config) -> dict[str, Any]:
    if config.get("sliding_window") is not None:
        raise _unsupported(config, "sliding_window", "every block of a shape has full attention")
    experts = _experts(config, "num_local_experts", "num_experts")
    defaults = _Defaults(positions=131072, kv_heads=8, rope_theta=1e6, norm_epsilon=1e-5)
    return {**_dense(config, defaults), "experts": experts}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    step = _or(config, "decoder_sparse_step", lambda: 1)
    if step != 1 or isinstance(step, bool):
        raise _unsupported(config, "decoder_sparse_step", "every block of a shape has experts")
    if _or(config, "mlp_only_layers", list) != []:
        raise _unsupported(config, "mlp_only_layers", "every block of a shape has experts")
    experts = _experts(config, "num_experts", "num_local_experts")
    experts["normalise"] = _or(config, "norm_topk_prob", lambda: False)
    fields = _rotary(config, _Defaults(positions=32768, kv_heads=4))
    return {**fields, "ffn": _whole(config, "moe_intermediate_size"), "experts": experts}


def _experts(config: Config, key: str, other: str) -> dict[str, Any]:
    """Some versions of transformers write one family's under the other's name."""
    return _wholes(
        config, count=other if key not in config and other in config else key, per_token="num_experts_per_tok"
    )


_READERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": partial(_dense, defaults=_Defaults(positions=2048)),
    "qwen2": partial(_dense, defaults=_Defaults(positions=32768, kv_heads=32)),
    "qwen3": partial(_dense, defaults=_Defaults(positions=32768, kv_heads=32, head_dim=128)),
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
}


def _wholes(config: Config, **keys: str) -> dict[str, int]:
    return {field: _whole(config, key) for field, key in keys.items()}


def _whole(config: Config, key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{key} is {str(value)[:40]!r}, not a whole number")
    return value


def _number(config: Config, key: str, default: float) -> float:
    """A finite number as a float; its sign is checked with the shape."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
        raise UsageError(f"{key} is {_shown(value)}, not a number")
    return float(value)


def _required(rope: Config, field: str, key: str) -> float:
    if rope.get(field) is None:
        raise UsageError(f"{key} has no {field}, which its type needs")
    return _number(rope, field, math.nan)


def _unless(default: float, field: str, value: float) -> dict[str, Any]:
    """A shape's field, left out where it is what a shape without it means."""
    return {} if value == default else {field: value}


def _or(config: Config, key: str, default: Callable[[], Any]) -> Any:
    value = config.get(key)
    return default() if value is None else value


def _expect(config: Config, key: str, wanted: bool) -> None:
    if config.get(key) not in (None, wanted):
        raise _unsupported(config, key, f"the parameter counts hold for {wanted!r} only")


def _unsupported(config: Config, key: str, why: str) -> UsageError:
    return UsageError(f"{key} {_shown(config[key])} is not supported: {why}")


def _shown(value: Any) -> str:
    return repr(value)[:40]
