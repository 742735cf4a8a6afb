"""Real Megatron ranks on the CPU: every family computes what Hugging Face's own class does, in every layout.

Samples are uneven throughout. Run as a script this file is the program of one rank:
``python -m tests.worker.engines.megatron.test_families OUTPUT_FOLDER CASE...``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.megatron import test_layouts as layouts
from tests.worker.engines.megatron.families import (
    VOCAB,
    checkpoint_of,
    hugging_face_model,
    load_checkpoint,
    size_of,
)
from tests.worker.tiny import run_program

PROMPTS, RESPONSES = [3, 7, 5, 7], [4, 9, 1, 6]
STEPS = 2

#: name -> ranks, family, layout; the first of a family is what its others are compared with
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "gpt2": (1, "gpt2", {}),
    "llama": (1, "llama", {}),
    "llama-packed": (1, "llama", {"packing": True}),
    "qwen2": (1, "qwen2", {}),
    "qwen3": (1, "qwen3", {}),
    "mixtral": (1, "mixtral", {}),
    "qwen3_moe": (1, "qwen3_moe", {}),
    "gpt2-tp2-sp-packed": (2, "gpt2", {"tensor": 2, "sequence_parallel": True, "packing": True}),
    "llama-tp2-sp": (2, "llama", {"tensor": 2, "sequence_parallel": True}),
    "llama-tp2-sp-packed-recompute": (
        2,
        "llama",
        {"tensor": 2, "sequence_parallel": True, "packing": True, "recompute": "full"},
    ),
    "llama-pp2-packed": (2, "llama", {"pipeline": 2, "packing": True}),
    "qwen2-tp2": (2, "qwen2", {"tensor": 2}),
    "qwen3-tp2-sp": (2, "qwen3", {"tensor": 2, "sequence_parallel": True}),
    "qwen3-pp2": (2, "qwen3", {"pipeline": 2}),
    "mixtral-ep2": (2, "mixtral", {"data": 2, "expert": 2}),
    "qwen3_moe-ep2-distributed-packed": (
        2,
        "qwen3_moe",
        {"data": 2, "expert": 2, "distributed_optimizer": True, "packing": True},
    ),
    "qwen3_moe-pp2": (2, "qwen3_moe", {"pipeline": 2}),
}
LIKE = [case for case in CASES if case not in {family for _, family, _ in CASES.values()}]


def manifest_of(case: str) -> dict[str, Any]:
    manifest = layouts.manifest_of("one")
    ranks, family, layout = CASES[case]
    manifest["layout"].update(devices_per_node=ranks, **layout)
    manifest["size"] = size_of(family)
    manifest["work"] = {"micro_batch": 2}
    return manifest


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(folder: Path, cases: list[str]) -> None:
    import torch

    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.rank import read_rank
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(read_rank(os.environ), "cpu", 60.0)
    for case in cases:
        (folder / f"{case}.{world.rank}.json").write_text(json.dumps(observe(case, world)))
        parallel_state.destroy_model_parallel()


def observe(case: str, world: Any) -> dict[str, Any]:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine

    manifest = manifest_of(case)
    engine, size = MegatronEngine(manifest, world), manifest["size"]
    original = hugging_face_model(size)
    checkpoint = checkpoint_of(original, size)
    seen: dict[str, Any] = {
        "total": engine.total_parameters,
        "parameters": sum(parameter.numel() for parameter in original.parameters()),
        "leader": engine.replica_leader,
        "replica": engine.data_parallel_rank,
        "drawn": {name: tensor.double().sum().item() for name, tensor in engine.weights()},
    }
    load_checkpoint(engine._model, size, checkpoint)
    seen["exported"] = {name: _equal(tensor, checkpoint.get(name)) for name, tensor in engine.weights()}
    seen["checkpoint"] = sorted(checkpoint)
    rows = range(len(PROMPTS) // engine.data_parallel_size * engine.data_parallel_rank, len(PROMPTS))
    samples = fixed_samples().take(rows[: len(PROMPTS) // engine.data_parallel_size])
    seen["expected"] = expected_logprobs(original, samples)
    logprobs, values = engine.score(samples)
    seen.update(logprobs=logprobs.tolist(), values=values.tolist(), cached=cached_logprobs(engine, samples))
    generated = engine.generate(layouts.prompts_of(samples))
    mask = torch.arange(generated.tokens.size(1)) < torch.tensor(generated.lengths).unsqueeze(1)
    seen["generated"] = {
        "lengths": generated.lengths,
        "kept": all(
            torch.equal(generated.tokens[row, :length], samples.tokens[row, :length])
            for row, length in enumerate(samples.prompt_lengths)
        ),
        "beyond": int(generated.tokens[~mask].abs().sum()),
        "largest": int(generated.tokens.max()),
        "finish_seconds": list(engine.finish_seconds),
    }
    batch = fixed_batch(samples, rows)
    seen["steps"] = [engine.train(samples, batch, toy_loss) for _ in range(STEPS)]
    seen["logprobs_trained"] = engine.score(samples)[0].tolist()
    seen["reference"] = engine.reference(samples).tolist()
    return seen


def fixed_samples() -> Any:
    import torch

    from suite.worker.samples import Samples

    lengths = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    tokens = torch.randint(VOCAB, (len(PROMPTS), max(lengths)), generator=torch.Generator().manual_seed(5))
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return Samples(tokens * real, PROMPTS, RESPONSES)


def fixed_batch(samples: Any, rows: Any) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(6)
    weights, returns = (torch.randn(len(PROMPTS), max(RESPONSES), generator=generator) for _ in range(2))
    own = slice(rows[0], rows[0] + len(samples))
    cut = slice(samples.longest_response)
    return {"weights": weights[own, cut], "returns": returns[own, cut], "mask": samples.mask()}


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


def cached_logprobs(engine: Any, samples: Any) -> list[list[float]] | None:
    """Log-probs of the samples' own responses as the cache sees them: sampling, with the draw forced. Leader only."""
    import torch

    from suite.worker.engines.megatron.generate import Sampler

    longest = max(min(samples.prompt_lengths), 0)
    columns: list[Any] = []

    class Forced(Sampler):
        def _draw(self, logits: Any) -> Any:
            column = longest + len(columns)
            inside = column < samples.tokens.size(1)  # expert ranks go on with the longest of them all
            forced = samples.tokens[:, column].contiguous() if inside else torch.zeros_like(samples.tokens[:, 0])
            columns.append(torch.log_softmax(logits.float(), dim=-1).gather(1, forced[:, None]).squeeze(1))
            return forced

    engine._policy.eval()
    sampler = Forced(engine._model, temperature=1.0, seed=0)
    longest = sampler._steps(samples)[0]
    assert torch.equal(sampler.sample(layouts.prompts_of(samples)).tokens, samples.tokens)
    if not columns:
        return None
    whole, found = torch.stack(columns, dim=1), torch.zeros(len(samples), samples.longest_response)
    for row, (prompt, length) in enumerate(zip(samples.prompt_lengths, samples.lengths, strict=True)):
        found[row, : length - prompt] = whole[row, prompt - longest : length - longest]
    return found.tolist()


def _equal(exported: Any, original: Any) -> bool:
    return original is not None and exported.shape == original.shape and bool((exported == original).all())


# --- the launch ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """case -> what each rank saw. One launch for each number of ranks."""
    folder = tmp_path_factory.mktemp("families")
    for ranks in (1, 2):
        cases = [case for case, (wanted, _, _) in CASES.items() if wanted == ranks]
        run_program(["tests.worker.engines.megatron.test_families", str(folder), *cases], ranks, folder, 120)
    return {
        case: [json.loads((folder / f"{case}.{rank}.json").read_text()) for rank in range(ranks)]
        for case, (ranks, _, _) in CASES.items()
    }


pytestmark = [pytest.mark.ranks, pytest.mark.timeout(200)]


@pytest.mark.parametrize("case", CASES)
def test_the_logprobs_are_hugging_faces(seen: Any, case: str) -> None:
    expected = layouts.whole(seen[case], "expected")
    flat = layouts._flat(expected)
    assert max(flat) - min(flat) > 3, "the comparison would prove nothing"
    assert layouts.close(padded(seen[case], "logprobs"), padded(seen[case], "expected"), 1e-4)


@pytest.mark.parametrize("case", CASES)
def test_the_weights_come_out_under_hugging_faces_names_on_every_rank(seen: Any, case: str) -> None:
    for rank in seen[case]:
        assert sorted(rank["exported"]) == rank["checkpoint"]
        assert [name for name, is_equal in rank["exported"].items() if not is_equal] == []
        assert rank["total"] == rank["parameters"] + layouts.value_head_parameters()


@pytest.mark.parametrize("case", LIKE)
def test_one_seed_draws_one_model_in_every_layout(seen: Any, case: str) -> None:
    baseline = seen[CASES[case][1]][0]["drawn"]
    for rank in seen[case]:
        assert rank["drawn"] == pytest.approx(baseline, abs=1e-9)


@pytest.mark.parametrize("case", LIKE)
def test_every_layout_takes_the_same_steps_on_uneven_samples(seen: Any, case: str) -> None:
    baseline = seen[CASES[case][1]]
    for field in ("values", "logprobs_trained"):
        assert layouts.close(padded(seen[case], field), padded(baseline, field), 2e-5), field
    for field in ("loss", "value_loss", "gradient_norm"):
        ours, theirs = mean_steps(seen[case], field), mean_steps(baseline, field)
        assert ours == pytest.approx(theirs, rel=2e-5), field
    assert mean_steps(baseline, "loss")[-1] < mean_steps(baseline, "loss")[0] - 0.01


@pytest.mark.parametrize("case", CASES)
def test_the_cache_gives_the_logprobs_of_the_full_forward(seen: Any, case: str) -> None:
    assert layouts.close(padded(seen[case], "cached"), padded(seen[case], "logprobs"), 2e-5)
    assert padded(seen[case], "reference") != padded(seen[case], "logprobs")


@pytest.mark.parametrize("case", CASES)
def test_every_sample_gets_its_own_length_and_its_own_end(seen: Any, case: str) -> None:
    for rank in seen[case]:
        told = rank["generated"]
        assert told["kept"] and told["beyond"] == 0 and told["largest"] < VOCAB
        order = sorted(range(len(told["lengths"])), key=lambda row, told=told: told["lengths"][row])
        ends = [told["finish_seconds"][row] for row in order]
        assert 0 < ends[0] < ends[-1] and ends == sorted(ends)


@pytest.mark.parametrize("case", CASES)
def test_padding_is_counted_and_packing_has_none(seen: Any, case: str) -> None:
    """Micro batches of samples of 7, 16, 6 and 13 tokens: 32 and 26 positions, split over two by sequence parallel."""
    _, _, layout = CASES[case]
    if layout.get("packing"):
        wanted = 1 + 1 if layout.get("sequence_parallel") else 0  # 23 and 19 tokens in a row
    else:
        wanted = (32 - 23) + (26 - 19) + (2 if layout.get("sequence_parallel") else 0)  # 13 columns become 14
    leaders = [rank for rank in seen[case] if rank["leader"]]
    assert [sum(rank["steps"][step]["padded_tokens"] for rank in leaders) for step in range(STEPS)] == [wanted] * STEPS


def padded(ranks: list[dict[str, Any]], field: str) -> list[list[float]]:
    """The rows of all replicas, each to the longest response of all, with zeros behind."""
    return [row + [0.0] * (max(RESPONSES) - len(row)) for row in layouts.whole(ranks, field)]


def mean_steps(ranks: list[dict[str, Any]], field: str) -> list[float]:
    leaders = [rank for rank in ranks if rank["leader"]]
    return [sum(leader["steps"][step][field] for leader in leaders) / len(leaders) for step in range(STEPS)]


if __name__ == "__main__":
    rank_program(Path(sys.argv[1]), sys.argv[2:])
