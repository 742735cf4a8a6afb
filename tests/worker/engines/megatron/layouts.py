"""Layouts of Megatron's ranks, and what each rank sees.

``python -m tests.worker.engines.megatron.layouts CASE...`` is one of them.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

from tests.worker.engines.batches import uneven_samples
from tests.worker.engines.megatron.families import LAYERS, checkpoint_of, hugging_face_model, load_checkpoint, size_of
from tests.worker.tiny import be_rank, tiny_body

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
#: padded to 128 rows, of which the second rank holds padding alone
VOCAB_60 = {"size": {"vocab": 60}}
CASES: dict[str, Case] = {
    "gpt2": gpt2(),
    "gpt2-fp16": gpt2(precision="fp16"),
    "gpt2-untied": gpt2(**UNTIED),
    "gpt2-frozen": gpt2(**FROZEN),
    "gpt2-vocab-60": gpt2(**VOCAB_60),
    "gpt2-tp2-vocab-60": gpt2(**TP2, **VOCAB_60),
    "gpt2-tp2-sp-recompute-distributed": gpt2(**TP2_SP, **AGAIN, **SHARDED),
    "gpt2-tp2-sp-packed": gpt2(**TP2_SP, packing=True),
    "gpt2-pp2-fp16": gpt2(**PP2, precision="fp16"),
    "gpt2-pp2-untied": gpt2(**PP2, **UNTIED),
    "gpt2-pp2-frozen-distributed": gpt2(**PP2, **FROZEN, **SHARDED),
    "gpt2-dp2-distributed": gpt2(**DP2, **SHARDED),
    "gpt2-tp2-sp-pp2": gpt2(**{**TP2_SP, "ranks": 4}, pipeline=2),
    "gpt2-tp2-dp2-distributed": gpt2(**{**TP2, "ranks": 4}, data=2, **SHARDED),
    "llama": uneven("llama"),
    "llama-packed": uneven("llama", packing=True),
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
ONLY_THOROUGH = ("gpt2-tp2-sp-pp2", "gpt2-tp2-dp2-distributed", "qwen3-pp2", "mixtral-ep2", "qwen3_moe-pp2")
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


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(world: Any) -> None:
    """Run each case in turn on this rank, and print the numbers by case."""
    print(json.dumps({name: observe(CASES[name], world) for name in sys.argv[1:]}))


def observe(case: Case, world: Any) -> dict[str, Any]:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.engines.megatron.weights import global_parameters

    engine = MegatronEngine(manifest_of(case), world)
    rows = range(4)[engine.data_parallel_rank :: engine.data_parallel_size]
    samples = uneven_samples(case.size["vocab"], *case.lengths, seed=5).take(rows)
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
    seen["exported"] = {name: _equal(one, checkpoint.get(name)) for name, one in engine.weights()}
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
    if case.precision == "fp16":
        seen["overflow"] = overflow(engine, samples, batch)
    parallel_state.destroy_model_parallel()
    return seen


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
    assert torch.equal(sampler.sample(prompts_of(samples))[0].tokens, samples.tokens)
    if not columns:
        return None
    whole_rows, found = torch.stack(columns, dim=1), torch.zeros(len(samples), samples.longest_response)
    for row, (prompt, length) in enumerate(zip(samples.prompt_lengths, samples.lengths, strict=True)):
        found[row, : length - prompt] = whole_rows[row, prompt - first : length - first]
    return found.tolist()


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


def _equal(exported: Any, original: Any) -> bool:
    return original is not None and exported.shape == original.shape and bool((exported == original).all())


def apart(left: list[Any], right: list[Any]) -> float:
    """The largest difference of two tables."""
    pairs = [pair for rows in zip(left, right, strict=True) for pair in zip(*rows, strict=True)]
    return max(abs(one - other) for one, other in pairs)


if __name__ == "__main__":
    be_rank(rank_program)
