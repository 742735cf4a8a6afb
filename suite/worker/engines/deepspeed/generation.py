"""Generation by Hugging Face: prompts padded in front, each response cut at its own length."""

import time
from typing import Any, Dict, List, Optional, Tuple

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from suite.worker.samples import Samples


def generate(policy: Any, prompts: Samples, temperature: float, synced: bool) -> Tuple[Samples, List[float]]:
    """Samples with responses of exactly the lengths wanted, and when each was complete, in seconds from now.
    ``synced``: ranks go on together until all have finished, because each token gathers weights from all."""
    longest = prompts.longest_response
    config = GenerationConfig(
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        min_new_tokens=longest,
        max_new_tokens=longest,
        use_cache=True,
    )
    watch = _Watch(prompts)
    options: Dict[str, Any] = {"generation_config": config, "synced_gpus": synced}
    if len(set(prompts.response_lengths)) > 1:
        options["stopping_criteria"] = StoppingCriteriaList([watch])
    padded, mask = _padded_in_front(prompts)
    if mask is not None:
        options.update(attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    rows = policy.generate(padded, **options)
    seconds = watch.end()
    if prompts.is_even:
        return Samples.even(rows, prompts.prompt_lengths[0]), seconds
    return _padded_behind(rows, padded.size(1), prompts), seconds


class _Watch(StoppingCriteria):
    """Says of each row when it has its own number of response tokens, and keeps the moment. Rows that are complete go
    through the model until the longest is."""

    def __init__(self, prompts: Samples) -> None:
        width = max(prompts.prompt_lengths)
        self._ends = [width + length for length in prompts.response_lengths]
        self._ends_there = torch.tensor(self._ends, device=prompts.tokens.device)
        self._began = time.perf_counter()
        self._seconds: Dict[int, float] = {}

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_options: Any) -> torch.Tensor:
        columns = input_ids.size(1)
        if columns in self._ends:
            self._note(columns)
        return self._ends_there <= columns

    def _note(self, columns: int) -> None:
        """Only where a row ends does the host wait for the device."""
        if self._ends_there.device.type == "cuda":
            torch.cuda.synchronize(self._ends_there.device)
        self._seconds.setdefault(columns, time.perf_counter() - self._began)

    def end(self) -> List[float]:
        """Generation is over. [b]: when each row was complete."""
        self._note(max(self._ends))
        return [self._seconds[end] for end in self._ends]


def _padded_in_front(prompts: Samples) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
    """[b, longest prompt] tokens that end in one column, and their mask; none where the prompts are even."""
    width = max(prompts.prompt_lengths)
    if min(prompts.prompt_lengths) == width:
        return prompts.tokens[:, :width], None
    columns = torch.arange(width, device=prompts.tokens.device) - width + prompts.column(prompts.prompt_lengths)
    tokens = prompts.tokens.gather(1, columns.clamp(min=0))
    return tokens * (columns >= 0), (columns >= 0).to(torch.int64)


def _padded_behind(rows: torch.Tensor, width: int, prompts: Samples) -> Samples:
    """Samples from generated rows, whose prompts end in column ``width``."""
    columns = torch.arange(max(prompts.lengths), device=rows.device)
    behind = columns + width - prompts.column(prompts.prompt_lengths)
    tokens = rows.gather(1, behind.clamp(max=rows.size(1) - 1))
    is_real = columns < prompts.column(prompts.lengths)
    return Samples(tokens * is_real, prompts.prompt_lengths, prompts.response_lengths)
