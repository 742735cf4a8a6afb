"""Sampling from a Megatron policy: prefill, then one token a step out of a key-value cache."""

from contextlib import contextmanager
from typing import Iterator

import torch

from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.stack import P2PCommunicator, StaticInferenceContext, parallel_state

_SEQUENCE_PARALLEL_SWITCHES = ("sequence_parallel", "scatter_to_sequence_parallel")


class Sampler:
    """Samples for one replica: the leader (tensor rank 0 of the last stage) draws, all its ranks get the token."""

    def __init__(self, model: PolicyModel, temperature: float, seed: int) -> None:
        """``model`` is this rank's own, not its wrappers; ``seed`` differs between replicas."""
        self._model = model
        self._temperature = temperature
        self._device = next(model.parameters()).device
        self._generator = torch.Generator(device=self._device).manual_seed(seed)
        self._pipeline = P2PCommunicator(parallel_state.get_pipeline_model_parallel_group(), model.config)
        self.is_leader = (
            parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
        )
        self._replica = parallel_state.get_model_parallel_group()
        self._leader = self._find_leader()

    def _find_leader(self) -> int:
        rank = torch.tensor([torch.distributed.get_rank() if self.is_leader else -1], device=self._device)
        torch.distributed.all_reduce(rank, op=torch.distributed.ReduceOp.MAX, group=self._replica)
        return int(rank.item())

    @torch.no_grad()
    def sample(self, prompts: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """[b, P] -> [b, P + new_tokens], the whole batch at once; a pipeline therefore idles between its stages."""
        batch, prompt_tokens = prompts.shape
        tokens = torch.empty(batch, prompt_tokens + new_tokens, dtype=prompts.dtype, device=prompts.device)
        tokens[:, :prompt_tokens] = prompts
        cache = StaticInferenceContext(max_batch_size=batch, max_sequence_length=prompt_tokens + new_tokens)
        with _whole_sequences(self._model):
            fed = prompts
            for column in range(prompt_tokens, prompt_tokens + new_tokens):
                tokens[:, column] = self._next_token(fed, cache)
                cache.sequence_len_offset = column
                cache.enable_decode_mode()
                fed = tokens[:, column : column + 1]
        return tokens

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
        if torch.distributed.get_world_size(self._replica) > 1:
            torch.distributed.broadcast(drawn, src=self._leader, group=self._replica)
        return drawn

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        probabilities = torch.softmax(logits.float() / self._temperature, dim=-1)
        return torch.multinomial(probabilities, 1, generator=self._generator).squeeze(1)


@contextmanager
def _whole_sequences(model: PolicyModel) -> Iterator[None]:
    """Sequence parallelism off for a while: a single token cannot be split over the tensor ranks."""
    switched = [
        (module, switch)
        for module in model.modules()
        for switch in _SEQUENCE_PARALLEL_SWITCHES
        if getattr(module, switch, False)
    ]
    whole = model.config.sequence_parallel
    model.config.sequence_parallel = False
    for module, switch in switched:
        setattr(module, switch, False)
    try:
        yield
    finally:
        model.config.sequence_parallel = whole
        for module, switch in switched:
            setattr(module, switch, True)
