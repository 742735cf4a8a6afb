"""From a Hugging Face ``config.json`` to the fields of a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from suite.spec.base import UsageError

Config = Mapping[str, Any]


def shape_from_config(config: Config, *, name: str, where: str) -> dict[str, Any]:
    """The fields of ``Shape``, unchecked, of a GPT-2, OPT or Llama configuration.

    Keys that a file leaves out have the family's default in Hugging Face transformers. ``where`` opens each error.
    Raises UsageError for another family, a missing width, depth, head count or vocabulary, and for variants whose
    parameters a shape cannot tell.
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
    hidden, heads = _whole(config, "n_embd"), _whole(config, "n_head")
    return {
        "layers": _whole(config, "n_layer"),
        "hidden": hidden,
        "ffn": _or(config, "n_inner", lambda: 4 * hidden),
        "heads": heads,
        "kv_heads": heads,
        "vocab": _whole(config, "vocab_size"),
        "positions": _or(config, "n_positions", lambda: 1024),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: True),
    }


def _opt(config: Config) -> dict[str, Any]:
    hidden, heads = _whole(config, "hidden_size"), _whole(config, "num_attention_heads")
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
        "layers": _whole(config, "num_hidden_layers"),
        "hidden": hidden,
        "ffn": _whole(config, "ffn_dim"),
        "heads": heads,
        "kv_heads": heads,
        "vocab": _whole(config, "vocab_size"),
        "positions": _or(config, "max_position_embeddings", lambda: 2048),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: True),
    }


def _llama(config: Config) -> dict[str, Any]:
    hidden, heads = _whole(config, "hidden_size"), _whole(config, "num_attention_heads")
    _expect(config, "attention_bias", False)
    _expect(config, "mlp_bias", False)
    head_dim = config.get("head_dim")
    if head_dim is not None and (not isinstance(head_dim, int) or head_dim * heads != hidden):
        raise UsageError(f"{heads} heads of head_dim {str(head_dim)[:40]} do not make up hidden_size {hidden}")
    return {
        "layers": _whole(config, "num_hidden_layers"),
        "hidden": hidden,
        "ffn": _whole(config, "intermediate_size"),
        "heads": heads,
        "kv_heads": _or(config, "num_key_value_heads", lambda: heads),
        "vocab": _whole(config, "vocab_size"),
        "positions": _or(config, "max_position_embeddings", lambda: 2048),
        "tied_embeddings": _or(config, "tie_word_embeddings", lambda: False),
    }


_READERS: dict[str, Callable[[Config], dict[str, Any]]] = {"gpt2": _gpt2, "opt": _opt, "llama": _llama}


def _whole(config: Config, key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{key} is {str(value)[:40]!r}, not a whole number")
    return value


def _or(config: Config, key: str, default: Callable[[], Any]) -> Any:
    value = config.get(key)
    return default() if value is None else value


def _expect(config: Config, key: str, wanted: bool) -> None:
    if config.get(key) not in (None, wanted):
        raise UsageError(f"{key} {_shown(config[key])} is not supported: the parameter counts hold for {wanted!r} only")


def _shown(value: Any) -> str:
    return repr(value)[:40]
