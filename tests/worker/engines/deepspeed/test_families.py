"""Every family computes what Hugging Face's plain model does with the same weights, and never its padded rows."""

from typing import Any

import pytest
import torch

from suite.worker.engines.deepspeed.families import build_config, class_of
from suite.worker.engines.deepspeed.generation import generate
from suite.worker.engines.deepspeed.policy import Policy, freeze_below, policy_builder, token_logprobs
from suite.worker.engines.deepspeed.rows import TrunkRows
from suite.worker.engines.deepspeed.weights import draw_weights, plain_weights
from suite.worker.samples import Samples
from tests.worker.engines.batches import uneven_samples
from tests.worker.engines.megatron.families import size_of

VOCAB = 100  # padded to 128
SIZES = {
    **{family: size_of(family, layers=3, vocab=VOCAB) for family in ("gpt2", "llama", "qwen3")},
    "llama tied": size_of("llama", layers=3, vocab=VOCAB, kv_heads=4, tied_embeddings=True, head_width=16),
    "qwen2": size_of("qwen2", layers=3, vocab=VOCAB, kv_heads=1, tied_embeddings=False),
}
FAMILIES = pytest.mark.parametrize("name", SIZES)
PROMPTS, RESPONSES = [3, 6, 1], [7, 2, 5]


def drawn(name: str, packs: bool = False, loud: bool = True, seed: int = 3, **options: Any) -> Policy:
    """A policy with its weights; ``loud``: larger and with biases, so that attention and positions matter."""
    policy = policy_builder(SIZES[name], packs, **options)()
    draw_weights(policy, seed)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters() if loud else ():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
            else:
                parameter.mul_(8)
    return policy


def plain_model(policy: Policy, name: str) -> Any:
    """Hugging Face's own, on the unpadded vocabulary, with the policy's weights by name."""
    config = build_config(SIZES[name])
    config.vocab_size = VOCAB
    model = class_of(config.model_type)(config).eval()
    weights = {each: tensor.clone() for each, tensor in plain_weights(policy)}
    missing = model.load_state_dict(weights, strict=False)
    assert missing.unexpected_keys == []
    assert missing.missing_keys == (["lm_head.weight"] if SIZES[name]["tied_embeddings"] else [])
    return model


def uneven() -> Any:
    return uneven_samples(VOCAB, PROMPTS, RESPONSES, seed=1)


def by_hand(model: Any, samples: Samples) -> list[torch.Tensor]:
    """Log-probs of each whole vocabulary before each response token, sample by sample without padding: [R_i, V]."""
    found = []
    for row, prompt, length in zip(samples.tokens, samples.prompt_lengths, samples.lengths, strict=True):
        logits = model(row[:length].unsqueeze(0)).logits[0]
        found.append(torch.log_softmax(logits.float(), dim=-1)[prompt - 1 : -1])
    return found


def assert_chosen(logprobs: torch.Tensor, wanted: list[torch.Tensor], samples: Samples, tolerance: float) -> None:
    """The log-probs are those of the samples' own tokens in the whole vocabularies of ``by_hand``."""
    for row, of_vocabulary in enumerate(wanted):
        tokens = samples.responses()[row, : RESPONSES[row]]
        own = of_vocabulary.gather(1, tokens.unsqueeze(1)).squeeze(1)
        assert torch.allclose(logprobs[row, : RESPONSES[row]], own, atol=tolerance), row


@FAMILIES
@pytest.mark.parametrize("packs", [False, True], ids=["padded", "packed"])
def test_log_probs_of_uneven_samples_are_those_of_the_plain_model(name: str, packs: bool) -> None:
    policy, samples = drawn(name, packs).eval(), uneven()
    with torch.no_grad():
        logprobs, values = policy(rows=TrunkRows(samples, packs))
        wanted = by_hand(plain_model(policy, name), samples)
    assert logprobs.shape == values.shape == (3, 7)
    assert_chosen(logprobs, wanted, samples, 1e-5)
    assert all(of_vocabulary.std() > 0.5 for of_vocabulary in wanted), "the weights say something"
    assert not logprobs[~samples.mask()].any() and not values[~samples.mask()].any()


@FAMILIES
def test_decoding_with_a_cache_gives_uneven_samples_and_the_log_probs_of_a_full_forward(name: str) -> None:
    policy, given, steps = drawn(name).eval(), uneven(), []
    policy.register_forward_hook(lambda _module, _inputs, output: steps.append(output.logits[:, -1].float()))
    prompts = Samples(given.tokens[:, :6], PROMPTS, RESPONSES)
    torch.manual_seed(2)
    with torch.no_grad():
        samples, seconds = generate(policy, prompts, 1.0, synced=False)
    assert (samples.prompt_lengths, samples.response_lengths) == (PROMPTS, RESPONSES)
    assert len(steps) == max(RESPONSES) and samples.tokens.shape == (3, 10)
    assert int(samples.tokens.max()) < VOCAB
    for row, (prompt, length) in enumerate(zip(PROMPTS, samples.lengths, strict=True)):
        assert torch.equal(samples.tokens[row, :prompt], given.tokens[row, :prompt])
        assert not samples.tokens[row, length:].any()
    for row, wanted in enumerate(by_hand(plain_model(policy, name), samples)):
        decoded = torch.log_softmax(torch.stack([step[row] for step in steps[: RESPONSES[row]]]), dim=-1)
        assert torch.allclose(decoded, wanted, atol=1e-4), row
    assert seconds[1] < seconds[2] < seconds[0]  # in the order of their lengths


@FAMILIES
def test_weights_are_drawn_as_gpt2s_and_norms_start_at_one(name: str) -> None:
    policy = drawn(name, loud=False, with_value_head=False)
    for each, parameter in policy.named_parameters():
        own = parameter[:VOCAB] if each in policy.family.vocabulary_weights else parameter
        if parameter.dim() == 1:
            assert torch.equal(own, torch.full_like(own, 0.0 if each.endswith("bias") else 1.0)), each
        else:
            deviation = 0.02 / (6**0.5 if each.endswith(policy.family.residual) else 1.0)
            assert float(own.detach().std()) == pytest.approx(deviation, rel=0.2), each
    again = dict(drawn(name, loud=False, lora_rank=2).named_parameters())
    matrix = next(iter(policy.family.matrices))
    path = f"{policy.family.trunk}.{policy.family.blocks}.1.{matrix}"
    assert torch.equal(again[path + ".base.weight"], dict(policy.named_parameters())[path + ".weight"])
    other = dict(drawn(name, loud=False, seed=4).named_parameters())
    assert not torch.equal(other[path + ".weight"], dict(policy.named_parameters())[path + ".weight"])


@FAMILIES
@pytest.mark.parametrize("packs", [False, True], ids=["padded", "packed"])
def test_a_hydra_branch_on_the_trunks_states_is_the_policy_before_it_trains(name: str, packs: bool) -> None:
    policy, samples, kept = drawn(name, packs, loud=False, hydra_layers=2).eval(), uneven(), []
    freeze_below(policy, 2)
    hook = policy.first_trainable(2).register_forward_pre_hook(lambda _module, inputs: kept.append(inputs[0]))
    with torch.no_grad():
        logprobs, _ = policy(rows=TrunkRows(samples, packs))
        hook.remove()
        reference, values = policy(rows=TrunkRows(samples, packs), trunk_states=kept[0])
    assert values is None
    assert torch.allclose(reference, logprobs, atol=1e-6)
    trains = {each.split(".")[2] for each, one in policy.named_parameters() if one.requires_grad and ".1." in each}
    assert trains == {"1"} or trains == {"1", "bias", "weight"}
    assert not any(parameter.requires_grad for parameter in policy.branch.parameters())  # type: ignore[union-attr]


@FAMILIES
def test_merged_adapters_are_the_plain_model_that_computes_the_same(name: str) -> None:
    policy, samples = drawn(name, lora_rank=3).eval(), uneven()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for each, parameter in policy.named_parameters():
            if each.endswith(".up"):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        logprobs, _ = policy(rows=TrunkRows(samples, packed=False))
        wanted = by_hand(plain_model(policy, name), samples)
    assert_chosen(logprobs, wanted, samples, 1e-4)


EVEN = Samples.even(torch.arange(8).reshape(2, 4), 2)
GPT2_VOCAB, GPT2_ROWS = 50257, 50304


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
    assert torch.allclose(padded.grad[..., :GPT2_VOCAB], plain.grad, atol=1e-5)
    assert not padded.grad[..., GPT2_VOCAB:].any()


@pytest.mark.parametrize("tied", [True, False])
def test_an_optimizer_with_weight_decay_leaves_padded_rows_at_zero(tied: bool) -> None:
    widths = {"hidden": 8, "ffn": 32, "heads": 2, "kv_heads": 2, "positions": 8}
    policy = policy_builder(size_of("gpt2", layers=3, vocab=GPT2_VOCAB, tied_embeddings=tied, **widths))().train()
    draw_weights(policy, 3)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    before = [matrix.detach().clone() for matrix in vocabulary_matrices(policy)]
    logprobs, values = policy(rows=TrunkRows(EVEN, packed=False))
    (logprobs.sum() + values.sum()).backward()
    optimizer.step()
    assert len(before) == (1 if tied else 2)
    for matrix, drawn in zip(vocabulary_matrices(policy), before, strict=True):
        assert matrix.shape[0] == GPT2_ROWS
        assert matrix.grad is not None and not matrix.grad[GPT2_VOCAB:].any()
        assert not drawn[GPT2_VOCAB:].any() and not matrix[GPT2_VOCAB:].any()
        assert not torch.equal(matrix[:GPT2_VOCAB], drawn[:GPT2_VOCAB])
