"""What a row says of itself in words: how it trains, in which number format, of what part of a table it is."""

import re
from collections.abc import Mapping

#: Names of the words that a row gets, and what they may say.
TRAINING, FORMAT, EXPERTS, CONTEXT, GENERATES = "training", "number format", "experts", "context", "generates"
LORA, FULL = "lora", "full"
#: A longer cell is prose, which speaks of more than its row.
_LONGEST = 60
_NO_LORA = re.compile(r"\b(no|non|not|without|w/o)[\s_-]*(q?lora|peft|adapters?)\b", re.IGNORECASE)
_LORA = re.compile(r"(?<![a-z])(q?d?lora|peft|adapters?|low[\s_-]?rank)(?![a-z])", re.IGNORECASE)
_FULL = re.compile(
    r"(?<![a-z])(full[\s_-]*(sft|ft|fine|param|weight|training)|sft|fft|fine[\s_-]?tun|pre[\s_-]?train|cpt)",
    re.IGNORECASE,
)
_FORMATS = {
    "fp8": r"fp[\s_-]?8|float8|mxfp8|e4m3|e5m2|8[\s_-]?bit(?![\s_-]*adam)",
    "fp4": r"fp[\s_-]?4|float4|nvfp4|mxfp4",
    "tf32": r"tf[\s_-]?32",
    "fp32": r"(?<![a-z])fp[\s_-]?32|float32",
}
_EXPERTS = re.compile(
    r"(?<![a-z])moe(?![a-z])|mixtral|\d+x\d+(\.\d+)?b|\d+b[\s_-]*a?\d+(\.\d+)?[ab](?![a-z])|"
    r"(?<![a-z0-9])a\d+(\.\d+)?b(?![a-z])|"
    r"deepseek[\s_-]?(v[234]|r1)|grok|dbrx|kimi|gpt[\s_-]?oss|llama[\s_-]?4|arctic|jamba|nemotron[\s_-]?(h|3)",
    re.IGNORECASE,
)
_LORA_COLUMN = re.compile(r"(use |with |is )?(q?lora|peft|adapters?)( rank| r| enabled)?")
_UNTRUE = {"no", "false", "none", "-", "0", "off", "n/a", "na", "n"}
_GENERATES = re.compile(
    r"(?<![a-z])(rl|rlhf|rlvr|ppo|grpo|dapo|gspo|rloo|remax|gpg|reinforce(\+\+)?|rollouts?)(?![a-z])", re.IGNORECASE
)
#: Columns whose cells say of what part of a collection a row is; rows of several are several tables.
_PARTS = re.compile(r"table|section|task|method|mode|training|phase|url|page|act ckpt|.*recompute.*|.*checkpoint.*")


def labels(cells: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """The words of one row, from all its cells by header and those that have a meaning."""
    short = {header: cell for header, cell in cells.items() if cell and len(cell) <= _LONGEST}
    text = " | ".join(short.values())
    said = words.get("precision") or f"{text} | {' | '.join(cells)}"
    found = {
        TRAINING: _training(short, text),
        FORMAT: " ".join(name for name, pattern in _FORMATS.items() if re.search(pattern, said, re.IGNORECASE)),
        EXPERTS: "yes" if _EXPERTS.search(words.get("model", "")) or _counted_experts(cells) else "",
        GENERATES: "yes" if _GENERATES.search(f"{text} | {' | '.join(cells)}") else "",
        CONTEXT: " | ".join(cell for header, cell in cells.items() if _PARTS.fullmatch(_plain(header))),
    }
    return {name: word for name, word in found.items() if word}


def _training(cells: Mapping[str, str], text: str) -> str:
    """``lora``, ``full``, or nothing where no cell says. A column that is called LoRA says yes, no or a rank."""
    for header, cell in cells.items():
        if _LORA_COLUMN.fullmatch(_plain(header)) and not _LORA.search(cell):
            return FULL if cell.strip().lower() in _UNTRUE else LORA
    if _LORA.search(_NO_LORA.sub(" ", text)):
        return LORA
    return FULL if _FULL.search(text) or _NO_LORA.search(text) else ""


def _counted_experts(cells: Mapping[str, str]) -> bool:
    return any(
        re.fullmatch(r"(n |num |number of |total |routed )*experts", _plain(header)) and cell not in ("", "-", "0", "1")
        for header, cell in cells.items()
    )


def _plain(header: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9]+", " ", header.lower()).split())
