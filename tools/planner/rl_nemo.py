"""NeMo-RL's performance page: each row's layout from the recipe of the same release, model, devices and placement."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.planner.entries import Unusable, number
from tools.planner.published import table_text

_RELEASE = re.compile(r"v(\d+\.\d+)")
_LENGTH = re.compile(r"avg gen seq len ([\d,]+)")
_MODELS = (
    ("llama", r"llama"),
    ("deepseek", r"deepseek|dsv3"),
    ("235b", r"235b"),
    ("30b", r"30b"),
    ("32b", r"32b"),
)
#: NeMo-RL's page names no mean prompt; where rate, time and length recompute they come to 98 to 157 tokens.
_USUAL_PROMPT, _PROMPTS = 120.0, (50.0, 300.0)


def read_recipes(files: Sequence[Path]) -> list[dict[str, str]]:
    """Recipes of the files that hold any, a configuration a row."""
    found: list[dict[str, str]] = []
    for path in files:
        reader = csv.DictReader(io.StringIO(table_text(path), newline=""))
        if {"recipe", "release", "train_gpus", "gen_tp"} <= set(reader.fieldnames or ()):
            found += [{key: value or "" for key, value in row.items() if key} for row in reader]
    return found


def with_recipe(
    cells: Mapping[str, str], metrics: Mapping[str, float], recipes: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """The row with what its recipe says in the columns of the RL tables. Raises Unusable where none belongs to it."""
    recipe = _recipe_of(cells, recipes)
    length = _LENGTH.search(cells["notes"])
    if length is None:
        raise Unusable("the mean length of a response is not given")
    response = float(length.group(1).replace(",", ""))
    samples, trained = number(recipe["gen_global_batch"]), number(cells.get("global_batch_seqs"))
    if samples is None or (trained and trained != samples):
        raise Unusable("page and recipe disagree about the samples of a step")
    return {
        **cells,
        "framework": "NeMo-RL (Megatron train + vLLM gen)",
        "algorithm": "GRPO",
        "resp_len_mean": f"{response:g}",
        "resp_len_max": recipe["max_total_seq"],
        "prompt_len_mean": f"{_prompt(cells, metrics, samples, response):g}",
        **{name: recipe[name] for name in ("prompts_per_step", "gens_per_prompt", "train_gpus", "gen_gpus", "gen_tp")},
        "global_batch_seqs": recipe["gen_global_batch"],
        "seq_len": recipe["max_total_seq"],
        "optimizer_batch": recipe["train_global_batch"],
        "micro_batch": recipe["train_micro_batch"],
        "packed": recipe["sequence_packing"],
        "gen_bytes": "1" if recipe["gen_precision"] == "fp8" else "2",
        "gen_eager": recipe["enforce_eager"],
        "pool_share": recipe["gpu_memory_utilization"],
        "placement": "colocated" if recipe["colocated"] == "True" else "disaggregated",
        "staleness": recipe["max_trajectory_age_steps"] if recipe["async_enabled"] == "True" else "0",
        "tp": recipe["train_tp"],
        "pp": recipe["train_pp"],
        "vp": recipe["train_vpp"],
        "cp": recipe["train_cp"],
        "ep": recipe["train_ep"],
        "act_ckpt": "full recompute" if recipe["activation_checkpointing"] == "True" else "selective",
        "precision": "fp8" if recipe["train_fp8"] == "True" else "bf16",
        "scores": _scores(recipe),
        "train_backend": "Megatron",
        "node_gpus": recipe["gpus_per_node"],
    }


def _prompt(cells: Mapping[str, str], metrics: Mapping[str, float], samples: float, response: float) -> float:
    """Mean tokens of a prompt: what rate, time and devices leave beside the responses, where that can be."""
    rate, seconds, devices = metrics.get("tokens_per_sec_per_gpu"), metrics.get("step_time"), number(cells["n_gpus"])
    if not (rate and seconds and devices):
        return _USUAL_PROMPT
    left = rate * seconds * devices / samples - response
    return left if _PROMPTS[0] <= left <= _PROMPTS[1] else _USUAL_PROMPT


def _scores(recipe: Mapping[str, str]) -> str:
    """Forward passes beside training: the policy's unless ratios are forced to one, the reference's with a KL term."""
    old = recipe.get("force_on_policy_ratio") != "True"
    reference = recipe.get("skip_ref_logprobs") != "True" and (number(recipe.get("kl_penalty")) or 0) > 0
    return str(int(old) + int(reference))


def _recipe_of(cells: Mapping[str, str], recipes: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    release = _RELEASE.search(cells.get("config_id", "") + " " + cells.get("table", ""))
    family = next((word for word, pattern in _MODELS if re.search(pattern, cells.get("model", ""), re.I)), None)
    if family is None or release is None:
        raise Unusable(f"no recipe of model {cells.get('model')!r} is known")
    node = "4" if "GB" in cells.get("gpu_model", "").upper() else "8"
    asynchronous = str(bool(re.search(r"off\b", cells.get("task", ""), re.I) and "step" in cells["task"].lower()))
    fp8 = str("fp8" in cells.get("precision", "").lower())
    dapo = "dapo" in cells.get("task", "").lower()
    fitting = [
        recipe
        for recipe in recipes
        if recipe["release"].startswith(f"v{release.group(1)}.")
        and family in recipe["recipe"].lower().replace("qwen3-30ba3b", "qwen3-30b")
        and number(recipe["n_gpus"]) == number(cells.get("n_gpus"))
        and recipe["gpus_per_node"] == node
        and recipe["async_enabled"] == asynchronous
        and recipe["train_fp8"] == fp8
        and recipe["recipe"].startswith("dapo") == dapo
        and number(recipe["max_total_seq"]) == number(cells.get("seq_len"))
    ]
    if not fitting:
        raise Unusable("no recipe has this release, model, number of devices and placement")
    return min(fitting, key=lambda recipe: len(recipe["recipe"]))
