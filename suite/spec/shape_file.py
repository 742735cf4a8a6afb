"""A user's own shape: a YAML file of its fields, or a Hugging Face config.json."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from suite.spec.base import UsageError
from suite.spec.foreign import read_text
from suite.spec.names import repeated
from suite.spec.plain_yaml import MAX_BYTES, load_plain
from suite.spec.shape import Shape
from suite.spec.typed import first_beyond

#: No dimension of a model comes near; beyond it figures only overflow.
MAX_DIMENSION = 10**9


def load_shape(path: Path | str) -> Shape:
    """The shape in a file: YAML of ``Shape``'s fields, or a Hugging Face ``config.json``. Raises UsageError."""
    path = Path(path)
    data = _parse_json(path) if path.suffix == ".json" else load_plain(path, "a shape file")
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a shape file holds fields with values, which this does not")
    if "model_type" in data or "architectures" in data:
        data = _of_hugging_face(path, data)
    return _validate(path, data)


def _parse_json(path: Path) -> Any:
    text = read_text(path, str(path), MAX_BYTES, by_user=True)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = repeated(name for name, _ in pairs)
        if twice is not None:
            raise ValueError(f"{twice[:40]!r} is given twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply for a shape") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {' '.join(str(error).split())}") from error


def _validate(path: Path, data: dict[Any, Any]) -> Shape:
    try:
        shape = Shape.model_validate(data, strict=True)
    except ValidationError as error:
        reasons = "; ".join(_reason(item) for item in error.errors(include_url=False)[:3])
        raise UsageError(f"{path}: {reasons}") from error
    huge = first_beyond(shape.model_dump(exclude={"rope_theta"}), MAX_DIMENSION)
    if huge is not None:
        raise UsageError(f"{path}: {'.'.join(huge)} is larger than {MAX_DIMENSION:,}")
    if not shape.name.isprintable() or shape.name != shape.name.strip():
        raise UsageError(f"{path}: the name {shape.name!r} has characters that cannot be shown in a table")
    return shape


def _reason(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{place} is missing"
    if item["type"] == "extra_forbidden":
        return f"{place} is not a field of a shape ({', '.join(Shape.model_fields)})"
    message = item["msg"].removeprefix("Value error, ")
    return f"{place} is {repr(item['input'])[:40]}: {message}" if place else message


Config = Mapping[str, Any]
#: What a shape means where it says nothing (``Shape``): of LayerNorm, of RMSNorm, and the base of rotary frequencies.
NORM_EPSILON, RMS_NORM_EPSILON, ROPE_THETA = 1e-5, 1e-6, 10000.0
_USUAL = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocab": "vocab_size"}


class _Family(NamedTuple):
    """How a family's file is read: ``keys`` of the whole numbers that it must have, and what transformers takes where
    another is left out; null: as many key-value heads as heads, and heads of width hidden / heads.

    ``only``: what other keys must be, where they are there, for a shape to tell it. ``experts``: key of their number,
    and the one of another family that some versions of transformers write in its place."""

    positions: int
    keys: Mapping[str, str] = {**_USUAL, "ffn": "intermediate_size"}
    only: Mapping[str, tuple[Any, ...]] = {}
    rotary: bool = True
    tied: bool = False
    kv_heads: int | None = None
    head_dim: int | None = None
    rope_theta: float = ROPE_THETA
    norm_epsilon: float = RMS_NORM_EPSILON
    experts: tuple[str, ...] = ()
    normalises: bool = True


_ROTARY_ONLY = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "use_sliding_window"), (False,)),
    "hidden_act": ("silu", "swish"),
    "partial_rotary_factor": (1,),
}
_FAMILIES = {
    "gpt2": _Family(
        1024,
        {"layers": "n_layer", "hidden": "n_embd", "heads": "n_head", "kv_heads": "n_head", "vocab": "vocab_size"},
        {"add_cross_attention": (False,)},
        rotary=False,
        tied=True,
    ),
    "opt": _Family(
        2048,
        {**_USUAL, "kv_heads": "num_attention_heads", "ffn": "ffn_dim"},
        {
            **dict.fromkeys(("do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"), (True,)),
            "_remove_final_layer_norm": (False,),
        },
        rotary=False,
        tied=True,
    ),
    "llama": _Family(2048),
    "qwen2": _Family(32768, kv_heads=32),
    "qwen3": _Family(32768, kv_heads=32, head_dim=128),
    "mixtral": _Family(
        131072,
        only={"sliding_window": ()},
        kv_heads=8,
        rope_theta=1e6,
        norm_epsilon=1e-5,
        experts=("num_local_experts", "num_experts"),
    ),
    "qwen3_moe": _Family(
        32768,
        {**_USUAL, "ffn": "moe_intermediate_size"},
        {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)},
        kv_heads=4,
        experts=("num_experts", "num_local_experts"),
        normalises=False,
    ),
}


def _of_hugging_face(path: Path, config: Config) -> dict[str, Any]:
    """The fields of ``Shape``, unchecked, of a configuration. What equals a shape's own default is left out, so that
    equal models are equal work however their files are written. Raises UsageError."""
    kind = config.get("model_type")
    family = _FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise UsageError(
            f"{path}: model type {_shown(kind)} is not supported; supported are {', '.join(sorted(_FAMILIES))}. "
            "To plan or measure a model of that size all the same, name a YAML file with --shape that has name, "
            "architecture (one of these), layers, hidden, ffn, heads, kv_heads, vocab, positions and tied_embeddings"
        )
    try:
        fields = _fields(config, family)
    except (KeyError, UsageError) as error:
        lack = f"{error.args[0]} is missing, which a {kind} configuration needs"
        raise UsageError(f"{path}: {lack if isinstance(error, KeyError) else error}") from error
    # a config.json is named after its folder, any other file after itself
    name = (path.resolve().parent.name if path.name == "config.json" else path.stem)[:64] or "model"
    return {"name": name, "architecture": kind, "source": f"config.json of {name}", **fields}


def _fields(config: Config, family: _Family) -> dict[str, Any]:
    fields: dict[str, Any] = {field: _whole(config, key) for field, key in family.keys.items()}
    hidden, heads = fields["hidden"], fields["heads"]
    fields["tied_embeddings"] = _or(config, "tie_word_embeddings", family.tied)
    _require(config, family.only)
    if not family.rotary:
        _require(config, {"word_embed_proj_dim": (hidden,)})  # opt-350m has another
        fields.setdefault("ffn", _or(config, "n_inner", 4 * hidden))
        fields["positions"] = _or(config, "n_positions", _or(config, "max_position_embeddings", family.positions))
        return fields | _unless(NORM_EPSILON, "norm_epsilon", _number(config, "layer_norm_epsilon", NORM_EPSILON))
    _require(config, _ROTARY_ONLY)
    blocks = config.get("layer_types")
    if blocks is not None and (not isinstance(blocks, list) or any(each != "full_attention" for each in blocks)):
        raise UsageError(f"layer_types {_shown(blocks)} is not supported: every block of a shape has full_attention")
    fields["positions"] = _or(config, "max_position_embeddings", family.positions)
    fields["kv_heads"] = _or(config, "num_key_value_heads", family.kv_heads or heads)
    width = _or(config, "head_dim", family.head_dim)
    if width is not None and _whole({"head_dim": width}, "head_dim") * heads != hidden:
        fields["head_width"] = width
    if family.experts:
        count = next((key for key in family.experts if key in config), family.experts[0])
        fields["experts"] = {
            "count": _whole(config, count),
            "per_token": _whole(config, "num_experts_per_tok"),
            "normalise": _or(config, "norm_topk_prob", family.normalises),
        }
    epsilon = _number(config, "rms_norm_eps", family.norm_epsilon)
    return fields | _unless(RMS_NORM_EPSILON, "norm_epsilon", epsilon) | _rope(config, family.rope_theta)


def _rope(config: Config, theta: float) -> dict[str, Any]:
    """Base and scaling of the rotary frequencies, as transformers 5 writes them (``rope_parameters``) or as before."""
    given = [key for key in ("rope_parameters", "rope_scaling") if config.get(key) is not None]
    if len(given) > 1:
        raise UsageError("rope_parameters and rope_scaling say the same in two spellings: keep one of them")
    key = given[0] if given else "rope_scaling"
    rope = _or(config, key, {})
    if not isinstance(rope, dict):
        raise UsageError(f"{key} is {_shown(rope)}, not an object of fields with values")
    _require(rope, {"partial_rotary_factor": (1,)})
    theta = _number(rope, "rope_theta", _number(config, "rope_theta", theta))
    fields = _unless(ROPE_THETA, "rope_theta", theta)
    kind = _or(rope, "rope_type", _or(rope, "type", "default"))
    if kind == "default":
        return fields
    if kind not in ("linear", "llama3"):
        raise UsageError(f"{key} of type {_shown(kind)} is not supported; supported are default, linear and llama3")
    names, scaling = {"factor": "factor"}, {"kind": kind}
    if kind == "llama3":
        names |= {"low_frequency_factor": "low_freq_factor", "high_frequency_factor": "high_freq_factor"}
        own = config.get("max_position_embeddings")
        scaling["original_positions"] = _or(rope, "original_max_position_embeddings", own)
    for field, name in names.items():
        if rope.get(name) is None:
            raise UsageError(f"{key} has no {name}, which its type needs")
        scaling[field] = _number(rope, name, math.nan)
    return {**fields, "rope_scaling": scaling}


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


def _unless(default: float, field: str, value: float) -> dict[str, Any]:
    """A shape's field, left out where it is what a shape without it means."""
    return {} if value == default else {field: value}


def _or(config: Config, key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value


def _require(config: Config, only: Mapping[str, tuple[Any, ...]]) -> None:
    """Raises UsageError for a key that is there and is nothing of what it must be."""
    for key, allowed in only.items():
        value = config.get(key)
        if value is not None and value not in allowed:
            wanted = " or ".join(map(repr, allowed)) or "null"
            raise UsageError(f"{key} {_shown(value)} is not supported: of what a shape can tell it is {wanted}")


def _shown(value: Any) -> str:
    return repr(value)[:40]
