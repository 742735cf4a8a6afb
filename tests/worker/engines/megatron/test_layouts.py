"""Real Megatron ranks on the CPU: one model gives the same numbers in every layout.

Run as a script this file is the program of one rank: ``python -m tests.worker.engines.megatron.test_layouts
OUTPUT_FOLDER CASE...``.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.tiny import run_program

PROMPT_TOKENS, NEW_TOKENS, ROWS, VOCAB, GPT2_VOCAB = 8, 8, 4, 200, 50257
HIDDEN, FFN, LAYERS, POSITIONS = 32, 96, 4, 20
TRAIN_STEPS = 4

#: name -> ranks, what differs from one plain fp32 rank
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "one": (1, {}),
    "one-recompute": (1, {"layout": {"recompute": "full"}}),
    "one-distributed": (1, {"layout": {"distributed_optimizer": True}}),
    "one-bf16": (1, {"precision": "bf16"}),
    "one-fp16": (1, {"precision": "fp16"}),
    "one-untied": (1, {"tied": False}),
    "one-frozen": (1, {"trainable_layers": 1}),
    "one-frozen-recompute": (1, {"trainable_layers": 1, "layout": {"recompute": "full"}}),
    "one-gpt2-vocab": (1, {"vocab": GPT2_VOCAB}),
    "one-vocab-90": (1, {"vocab": 90}),
    "tp2": (2, {"layout": {"tensor": 2}}),
    "tp2-gpt2-vocab": (2, {"layout": {"tensor": 2}, "vocab": GPT2_VOCAB}),  # 50304 / 2 is no multiple of 128
    "tp2-sp": (2, {"layout": {"tensor": 2, "sequence_parallel": True}}),
    "tp2-sp-recompute-distributed": (
        2,
        {"layout": {"tensor": 2, "sequence_parallel": True, "recompute": "full", "distributed_optimizer": True}},
    ),
    "tp2-sp-bf16": (2, {"layout": {"tensor": 2, "sequence_parallel": True}, "precision": "bf16"}),
    "pp2-fp16": (2, {"layout": {"pipeline": 2}, "precision": "fp16"}),
    "tp2-frozen": (2, {"layout": {"tensor": 2}, "trainable_layers": 1}),
    "pp2": (2, {"layout": {"pipeline": 2}}),
    "pp2-untied": (2, {"layout": {"pipeline": 2}, "tied": False}),
    "pp2-frozen": (2, {"layout": {"pipeline": 2}, "trainable_layers": 1}),
    "pp2-frozen-distributed": (2, {"layout": {"pipeline": 2, "distributed_optimizer": True}, "trainable_layers": 1}),
    "dp2": (2, {"layout": {"data": 2}}),
    "dp2-distributed": (2, {"layout": {"data": 2, "distributed_optimizer": True}}),
    "tp2-sp-pp2": (4, {"layout": {"tensor": 2, "sequence_parallel": True, "pipeline": 2}}),
    "tp4-vocab-90": (4, {"layout": {"tensor": 4}, "vocab": 90}),  # 128 / 4: the last rank holds padding alone
    "tp2-dp2-distributed": (4, {"layout": {"tensor": 2, "data": 2, "distributed_optimizer": True}}),
}


#: compared with Hugging Face's GPT-2, whose vocabulary is not padded
HUGGING_FACE = ("one", "one-untied", "one-gpt2-vocab")


def manifest_of(case: str) -> dict[str, Any]:
    """The part of a manifest that the engine reads."""
    ranks, asked = CASES[case]
    layout = {
        "nodes": 1,
        "devices_per_node": ranks,
        "tensor": 1,
        "pipeline": 1,
        "data": 1,
        "sequence_parallel": False,
        "zero_stage": 0,
        "distributed_optimizer": False,
        "recompute": "none",
        "offload_optimizer": False,
        "offload_parameters": False,
        **asked.get("layout", {}),
    }
    size = {
        "name": "tiny",
        "architecture": "gpt2",
        "layers": LAYERS,
        "hidden": HIDDEN,
        "ffn": FFN,
        "heads": 4,
        "kv_heads": 4,
        "vocab": vocab_of(case),
        "positions": POSITIONS,
        "tied_embeddings": asked.get("tied", True),
    }
    optimizer = {
        "learning_rate": 1e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "gradient_clip": 1.0,
    }
    workload = {
        "trainable_layers": asked.get("trainable_layers"),
        "reference": "full",
        "ppo": {"temperature": 1.0},
        "optimizer": optimizer,
    }
    measure = {"device": "cpu", "precision": asked.get("precision", "fp32"), "seed": 11}
    return {
        "size": size,
        "layout": layout,
        "workload": workload,
        "work": {"micro_batch": ROWS // (2 * layout["data"])},
        "measure": measure,
        "limits": {"silence_seconds": 300.0},
    }


def vocab_of(case: str) -> int:
    return CASES[case][1].get("vocab", VOCAB)


def expected_parameters(tied: bool, vocab: int = VOCAB) -> int:
    """GPT-2's count by hand: embeddings, blocks, final LayerNorm, head; and the value head."""
    embeddings = (vocab + POSITIONS + (0 if tied else vocab)) * HIDDEN
    return embeddings + trained_parameters(LAYERS)


def trained_parameters(layers: int) -> int:
    """Of these, what trains when the last ``layers`` blocks do: no embeddings, no output layer."""
    block = 4 * HIDDEN + (HIDDEN + 1) * 3 * HIDDEN + (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * FFN + (FFN + 1) * HIDDEN
    return layers * block + 2 * HIDDEN + value_head_parameters()


def value_head_parameters() -> int:
    return (HIDDEN + 1) * 2 * HIDDEN + 2 * HIDDEN + 1


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(folder: Path, cases: list[str]) -> None:
    """Run each case in turn on this rank; the numbers go to ``CASE.RANK.json``."""
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.rank import read_rank
    from suite.worker.world import join, leave

    world = join(read_rank(os.environ), "cpu", 120.0)
    for case in cases:
        (folder / f"{case}.{world.rank}.json").write_text(json.dumps(observe(case, world)))
        parallel_state.destroy_model_parallel()
    leave()


def observe(case: str, world: Any) -> dict[str, Any]:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.weights import global_parameters
    from suite.worker.samples import Samples

    engine = MegatronEngine(manifest_of(case), world)
    batch = own_rows(fixed_batch(vocab_of(case)), engine)
    samples = Samples.even(batch.pop("tokens"), PROMPT_TOKENS)
    logprobs, values = engine.score(samples)
    seen: dict[str, Any] = {
        "total": engine.total_parameters,
        "trainable": engine.trainable_parameters,
        "leader": engine.replica_leader,
        "replica": engine.data_parallel_rank,
        "replicas": engine.data_parallel_size,
        "notes": engine.notes,
        "generated": engine.generate(prompts_of(samples)).tokens.tolist(),
        "generated_again": engine.generate(prompts_of(samples)).tokens.tolist(),
        "logprobs": logprobs.tolist(),
        "values": values.tolist(),
        "cached": cached_logprobs(engine, samples.tokens),
    }
    before = {name: parameter.detach().clone() for name, parameter in global_parameters(engine._model)}
    seen["steps"] = [engine.train(samples, batch, toy_loss) for _ in range(TRAIN_STEPS)]
    seen["moved"] = sorted(
        name for name, parameter in global_parameters(engine._model) if not torch.equal(parameter, before[name])
    )
    trained, _ = engine.score(samples)
    seen["logprobs_trained"] = trained.tolist()
    seen["reference"] = engine.reference(samples).tolist()
    if "vocab" in CASES[case][1]:
        seen["padding"] = fill_padding(engine, samples, batch)
    if "fp16" in case:
        seen["overflow"] = overflow(engine, samples, batch)
    if case in HUGGING_FACE:
        seen["hugging_face"] = hugging_face_difference(engine, samples, vocab_of(case))
    if case in ("one", "tp2"):
        seen["attention"] = {groups: attention_difference(engine, groups) for groups in (2, 4)}
    return seen


def prompts_of(samples: Any) -> Any:
    """The prompts alone, with the lengths that their responses are to have."""
    from suite.worker.samples import Samples

    columns = max(samples.prompt_lengths)
    return Samples(samples.tokens[:, :columns], samples.prompt_lengths, samples.response_lengths)


def fixed_batch(vocab: int = VOCAB) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(5)
    return {
        "tokens": torch.randint(0, vocab, (ROWS, PROMPT_TOKENS + NEW_TOKENS), generator=generator),
        "weights": torch.randn(ROWS, NEW_TOKENS, generator=generator),
        "returns": torch.randn(ROWS, NEW_TOKENS, generator=generator),
    }


def fill_padding(engine: Any, samples: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Rows of no token filled with what would show; then what scoring, sampling and training make of them."""
    import torch

    from suite.worker.engines.megatron.stack import parallel_state

    parameter = engine._model.embedding.word_embeddings.weight
    first = parallel_state.get_tensor_model_parallel_rank() * parameter.size(0)
    padding = slice(max(0, engine._model.unpadded_vocab - first), None)
    with torch.no_grad():
        parameter[padding] = 3.0
    logprobs, _ = engine.score(samples)
    generated = engine.generate(prompts_of(samples)).tokens
    engine.train(samples, batch, toy_loss)
    gradient = parameter.main_grad
    return {
        "shard": parameter.size(0),
        "rows": gradient[padding].size(0),
        "logprobs": logprobs.tolist(),
        "largest_token": int(generated.max()),
        "gradient": gradient[padding].abs().sum().item(),
        "other_gradient": gradient[: padding.start].abs().sum().item(),
    }


def overflow(engine: Any, samples: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Three steps, the second with an infinite gradient on rank 0 alone; the first weight's sum after each."""
    import torch

    parameter = next(engine._model.parameters())
    run, steps, sums = engine._run, [], []
    for is_infinite in (False, True, False):

        def run_then_overflow(*arguments: Any, is_infinite: bool = is_infinite, **options: Any) -> Any:
            outputs = run(*arguments, **options)
            if is_infinite and torch.distributed.get_rank() == 0:
                parameter.main_grad.view(-1)[0] = float("inf")
            return outputs

        engine._run = run_then_overflow
        steps.append(engine.train(samples, batch, toy_loss))
        sums.append(parameter.detach().double().abs().sum().item())
    return {"steps": steps, "sums": sums}


def own_rows(batch: dict[str, Any], engine: Any) -> dict[str, Any]:
    rows = ROWS // engine.data_parallel_size
    first = engine.data_parallel_rank * rows
    return {name: tensor[first : first + rows] for name, tensor in batch.items()}


def toy_loss(logprobs: Any, values: Any, micro: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    policy = -(logprobs * micro["weights"]).mean()
    value = ((values - micro["returns"]) ** 2).mean()
    return policy + value, {"loss": (policy + value).detach(), "value_loss": value.detach()}


def cached_logprobs(engine: Any, tokens: Any) -> list[list[float]] | None:
    """The log-probs of the given response as the cache sees them: sampling, but with the draw forced. Leader only."""
    import torch

    from suite.worker.engines.megatron.generate import Sampler
    from suite.worker.samples import Samples

    class Forced(Sampler):
        def _draw(self, logits: Any) -> Any:
            forced = tokens[:, PROMPT_TOKENS + len(columns)].contiguous()
            columns.append(torch.log_softmax(logits.float(), dim=-1).gather(1, forced[:, None]).squeeze(1))
            return forced

    columns: list[Any] = []
    engine._policy.eval()
    sampler = Forced(engine._model, temperature=1.0, seed=0)
    assert torch.equal(sampler.sample(prompts_of(Samples.even(tokens, PROMPT_TOKENS))).tokens, tokens)
    return torch.stack(columns, dim=1).tolist() if columns else None


def hugging_face_difference(engine: Any, samples: Any, vocab: int) -> dict[str, float]:
    """Copy a Hugging Face GPT-2's weights (drawn wide, so that a slip shows) into the policy and compare."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(2)
    model, tokens = engine._model, samples.tokens
    config = GPT2Config(vocab_size=vocab, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_inner=FFN)
    config.initializer_range, config.tie_word_embeddings = 0.3, model.share_embeddings_and_output_weights
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    original = GPT2LMHeadModel(config).eval()
    for parameter in original.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    copy_weights(original, model)
    with torch.no_grad():
        logits = original(tokens).logits[:, PROMPT_TOKENS - 1 : -1]
    targets = tokens[:, PROMPT_TOKENS:, None]
    expected = torch.log_softmax(logits, dim=-1).gather(2, targets).squeeze(2)
    logprobs, _ = engine.score(samples)
    parameters = sum(parameter.numel() for parameter in original.parameters())
    return {
        "difference": (logprobs - expected).abs().max().item(),
        "spread": (expected.max() - expected.min()).item(),
        "parameters": parameters,
    }


def attention_difference(engine: Any, groups: int) -> dict[str, float]:
    """The policy's core attention against Megatron's own, on this rank's heads: largest differences."""
    import torch

    from suite.worker.engines.megatron.stack import AttnMaskType, DotProductAttention

    config = copy.copy(engine._model.config)
    config.num_query_groups = groups
    used = type(engine._model.decoder.layers[0].self_attention.core_attention)
    ranks, length = config.tensor_model_parallel_size, PROMPT_TOKENS
    generator = torch.Generator().manual_seed(3)
    inputs = [
        torch.randn(length, ROWS, heads // ranks, HIDDEN // 4, generator=generator) for heads in (4, groups, groups)
    ]
    mask = torch.ones(length, length, dtype=torch.bool).triu_(1)[None, None]
    results = []
    for kind, given in ((DotProductAttention, mask), (used, None)):
        core = kind(config, layer_number=1, attn_mask_type=AttnMaskType.causal, attention_type="self")
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        output = core(*leaves, given, attn_mask_type=AttnMaskType.causal)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        one = core(inputs[0][:1], *inputs[1:], None, attn_mask_type=AttnMaskType.no_mask)
        results.append([output.detach(), one, *(leaf.grad for leaf in leaves)])
    assert used is not DotProductAttention
    names = ("output", "decoding", "query gradient", "key gradient", "value gradient")
    return {name: (a - b).abs().max().item() for name, a, b in zip(names, *results, strict=True)}


def copy_weights(original: Any, model: Any) -> None:
    """A Hugging Face policy's weights into a Megatron model that is whole on this rank; value head and padding stay."""
    source = whole_weights(original, model.unpadded_vocab)
    for name, parameter in model.named_parameters():
        if not name.startswith("value_head"):
            parameter.data[: source[name].size(0)] = source[name]


def whole_weights(original: Any, vocab: int) -> dict[str, Any]:
    """A Hugging Face GPT-2's weights by Megatron's names, in its shapes; query, key and value lie per head there.

    Without padded rows; a value head's weights are as they are.
    """
    import torch

    def interleaved(qkv: torch.Tensor) -> torch.Tensor:
        return qkv.view(3, 4, HIDDEN // 4, -1).transpose(0, 1).reshape(3 * HIDDEN, -1)

    blocks = {
        "ln_1": "input_layernorm",
        "ln_2": "pre_mlp_layernorm",
        "attn.c_attn": "self_attention.linear_qkv",
        "attn.c_proj": "self_attention.linear_proj",
        "mlp.c_fc": "mlp.linear_fc1",
        "mlp.c_proj": "mlp.linear_fc2",
    }
    names = {
        "transformer.wte": "embedding.word_embeddings",
        "transformer.wpe": "embedding.position_embeddings",
        "transformer.ln_f": "decoder.final_layernorm",
        "lm_head": "output_layer",
    }
    for layer in range(LAYERS):
        for theirs, ours in blocks.items():
            names[f"transformer.h.{layer}.{theirs}"] = f"decoder.layers.{layer}.{ours}"
    found = {}
    for name, parameter in original.named_parameters():
        module, _, kind = name.rpartition(".")
        tensor = parameter.detach()
        if ".h." in name and tensor.dim() == 2:
            tensor = tensor.t()  # Conv1D keeps its weight [in, out]
        if "c_attn" in name:
            tensor = interleaved(tensor.reshape(3 * HIDDEN, -1)).reshape(tensor.shape)
        if module in ("transformer.wte", "lm_head"):
            tensor = tensor[:vocab]
        found[f"{names.get(module, module)}.{kind}"] = tensor.clone()
    return found


# --- the launch ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """case -> what each rank saw. One launch for each number of ranks."""
    folder = tmp_path_factory.mktemp("megatron")
    for ranks in (1, 2, 4):
        cases = [case for case, (wanted, _) in CASES.items() if wanted == ranks]
        run_program(["tests.worker.engines.megatron.test_layouts", str(folder), *cases], ranks, folder, 300)
    return {
        case: [json.loads((folder / f"{case}.{rank}.json").read_text()) for rank in range(ranks)]
        for case, (ranks, _) in CASES.items()
    }


def layouts_like(baseline: str) -> list[str]:
    """The cases that differ from the baseline in layout alone."""

    def work(case: str) -> dict[str, Any]:
        return {key: value for key, value in CASES[case][1].items() if key != "layout"}

    return [case for case in CASES if work(case) == work(baseline) and case != baseline]


def whole(ranks: list[dict[str, Any]], field: str) -> list[Any]:
    """The rows of all replicas in order, as their leaders tell them."""
    leaders = sorted((rank for rank in ranks if rank["leader"]), key=lambda rank: rank["replica"])
    return [row for leader in leaders for row in leader[field]]


def steps(ranks: list[dict[str, Any]], field: str) -> list[float]:
    """One figure of each train step, averaged over replicas."""
    leaders = [rank for rank in ranks if rank["leader"]]
    return [sum(leader["steps"][step][field] for leader in leaders) / len(leaders) for step in range(TRAIN_STEPS)]


PAIRS = [
    (baseline, case)
    for baseline in ("one", "one-untied", "one-frozen", "one-bf16", "one-gpt2-vocab", "one-vocab-90")
    for case in layouts_like(baseline)
]


def close(left: list[Any], right: list[Any], tolerance: float) -> bool:
    flat = zip(_flat(left), _flat(right), strict=True)
    return all(abs(a - b) <= tolerance for a, b in flat)


def _flat(rows: list[Any]) -> list[float]:
    return [item for row in rows for item in (_flat(row) if isinstance(row, list) else [row])]


pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]  # the first test waits for all launches


@pytest.mark.parametrize(("baseline", "case"), PAIRS)
def test_every_layout_gives_the_same_logprobs_and_values(seen: Any, baseline: str, case: str) -> None:
    tolerance = 0.02 if "bf16" in case else 1e-5
    for field in ("logprobs", "values"):
        assert close(whole(seen[case], field), whole(seen[baseline], field), tolerance), field


@pytest.mark.parametrize(("baseline", "case"), PAIRS)
def test_every_layout_takes_the_same_training_steps(seen: Any, baseline: str, case: str) -> None:
    tolerance = 0.02 if "bf16" in case else 1e-5
    for field in ("loss", "value_loss", "gradient_norm"):
        assert steps(seen[case], field) == pytest.approx(steps(seen[baseline], field), rel=tolerance), field
    if "bf16" not in case:
        assert close(whole(seen[case], "logprobs_trained"), whole(seen[baseline], "logprobs_trained"), 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_training_lowers_the_loss_and_leaves_the_reference(seen: Any, case: str) -> None:
    losses = steps(seen[case], "loss")
    assert losses[-1] < losses[0] - 0.01
    assert whole(seen[case], "reference") == whole(seen[case], "logprobs")
    assert whole(seen[case], "logprobs_trained") != whole(seen[case], "logprobs")


@pytest.mark.parametrize("case", CASES)
def test_the_cache_gives_the_logprobs_of_the_full_forward(seen: Any, case: str) -> None:
    tolerance = 0.05 if CASES[case][1].get("precision", "fp32") != "fp32" else 1e-5
    assert close(whole(seen[case], "cached"), whole(seen[case], "logprobs"), tolerance)


@pytest.mark.parametrize("case", ["one", "tp2"])
def test_fused_attention_gives_megatrons_outputs_and_gradients(seen: Any, case: str) -> None:
    for rank in seen[case]:
        for groups, differences in rank["attention"].items():
            assert {name: value for name, value in differences.items() if value > 1e-5} == {}, groups


@pytest.mark.parametrize("case", CASES)
def test_the_optimizer_is_one_fused_kernel_as_on_the_other_engine(seen: Any, case: str) -> None:
    for rank in seen[case]:
        assert "optimizer: torch.optim.adamw.AdamW, fused" in rank["notes"]


@pytest.mark.parametrize("case", CASES)
def test_generation_has_the_forced_length_and_no_padded_token(seen: Any, case: str) -> None:
    from_replicas = whole(seen[case], "generated")
    assert len(from_replicas) == ROWS
    for row in from_replicas:
        assert len(row) == PROMPT_TOKENS + NEW_TOKENS
        assert all(0 <= token < vocab_of(case) for token in row)


@pytest.mark.parametrize("case", CASES)
def test_ranks_of_a_replica_agree_and_draw_anew_each_time(seen: Any, case: str) -> None:
    for rank in seen[case]:
        leader = next(other for other in seen[case] if other["leader"] and other["replica"] == rank["replica"])
        for field in ("generated", "generated_again", "logprobs", "values", "reference", "steps"):
            assert rank[field] == leader[field]
        assert rank["generated"] != rank["generated_again"]


@pytest.mark.parametrize("case", ["one-fp16", "pp2-fp16"])
def test_an_overflow_on_one_rank_is_a_skipped_step_on_all(seen: Any, case: str) -> None:
    for rank in seen[case]:
        steps, sums = rank["overflow"]["steps"], rank["overflow"]["sums"]
        assert [step["skipped_steps"] for step in steps] == [0, 1, 0]
        assert "gradient_norm" not in steps[1]
        assert sums[0] == sums[1] != sums[2]


@pytest.mark.parametrize("case", CASES)
def test_training_that_goes_well_skips_no_step(seen: Any, case: str) -> None:
    assert [step["skipped_steps"] for rank in seen[case] for step in rank["steps"]] == [0] * TRAIN_STEPS * len(
        seen[case]
    )


def test_replicas_sample_differently(seen: Any) -> None:
    """The distribution is nearly flat, so one seed in both replicas would draw nearly the same tokens."""
    for case in ("dp2", "dp2-distributed"):
        first, second = (_flat([row[PROMPT_TOKENS:] for row in rank["generated"]]) for rank in seen[case])
        same = sum(left == right for left, right in zip(first, second, strict=True))
        assert same < len(first) / 4


@pytest.mark.parametrize("case", CASES)
def test_each_replica_has_one_leader(seen: Any, case: str) -> None:
    _, asked = CASES[case]
    replicas = asked.get("layout", {}).get("data", 1)
    assert sorted(rank["replica"] for rank in seen[case] if rank["leader"]) == list(range(replicas))
    assert all(rank["replicas"] == replicas for rank in seen[case])


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_gpt2_with_value_head(seen: Any, case: str) -> None:
    asked = CASES[case][1]
    total = expected_parameters(asked.get("tied", True), vocab_of(case))
    layers = asked.get("trainable_layers")
    for rank in seen[case]:
        assert rank["total"] == total
        assert rank["trainable"] == (total if layers is None else trained_parameters(layers))


def test_frozen_layers_stay_and_the_others_move(seen: Any) -> None:
    for case in ("one-frozen", "one-frozen-recompute", "tp2-frozen", "pp2-frozen", "pp2-frozen-distributed"):
        moved = {name for rank in seen[case] for name in rank["moved"]}
        last = f"decoder.layers.{LAYERS - 1}."
        assert all(name.startswith((last, "decoder.final_layernorm", "value_head")) for name in moved), case
        # The key's bias shifts all scores of a query alike, so only its weight must have moved.
        assert {name for name in moved if name.startswith(last)} >= {last + "self_attention.linear_qkv.weight"}
        assert {name for name in moved if name.startswith("value_head")} == {
            "value_head.0.weight",
            "value_head.0.bias",
            "value_head.2.weight",
            "value_head.2.bias",
        }


def test_without_freezing_every_parameter_moves(seen: Any) -> None:
    for case in ("one", "tp2-sp", "pp2", "dp2-distributed", "tp2-sp-pp2"):
        moved = {name for rank in seen[case] for name in rank["moved"]}
        assert {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight"} <= moved
        assert all(f"decoder.layers.{layer}.mlp.linear_fc1.weight" in moved for layer in range(LAYERS))


@pytest.mark.parametrize(
    ("case", "shards"),
    [
        ("one-gpt2-vocab", [(50304, 47)]),
        ("tp2-gpt2-vocab", [(25152, 0), (25152, 47)]),
        ("one-vocab-90", [(128, 38)]),
        ("tp4-vocab-90", [(32, 0), (32, 0), (32, 6), (32, 32)]),
    ],
)
def test_padded_rows_are_never_drawn_nor_counted_nor_trained(
    seen: Any, case: str, shards: list[tuple[int, int]]
) -> None:
    padding = [rank["padding"] for rank in seen[case]]
    assert [(each["shard"], each["rows"]) for each in padding] == shards
    for rank, each in zip(seen[case], padding, strict=True):
        assert close(each["logprobs"], rank["logprobs_trained"], 1e-6)
        assert each["largest_token"] < vocab_of(case)
        assert each["gradient"] == 0
        assert each["other_gradient"] > 0 or each["rows"] == each["shard"]


@pytest.mark.parametrize("case", HUGGING_FACE)
def test_the_architecture_is_hugging_faces_gpt2(seen: Any, case: str) -> None:
    compared = seen[case][0]["hugging_face"]
    assert compared["spread"] > 1, "the comparison would prove nothing"
    assert compared["difference"] < 1e-4
    assert seen[case][0]["total"] == compared["parameters"] + value_head_parameters()


def test_the_notes_name_the_patches(seen: Any) -> None:
    assert sum(note.startswith("CPU patch:") for note in seen["one"][0]["notes"]) == 6


if __name__ == "__main__":
    rank_program(Path(sys.argv[1]), sys.argv[2:])
