"""The policy of the deepspeed engine, as transformers builds it."""

import pytest
import torch

from suite.worker.engines.deepspeed.policy import Policy, policy_builder, token_logprobs
from suite.worker.engines.deepspeed.rows import Rows
from suite.worker.engines.deepspeed.weights import draw_weights
from suite.worker.samples import Samples
from tests.worker.engines.megatron.families import size_of

SIZE = size_of("gpt2", layers=3, hidden=16, ffn=32, heads=2, kv_heads=2, vocab=32, positions=8)
EVEN = Samples.even(torch.arange(8).reshape(2, 4), 2)


GPT2_VOCAB, GPT2_ROWS = 50257, 50304


def gpt2_vocabulary(tied: bool = True) -> Policy:
    """A tiny policy on GPT-2's vocabulary, its weights drawn."""
    policy = policy_builder({**SIZE, "vocab": GPT2_VOCAB, "hidden": 8, "tied_embeddings": tied})()
    draw_weights(policy, 3)
    return policy


def vocabulary_matrices(policy: Policy) -> list[torch.nn.Parameter]:
    return list({id(matrix): matrix for matrix in (policy.transformer.wte.weight, policy.lm_head.weight)}.values())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_log_probs_and_their_gradients_are_those_of_the_unpadded_softmax(precision: torch.dtype) -> None:
    logits = (3 * torch.randn(2, 3, GPT2_ROWS, generator=torch.Generator().manual_seed(0))).to(precision)
    logits[..., GPT2_VOCAB:] = 50.0  # padding that would win, were it looked at
    tokens, weights = torch.tensor([[0, 7, GPT2_VOCAB - 1]] * 2), torch.arange(6.0).reshape(2, 3)
    padded, plain = (part.clone().requires_grad_() for part in (logits, logits[..., :GPT2_VOCAB]))
    # as in the policy: logits are an output, not a leaf
    ours = token_logprobs(padded * 1.0, tokens, GPT2_VOCAB)
    theirs = torch.log_softmax(plain.float(), dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(ours, theirs, atol=1e-4)
    for logprobs in (ours, theirs):
        (logprobs * weights).sum().backward()
    assert padded.grad is not None and plain.grad is not None
    assert torch.allclose(padded.grad[..., :GPT2_VOCAB], plain.grad, atol=1e-5)
    assert not padded.grad[..., GPT2_VOCAB:].any()


@pytest.mark.parametrize("tied", [True, False])
def test_an_optimizer_with_weight_decay_leaves_padded_rows_at_zero(tied: bool) -> None:
    policy = gpt2_vocabulary(tied).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    before = [matrix.detach().clone() for matrix in vocabulary_matrices(policy)]
    logprobs, values = policy(rows=Rows(EVEN, packed=False))
    (logprobs.sum() + values.sum()).backward()
    optimizer.step()
    assert len(before) == (1 if tied else 2)
    for matrix, drawn in zip(vocabulary_matrices(policy), before, strict=True):
        assert matrix.shape[0] == GPT2_ROWS
        assert matrix.grad is not None and not matrix.grad[GPT2_VOCAB:].any()
        assert not drawn[GPT2_VOCAB:].any() and not matrix[GPT2_VOCAB:].any()
        assert not torch.equal(matrix[:GPT2_VOCAB], drawn[:GPT2_VOCAB])
