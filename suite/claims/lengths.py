"""The tokens of one sample, which rates may count in different ways: answers alone, prompts too, padding too."""

from collections.abc import Mapping
from dataclasses import dataclass

#: What ``prompts.with_prompts`` leaves in a row: tokens of a prompt that most rows agree on, and what would have to be
#: known of the length of its samples.
PROMPTS, UNKNOWN_LENGTH = "typical prompt", "unknown length"
#: Prompts of one table differ by their samples: within a factor of two they are taken for the same.
PROMPT_FACTOR = 2.0


@dataclass(frozen=True)
class Length:
    """Tokens of a sample, and how a convention that counts so many is told; it may lie anywhere in low .. high."""

    text: str
    tokens: float
    low: float
    high: float


def lengths_of(values: Mapping[str, float], words: Mapping[str, str]) -> list[Length]:
    """The lengths by which tokens may be counted. Empty where samples are counted whose length is not known.

    A row with a mean length counts these (of all tokens, or of the answers), prompts besides where it tells them or
    where the other rows imply them, or every sequence as long as the longest.
    """
    mean, prompt, longest = values.get("mean_length"), values.get("prompt_length"), values.get("longest")
    if UNKNOWN_LENGTH in words:
        return []
    if mean is None:
        sequence = values.get("sequence")
        return [_exactly("", sequence)] if sequence else []
    found = [_exactly(", mean length", mean)]
    if prompt:
        found.append(_exactly(", prompts and answers", mean + prompt))
    if longest:
        found.append(_exactly(", padded to the longest", longest))
    usual = values.get(PROMPTS)
    if usual:
        text = f", answers and prompts of about {usual:.0f} tokens"
        found.append(Length(text, mean + usual, mean + usual / PROMPT_FACTOR, mean + usual * PROMPT_FACTOR))
    return found


def _exactly(text: str, tokens: float) -> Length:
    return Length(text, tokens, tokens, tokens)
