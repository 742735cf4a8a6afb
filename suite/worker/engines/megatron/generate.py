"""Sampling from a Megatron policy: prefill, then one token a step out of a key-value cache."""

import time
from contextlib import contextmanager
from typing import Iterator, List, Tuple

import torch
import torch.distributed as dist

from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.stack import P2PCommunicator, StaticInferenceContext, parallel_state
from suite.worker.samples import Samples

_SEQUENCE_PARALLEL_SWITCHES = ("sequence_parallel", "scatter_to_sequence_parallel", "reduce_scatter_embeddings")


class Sampler:
    """Samples for one replica: the leader (tensor rank 0 of the last stage) draws, all its ranks get the token."""

    def __init__(self, model: PolicyModel, temperature: float, seed: int) -> None:
        """``model`` is this rank's own, not its wrappers; ``seed`` differs between replicas."""
        self._model = model
        self._temperature = temperature
        self._device = next(model.parameters()).device
        self._generator = torch.Generator(device=self._device).manual_seed(seed)
        self._pipeline = P2PCommunicator(parallel_state.get_pipeline_model_parallel_group(), model.config)
        self._replica = parallel_state.get_model_parallel_group()
        # Tensor ranks lie next to each other, stage after stage.
        self._leader = dist.get_process_group_ranks(self._replica)[-model.config.tensor_model_parallel_size]
        self.is_leader = dist.get_rank() == self._leader

    @torch.no_grad()
    def sample(self, prompts: Samples) -> Tuple[Samples, List[float]]:
        """The whole batch at once; all rows start at the first column. The shortest prompt is prefilled. Longer ones go
        through the cache token by token beside the responses of others, and complete rows go on until the last is.
        Also returns when each row was complete, in seconds after the start."""
        started = time.perf_counter()
        shortest, longest = self._steps(prompts)
        tokens = torch.zeros(len(prompts), longest, dtype=prompts.tokens.dtype, device=prompts.tokens.device)
        tokens[:, : prompts.tokens.size(1)] = prompts.tokens
        columns = torch.arange(longest, device=self._device)
        drawn_here = (columns >= prompts.column(prompts.prompt_lengths)) & (columns < prompts.column(prompts.lengths))
        seconds = [0.0] * len(prompts)
        cache = StaticInferenceContext(max_batch_size=len(prompts), max_sequence_length=longest)
        with _whole_sequences(self._model):
            fed = tokens[:, :shortest]
            for column in range(shortest, longest):
                drawn = self._next_token(fed, cache)
                tokens[:, column] = torch.where(drawn_here[:, column], drawn, tokens[:, column])
                cache.sequence_len_offset = column
                cache.enable_decode_mode()
                fed = tokens[:, column : column + 1]
                complete = [row for row, length in enumerate(prompts.lengths) if length == column + 1]
                if complete and self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)  # launches run ahead of it, but only here they are waited for
                for row in complete:
                    seconds[row] = time.perf_counter() - started
        return Samples(tokens, prompts.prompt_lengths, prompts.response_lengths), seconds

    def _steps(self, prompts: Samples) -> Tuple[int, int]:
        """Columns from which and to which is sampled: replicas that share experts must take the same steps."""
        shortest, longest = min(prompts.prompt_lengths), max(prompts.lengths)
        if self._model.config.expert_model_parallel_size == 1:
            return shortest, longest
        ends = torch.tensor([-shortest, longest], device=self._device)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=parallel_state.get_expert_model_parallel_group())
        negative, longest = ends.tolist()
        return -negative, longest

    def _next_token(self, fed: torch.Tensor, cache: StaticInferenceContext) -> torch.Tensor:
        """Through all stages, then the leader's draw to every rank of the replica: [b, s] -> [b]."""
        first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
        if not first:
            shape = (fed.size(1), fed.size(0), self._model.config.hidden_size)
            self._model.set_input_tensor(self._pipeline.recv_forward([shape], first)[0])
        output = self._model(fed, cache=cache)
        if not last:
            self._pipeline.send_forward([output], last)
        drawn = self._draw(output) if self.is_leader else torch.empty_like(fed[:, 0])
        if dist.get_world_size(self._replica) > 1:
            dist.broadcast(drawn, src=self._leader, group=self._replica)
        return drawn

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        probabilities = torch.softmax(logits.float() / self._temperature, dim=-1)
        return torch.multinomial(probabilities, 1, generator=self._generator).squeeze(1)


@contextmanager
def _whole_sequences(model: PolicyModel) -> Iterator[None]:
    """Sequence parallelism off for a while: a single token cannot be split over the tensor ranks."""
    owners = (model.config, *model.modules())
    on = [(owner, name) for owner in owners for name in _SEQUENCE_PARALLEL_SWITCHES if getattr(owner, name, False)]
    for owner, name in on:
        setattr(owner, name, False)
    try:
        yield
    finally:
        for owner, name in on:
            setattr(owner, name, True)
