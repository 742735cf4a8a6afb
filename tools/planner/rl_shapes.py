"""Shapes of the models that RL tables name, where the tables do not print them, and how a row writes a mixture."""

import math
import re
from collections.abc import Mapping

from suite.planner.formulas.blocks import matrix_elements
from tools.planner.entries import Unusable, number

_MIXTURE = re.compile(r"(\d{1,7}) ?x ?(\d{1,7}) ?e ?top ?(\d{1,7})(?: ?\+ ?(\d{1,7}) ?shared)?", re.I)
_NAMES = ("layers", "hidden", "heads", "kv_heads", "head_width", "ffn", "vocab", "experts", "experts_per_token")

#: From each model's config.json. DeepSeek-V3's shared expert is counted among those that every token meets; its keys
#: and values are one latent (arXiv 2412.19437, section 2.1.1), for whose projections one key-value head comes nearest.
_SHAPES: Mapping[str, tuple[int, ...]] = {
    r"llama.?3(\.1)?.{0,3}8b": (32, 4096, 32, 8, 128, 14336, 128256, 1, 1),
    r"llama.?3(\.[13])?.{0,3}70b": (80, 8192, 64, 8, 128, 28672, 128256, 1, 1),
    r"llama.?3(\.1)?.{0,3}405b": (126, 16384, 128, 8, 128, 53248, 128256, 1, 1),
    r"qwen3.{0,2}0\.6b": (28, 1024, 16, 8, 128, 3072, 151936, 1, 1),
    r"qwen3.{0,2}1\.7b": (28, 2048, 16, 8, 128, 6144, 151936, 1, 1),
    r"qwen3.{0,2}4b": (36, 2560, 32, 8, 128, 9728, 151936, 1, 1),
    r"qwen3.{0,2}8b": (36, 4096, 32, 8, 128, 12288, 151936, 1, 1),
    r"qwen3.{0,2}14b": (40, 5120, 40, 8, 128, 17408, 151936, 1, 1),
    r"qwen3.{0,2}32b": (64, 5120, 64, 8, 128, 25600, 151936, 1, 1),
    r"qwen3.{0,2}30b": (48, 2048, 32, 4, 128, 768, 151936, 128, 8),
    r"qwen3.{0,2}235b": (94, 4096, 64, 4, 128, 1536, 151936, 128, 8),
    r"qwen2\.5.{0,6}0\.5b": (24, 896, 14, 2, 64, 4864, 151936, 1, 1),
    r"qwen2\.5.{0,6}1\.5b": (28, 1536, 12, 2, 128, 8960, 151936, 1, 1),
    r"qwen2\.5.{0,6}3b": (36, 2048, 16, 2, 128, 11008, 151936, 1, 1),
    r"qwen2(\.5)?.{0,6}7b": (28, 3584, 28, 4, 128, 18944, 152064, 1, 1),
    r"qwen2\.5.{0,6}14b": (48, 5120, 40, 8, 128, 13824, 152064, 1, 1),
    r"qwen2\.5.{0,6}32b": (64, 5120, 40, 8, 128, 27648, 152064, 1, 1),
    r"qwen2(\.5)?.{0,6}72b": (80, 8192, 64, 8, 128, 29568, 152064, 1, 1),
    r"deepseek.?v3|dsv3": (61, 7168, 128, 1, 128, 2048, 129280, 257, 9),
}
#: Bytes of DeepSeek-V3's latent and rotary key of one position and layer, 576 elements of 16 bit.
_LATENT_BYTES = 1152.0
_LATENT = re.compile(r"deepseek.?v3|dsv3", re.I)


def rl_shape(cells: Mapping[str, str]) -> dict[str, float]:
    """Properties of a job that its model gives, from the row's own cells or by the model's name. Raises Unusable."""
    name = cells.get("model", "")
    known = next((values for pattern, values in _SHAPES.items() if re.search(pattern, name, re.I)), None)
    shape = dict(zip(_NAMES, map(float, known), strict=True)) if known else _printed(cells)
    heads = shape["heads"]
    if shape["kv_heads"] > heads:
        raise Unusable("heads and kv_heads contradict each other")
    width = heads * shape.pop("head_width")
    shape |= {"width": width, "gated": 1.0, "tables": 2.0}
    shape["tables"] = _tables(shape, number(cells.get("params_b")))
    return shape


def latent_cache(name: str) -> float:
    """Bytes of one position and layer where keys and values are one latent; 0 elsewhere."""
    return _LATENT_BYTES if _LATENT.search(name) else 0.0


def _printed(cells: Mapping[str, str]) -> dict[str, float]:
    needed = {name: number(cells.get(name)) for name in ("layers", "hidden", "heads")}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise Unusable(f"the shape of model {cells.get('model') or '?'!r} is not known: {', '.join(missing)} not given")
    shape = {name: value for name, value in needed.items() if value is not None}
    shape["kv_heads"] = number(cells.get("kv_heads")) or shape["heads"]
    shape["vocab"] = number(cells.get("vocab")) or 50304.0
    mixture = _MIXTURE.search(cells.get("ffn", ""))
    if mixture:
        shared = float(mixture.group(4) or 0)
        shape["ffn"] = float(mixture.group(1))
        shape["experts"] = float(mixture.group(2)) + shared
        shape["experts_per_token"] = float(mixture.group(3)) + shared
    else:
        shape["ffn"] = number(cells.get("ffn")) or 4 * shape["hidden"]
        shape["experts"] = shape["experts_per_token"] = 1.0
    if shape["experts_per_token"] > shape["experts"] or shape["heads"] > shape["hidden"]:
        raise Unusable("the model's sizes contradict each other")
    qwen3, gemma = (word in cells.get("model", "").lower() for word in ("qwen3", "gemma"))
    shape["head_width"] = 128.0 if qwen3 else 256.0 if gemma else shape["hidden"] / shape["heads"]
    return shape


def _tables(shape: Mapping[str, float], billions: float | None) -> float:
    """One vocabulary matrix or two: which comes nearer to the printed number of parameters; two where none is."""
    if billions is None:
        return 2.0
    blocks = shape["layers"] * matrix_elements(
        shape["hidden"], shape["ffn"], shape["kv_heads"] / shape["heads"], 1, shape["width"], shape["experts"]
    )
    table = shape["vocab"] * shape["hidden"]
    return min((2.0, 1.0), key=lambda count: abs(math.log((blocks + count * table) / (billions * 1e9))))
