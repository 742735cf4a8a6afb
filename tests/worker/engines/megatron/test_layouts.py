"""Real Megatron ranks on the CPU: one model, Hugging Face's of its family, gives the same numbers in every layout.

Run as a script this file is the program of one rank: ``python -m tests.worker.engines.megatron.test_layouts FOLDER
CASE...``.
"""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.cases import asked_for, cases_of
from tests.worker.engines.megatron.families import (
    HIDDEN,
    LAYERS,
    VOCAB,
    checkpoint_of,
    hugging_face_model,
    load_checkpoint,
    size_of,
)
from tests.worker.tiny import be_rank, run_program, tiny_body

STEPS = 3
EVEN = ([8] * 4, [8] * 4)
UNEVEN = ([3, 7, 5, 7], [4, 9, 1, 6])


@dataclass(frozen=True)
class Case:
    """A layout, and the work whose first case is what the others are compared with."""

    ranks: int
    family: str
    size: dict[str, Any]
    lengths: tuple[list[int], list[int]]
    trainable_layers: int | None
    precision: str
    layout: dict[str, Any]

    @property
    def work(self) -> tuple[Any, ...]:
        return self.size, self.lengths, self.trainable_layers, self.precision

    @property
    def multiple(self) -> int:
        """Of which the length of a micro batch is one."""
        return self.layout["tensor"] if self.layout.get("sequence_parallel") else 1


def gpt2(
    ranks: int = 1, *, trainable_layers: int | None = None, precision: str = "fp32", size: Any = None, **layout: Any
) -> Case:
    return Case(ranks, "gpt2", size_of("gpt2", **size or {}), EVEN, trainable_layers, precision, layout)


def uneven(family: str, ranks: int = 1, **layout: Any) -> Case:
    return Case(ranks, family, size_of(family), UNEVEN, None, "fp32", layout)


TP2, PP2, DP2 = {"ranks": 2, "tensor": 2}, {"ranks": 2, "pipeline": 2}, {"ranks": 2, "data": 2}
TP2_SP = {**TP2, "sequence_parallel": True}
SHARDED, AGAIN = {"distributed_optimizer": True}, {"recompute": "full"}
UNTIED, FROZEN = {"size": {"tied_embeddings": False}}, {"trainable_layers": 1}
#: padded to 384 rows, of which half are no multiple of 128; to 128 rows, of which the second rank holds padding alone
VOCAB_300, VOCAB_60 = {"size": {"vocab": 300}}, {"size": {"vocab": 60}}
CASES: dict[str, Case] = {
    "gpt2": gpt2(),
    "gpt2-recompute": gpt2(**AGAIN),
    "gpt2-packed": gpt2(packing=True),
    "gpt2-fp16": gpt2(precision="fp16"),
    "gpt2-untied": gpt2(**UNTIED),
    "gpt2-frozen": gpt2(**FROZEN),
    "gpt2-frozen-recompute": gpt2(**FROZEN, **AGAIN),
    "gpt2-vocab-300": gpt2(**VOCAB_300),
    "gpt2-vocab-60": gpt2(**VOCAB_60),
    "gpt2-tp2": gpt2(**TP2),
    "gpt2-tp2-vocab-300": gpt2(**TP2, **VOCAB_300),
    "gpt2-tp2-vocab-60": gpt2(**TP2, **VOCAB_60),
    "gpt2-tp2-sp-recompute-distributed": gpt2(**TP2_SP, **AGAIN, **SHARDED),
    "gpt2-tp2-sp-packed": gpt2(**TP2_SP, packing=True),
    "gpt2-tp2-frozen": gpt2(**TP2, **FROZEN),
    "gpt2-pp2-fp16": gpt2(**PP2, precision="fp16"),
    "gpt2-pp2": gpt2(**PP2),
    "gpt2-pp2-untied": gpt2(**PP2, **UNTIED),
    "gpt2-pp2-frozen-distributed": gpt2(**PP2, **FROZEN, **SHARDED),
    "gpt2-dp2": gpt2(**DP2),
    "gpt2-dp2-distributed": gpt2(**DP2, **SHARDED),
    "gpt2-tp2-sp-pp2": gpt2(**{**TP2_SP, "ranks": 4}, pipeline=2),
    "gpt2-tp2-dp2-distributed": gpt2(**{**TP2, "ranks": 4}, data=2, **SHARDED),
    "llama": uneven("llama"),
    "llama-packed": uneven("llama", packing=True),
    "llama-tp2-sp": uneven("llama", **TP2_SP),
    "llama-tp2-sp-packed-recompute": uneven("llama", **TP2_SP, **AGAIN, packing=True),
    "llama-pp2-packed": uneven("llama", **PP2, packing=True),
    "qwen2": uneven("qwen2"),
    "qwen2-tp2": uneven("qwen2", **TP2),
    "qwen3": uneven("qwen3"),
    "qwen3-tp2-sp": uneven("qwen3", **TP2_SP),
    "qwen3-pp2": uneven("qwen3", **PP2),
    "mixtral": uneven("mixtral"),
    "mixtral-ep2": uneven("mixtral", **DP2, expert=2),
    "qwen3_moe": uneven("qwen3_moe"),
    "qwen3_moe-ep2-distributed-packed": uneven("qwen3_moe", **DP2, **SHARDED, expert=2, packing=True),
    "qwen3_moe-pp2": uneven("qwen3_moe", **PP2),
}
ONLY_THOROUGH = (
    *("gpt2-packed", "gpt2-frozen-recompute", "gpt2-tp2-frozen", "gpt2-tp2-vocab-300", "gpt2-pp2", "gpt2-dp2"),
    *("gpt2-recompute", "gpt2-tp2", "mixtral-ep2"),
    *("gpt2-vocab-300", "gpt2-tp2-sp-pp2", "gpt2-tp2-dp2-distributed", "llama-tp2-sp", "qwen3-pp2", "qwen3_moe-pp2"),
)
BASELINES = {name: next(other for other in CASES if CASES[other].work == case.work) for name, case in CASES.items()}


def manifest_of(case: Case) -> dict[str, Any]:
    return tiny_body(
        case.ranks,
        backend="megatron",
        shape=case.size,
        layout={"data": 1, **case.layout},
        workload={"trainable_layers": case.trainable_layers, "optimizer": {"learning_rate": 1e-3}},
        measure={"precision": case.precision, "seed": 11},
        silence_seconds=300,
    )


def value_head_parameters() -> int:
    return (HIDDEN + 1) * 2 * HIDDEN + 2 * HIDDEN + 1


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(world: Any) -> None:
    """Run each case in turn on this rank; the numbers go to ``CASE.RANK.json``."""
    folder, *cases = sys.argv[1:]
    for name in cases:
        seen = observe(CASES[name], world)
        Path(folder, f"{name}.{world.rank}.json").write_text(json.dumps(seen))


def observe(case: Case, world: Any) -> dict[str, Any]:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.engines.megatron.weights import global_parameters

    engine = MegatronEngine(manifest_of(case), world)
    rows = range(4)[engine.data_parallel_rank :: engine.data_parallel_size]
    samples = fixed_samples(case).take(rows)
    original = hugging_face_model(case.size)
    checkpoint = checkpoint_of(original, case.size)
    last = (f"transformer.h.{LAYERS - 1}.", "transformer.ln_f")
    seen: dict[str, Any] = {
        "total": engine.total_parameters,
        "trainable": engine.trainable_parameters,
        "parameters": sum(parameter.numel() for parameter in original.parameters()),
        "last_block": sum(one.numel() for name, one in original.named_parameters() if name.startswith(last)),
        "leader": engine.replica_leader,
        "replica": engine.data_parallel_rank,
        "replicas": engine.data_parallel_size,
        "notes": engine.notes,
        "drawn": {name: tensor.double().sum().item() for name, tensor in engine.weights()},
        "logprobs_drawn": engine.score(samples)[0].tolist(),
        "expected": expected_logprobs(original, samples),
        "checkpoint": sorted(checkpoint),
    }
    load_checkpoint(engine._model, case.size, checkpoint)
    engine._optimizer.reload_model_params()
    seen["exported"] = {name: _equal(tensor, checkpoint.get(name)) for name, tensor in engine.weights()}
    logprobs, values = engine.score(samples)
    seen.update(logprobs=logprobs.tolist(), values=values.tolist(), cached=cached_logprobs(engine, samples))
    seen["generated"] = [generated(engine, samples) for _ in range(2)]
    batch = fixed_batch(samples, rows)
    before = {name: parameter.detach().clone() for name, parameter in global_parameters(engine._model)}
    seen["steps"] = [engine.train(samples, batch, toy_loss) for _ in range(STEPS)]
    moved = [name for name, one in global_parameters(engine._model) if not torch.equal(one, before[name])]
    seen["moved"] = sorted(moved)
    seen["logprobs_trained"] = engine.score(samples)[0].tolist()
    seen["reference"] = engine.reference(samples).tolist()
    if case.size["vocab"] != VOCAB:
        seen["padding"] = fill_padding(engine, samples, batch)
    if case.precision == "fp16":
        seen["overflow"] = overflow(engine, samples, batch)
    if case == CASES["gpt2"]:
        seen["attention"] = {groups: attention_difference(engine, groups) for groups in (2, 4)}
    parallel_state.destroy_model_parallel()
    return seen


def fixed_samples(case: Case) -> Any:
    import torch

    from suite.worker.samples import Samples

    prompts, responses = case.lengths
    ends = torch.tensor([prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    columns = int(ends.max())
    tokens = torch.randint(case.size["vocab"], (4, columns), generator=torch.Generator().manual_seed(5))
    return Samples(tokens * (torch.arange(columns) < ends.unsqueeze(1)), prompts, responses)


def prompts_of(samples: Any) -> Any:
    """The prompts alone, with the lengths that their responses are to have."""
    from suite.worker.samples import Samples

    columns = max(samples.prompt_lengths)
    return Samples(samples.tokens[:, :columns], samples.prompt_lengths, samples.response_lengths)


def fixed_batch(samples: Any, rows: range) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(6)
    weights, returns = (torch.randn(4, 9, generator=generator)[list(rows)] for _ in range(2))
    longest = samples.longest_response
    return {"weights": weights[:, :longest], "returns": returns[:, :longest], "mask": samples.mask()}


def toy_loss(logprobs: Any, values: Any, micro: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    policy = -(logprobs * micro["weights"] * micro["mask"]).sum() / 10
    value = ((values - micro["returns"]) ** 2 * micro["mask"]).sum() / 10
    return policy + value, {"loss": (policy + value).detach(), "value_loss": value.detach()}


def expected_logprobs(original: Any, samples: Any) -> list[list[float]]:
    """Each sample alone through the Hugging Face model."""
    import torch

    found = torch.zeros(len(samples), samples.longest_response)
    for row, (prompt, length) in enumerate(zip(samples.prompt_lengths, samples.lengths, strict=True)):
        tokens = samples.tokens[row : row + 1, :length]
        with torch.no_grad():
            logits = original(tokens).logits[:, prompt - 1 : -1]
        chosen = torch.log_softmax(logits, dim=-1).gather(2, tokens[:, prompt:, None])
        found[row, : length - prompt] = chosen.flatten()
    return found.tolist()


def generated(engine: Any, samples: Any) -> dict[str, Any]:
    import torch

    made = engine.generate(prompts_of(samples))
    mask = torch.arange(made.tokens.size(1)) < torch.tensor(made.lengths).unsqueeze(1)
    own = zip(made.tokens, samples.tokens, samples.prompt_lengths, strict=True)
    return {
        "tokens": made.tokens.tolist(),
        "lengths": made.lengths,
        "kept": all(torch.equal(ours[:prompt], given[:prompt]) for ours, given, prompt in own),
        "beyond": int(made.tokens[~mask].abs().sum()),
        "finish_seconds": list(engine.finish_seconds),
    }


def cached_logprobs(engine: Any, samples: Any) -> list[list[float]] | None:
    """Log-probs of the samples' own responses as the cache sees them: sampling, with the draw forced. Leader only."""
    import torch

    from suite.worker.engines.megatron.generate import Sampler

    columns: list[Any] = []

    class Forced(Sampler):
        def _draw(self, logits: Any) -> Any:
            column = first + len(columns)
            inside = column < samples.tokens.size(1)  # expert ranks go on with the longest of them all
            forced = samples.tokens[:, column].contiguous() if inside else torch.zeros_like(samples.tokens[:, 0])
            columns.append(torch.log_softmax(logits.float(), dim=-1).gather(1, forced[:, None]).squeeze(1))
            return forced

    engine._policy.eval()
    sampler = Forced(engine._model, temperature=1.0, seed=0)
    first = sampler._steps(samples)[0]
    assert torch.equal(sampler.sample(prompts_of(samples)).tokens, samples.tokens)
    if not columns:
        return None
    whole_rows, found = torch.stack(columns, dim=1), torch.zeros(len(samples), samples.longest_response)
    for row, (prompt, length) in enumerate(zip(samples.prompt_lengths, samples.lengths, strict=True)):
        found[row, : length - prompt] = whole_rows[row, prompt - first : length - first]
    return found.tolist()


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
    tokens = engine.generate(prompts_of(samples)).tokens
    engine.train(samples, batch, toy_loss)
    gradient = parameter.main_grad
    return {
        "shard": parameter.size(0),
        "rows": gradient[padding].size(0),
        "logprobs": logprobs.tolist(),
        "largest_token": int(tokens.max()),
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


def attention_difference(engine: Any, groups: int) -> dict[str, float]:
    """The policy's core attention against Megatron's own: largest differences."""
    import torch

    from suite.worker.engines.megatron.stack import AttnMaskType, DotProductAttention

    config = copy.copy(engine._model.config)
    config.num_query_groups = groups
    used = type(engine._model.decoder.layers[0].self_attention.core_attention)
    length, generator = 8, torch.Generator().manual_seed(3)
    inputs = [torch.randn(length, 4, heads, HIDDEN // 4, generator=generator) for heads in (4, groups, groups)]
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


def _equal(exported: Any, original: Any) -> bool:
    return original is not None and exported.shape == original.shape and bool((exported == original).all())


# --- the launch ------------------------------------------------------------------------------------------------------

Seen = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """case -> what each rank saw. One launch for each number of ranks."""
    folder = tmp_path_factory.mktemp("megatron")
    asked = asked_for(request, CASES)
    cases = [case for case in CASES if case in asked or case in {BASELINES[each] for each in asked}]
    for ranks in sorted({CASES[case].ranks for case in cases}):
        own = [case for case in cases if CASES[case].ranks == ranks]
        run_program(["tests.worker.engines.megatron.test_layouts", str(folder), *own], ranks, folder, SECONDS)
    return {
        case: [json.loads((folder / f"{case}.{rank}.json").read_text()) for rank in range(CASES[case].ranks)]
        for case in cases
    }


def whole(ranks: list[dict[str, Any]], field: str) -> list[Any]:
    """The rows of all replicas in order, as their leaders tell them, each to the longest response of all."""
    leaders = {rank["replica"]: rank[field] for rank in ranks if rank["leader"]}
    rows = [leaders[row % len(leaders)][row // len(leaders)] for row in range(4)]
    return [row + [0.0] * (max(map(len, rows)) - len(row)) for row in rows]


def mean_steps(ranks: list[dict[str, Any]], field: str) -> list[float]:
    """One figure of each train step, averaged over replicas."""
    leaders = [rank for rank in ranks if rank["leader"]]
    return [sum(leader["steps"][step][field] for leader in leaders) / len(leaders) for step in range(STEPS)]


def apart(left: list[Any], right: list[Any]) -> float:
    """The largest difference of two tables."""
    pairs = [pair for rows in zip(left, right, strict=True) for pair in zip(*rows, strict=True)]
    return max(abs(one - other) for one, other in pairs)


SECONDS = 500.0
pytestmark = [pytest.mark.ranks, pytest.mark.timeout(3 * SECONDS)]  # the first test waits for all launches
IN_EVERY_ROUND = [case for case in CASES if case not in ONLY_THOROUGH]


def the(cases: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases_of(cases, IN_EVERY_ROUND))


every_case = the(list(CASES))
every_other_layout = the([case for case, baseline in BASELINES.items() if case != baseline])


def rounding(case: str) -> float:
    """What the half precision of a case makes of its tolerance."""
    return 1.0 if CASES[case].precision == "fp32" else 2000.0


@every_case
def test_the_logprobs_are_hugging_faces(seen: Seen, case: str) -> None:
    expected = whole(seen[case], "expected")
    assert max(map(max, expected)) - min(map(min, expected)) > 3, "the comparison would prove nothing"
    assert apart(whole(seen[case], "logprobs"), expected) < 1e-4 * rounding(case)


@every_case
def test_the_weights_come_out_under_hugging_faces_names_and_all_are_counted(seen: Seen, case: str) -> None:
    for rank in seen[case]:
        assert sorted(rank["exported"]) == rank["checkpoint"]
        if CASES[case].precision == "fp32":
            assert [name for name, is_equal in rank["exported"].items() if not is_equal] == []
        assert rank["total"] == rank["parameters"] + value_head_parameters()
        frozen = rank["last_block"] + value_head_parameters()
        assert rank["trainable"] == (frozen if CASES[case].trainable_layers else rank["total"])


@every_other_layout
def test_one_seed_draws_one_model_and_takes_the_same_steps_in_every_layout(seen: Seen, case: str) -> None:
    own, baseline = seen[case], seen[BASELINES[case]]
    for rank in own:
        assert rank["drawn"] == pytest.approx(baseline[0]["drawn"], abs=1e-9)
    for field in ("values", "logprobs_trained"):
        assert apart(whole(own, field), whole(baseline, field)) < 2e-5 * rounding(case), field
    for field in ("loss", "value_loss", "gradient_norm"):
        theirs = pytest.approx(mean_steps(baseline, field), rel=2e-5 * rounding(case))
        assert mean_steps(own, field) == theirs, field


@every_case
def test_training_lowers_the_loss_skips_no_step_and_leaves_the_reference(seen: Seen, case: str) -> None:
    losses = mean_steps(seen[case], "loss")
    assert losses[-1] < losses[0] - 0.01
    assert [step["skipped_steps"] for rank in seen[case] for step in rank["steps"]] == [0] * STEPS * len(seen[case])
    assert whole(seen[case], "reference") == whole(seen[case], "logprobs_drawn")
    assert whole(seen[case], "logprobs_trained") != whole(seen[case], "logprobs")


@every_case
def test_the_cache_gives_the_logprobs_of_the_full_forward(seen: Seen, case: str) -> None:
    assert apart(whole(seen[case], "cached"), whole(seen[case], "logprobs")) < 2e-5 * rounding(case)


@every_case
def test_every_sample_gets_its_own_length_and_its_own_end_and_no_padded_token(seen: Seen, case: str) -> None:
    for rank in seen[case]:
        for told in rank["generated"]:
            assert told["kept"] and told["beyond"] == 0
            assert max(map(max, told["tokens"])) < CASES[case].size["vocab"]
            ends = dict(sorted(zip(told["lengths"], told["finish_seconds"], strict=True)))
            assert list(ends.values()) == sorted(ends.values()) and min(ends.values()) > 0
            assert len(set(ends.values())) == len(set(told["lengths"]))
    lengths = [sum(each) for each in zip(*CASES[case].lengths, strict=True)]
    told = {rank["replica"]: rank["generated"][0]["lengths"] for rank in seen[case]}
    assert [told[row % len(told)][row // len(told)] for row in range(4)] == lengths


@every_case
def test_ranks_of_a_replica_agree_and_draw_anew_each_time(seen: Seen, case: str) -> None:
    replicas = CASES[case].layout.get("data", 1)
    leaders = {rank["replica"]: rank for rank in seen[case] if rank["leader"]}
    assert sorted(leaders) == list(range(replicas)) and len(seen[case]) >= len(leaders)
    for rank in seen[case]:
        leader = leaders[rank["replica"]]
        assert rank["replicas"] == replicas
        assert all(rank[field] == leader[field] for field in ("logprobs", "values", "reference", "steps"))
        first, again = ([told["tokens"] for told in each["generated"]] for each in (rank, leader))
        assert first == again and first[0] != first[1]


@every_case
def test_padding_is_counted_and_packing_has_none(seen: Seen, case: str) -> None:
    """Rows of a micro batch: 0 and 1, then 2 and 3; of two replicas 0 and 2, and 1 and 3."""
    own, wanted = CASES[case], 0
    lengths = [sum(each) for each in zip(*own.lengths, strict=True)]
    step = own.layout.get("data", 1)
    for micro in (lengths[:2], lengths[2:]) if step == 1 else (lengths[::2], lengths[1::2]):
        rows = [sum(micro)] if own.layout.get("packing") else [max(micro)] * 2
        wanted += sum(row + -row % own.multiple for row in rows) - sum(micro)
    assert [each * step for each in mean_steps(seen[case], "padded_tokens")] == [wanted] * STEPS


@the(["gpt2-fp16", "gpt2-pp2-fp16"])
def test_an_overflow_on_one_rank_is_a_skipped_step_on_all(seen: Seen, case: str) -> None:
    for rank in seen[case]:
        steps, sums = rank["overflow"]["steps"], rank["overflow"]["sums"]
        assert [step["skipped_steps"] for step in steps] == [0, 1, 0]
        assert "gradient_norm" not in steps[1]
        assert sums[0] == sums[1] != sums[2]


@the(["gpt2-dp2", "gpt2-dp2-distributed"])
def test_replicas_sample_differently(seen: Seen, case: str) -> None:
    first, second = (rank["generated"][0]["tokens"] for rank in seen[case])
    responses = [zip(ours[8:], theirs[8:], strict=True) for ours, theirs in zip(first, second, strict=True)]
    assert sum(one == other for row in responses for one, other in row) < 8


@the([case for case, own in CASES.items() if own.trainable_layers])
def test_frozen_layers_stay_and_the_others_move(seen: Seen, case: str) -> None:
    moved, last = {name for rank in seen[case] for name in rank["moved"]}, f"decoder.layers.{LAYERS - 1}."
    assert all(name.startswith((last, "decoder.final_layernorm", "value_head")) for name in moved)
    # The key's bias shifts all scores of a query alike, so only its weight must have moved.
    assert last + "self_attention.linear_qkv.weight" in moved
    head = {f"value_head.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}
    assert {name for name in moved if name.startswith("value_head")} == head


@the([case for case, own in CASES.items() if own.family == "gpt2" and not own.trainable_layers])
def test_without_freezing_every_layer_moves(seen: Seen, case: str) -> None:
    moved = {name for rank in seen[case] for name in rank["moved"]}
    layers = {f"decoder.layers.{layer}.mlp.linear_fc1.weight" for layer in range(LAYERS)}
    assert {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight", *layers} <= moved


#: of each rank, its rows of the vocabulary and how many of them are no token
SHARDS = {
    "gpt2-vocab-300": [(384, 84)],
    "gpt2-tp2-vocab-300": [(192, 0), (192, 84)],
    "gpt2-vocab-60": [(128, 68)],
    "gpt2-tp2-vocab-60": [(64, 4), (64, 64)],
}


@the(list(SHARDS))
def test_padded_rows_are_never_drawn_nor_counted_nor_trained(seen: Seen, case: str) -> None:
    padding = [rank["padding"] for rank in seen[case]]
    assert [(each["shard"], each["rows"]) for each in padding] == SHARDS[case]
    for rank, each in zip(seen[case], padding, strict=True):
        assert apart(each["logprobs"], rank["logprobs_trained"]) < 2e-5
        assert each["largest_token"] < CASES[case].size["vocab"]
        assert each["gradient"] == 0
        assert each["other_gradient"] > 0 or each["rows"] == each["shard"]


@the(["gpt2"])
def test_fused_attention_gives_megatrons_outputs_and_gradients(seen: Seen, case: str) -> None:
    for groups, differences in seen[case][0]["attention"].items():
        assert {name: value for name, value in differences.items() if value > 1e-5} == {}, groups


@every_case
def test_the_notes_name_the_patches_and_the_one_fused_optimizer_as_on_the_other_engine(seen: Seen, case: str) -> None:
    for rank in seen[case]:
        assert any(note.startswith("optimizer: torch.optim.adamw.AdamW, fused") for note in rank["notes"])
        assert sum(note.startswith("CPU patch:") for note in rank["notes"]) == 6


if __name__ == "__main__":
    be_rank(rank_program)
