"""From equal weights both engines take the same optimizer steps, in every family, on the same uneven samples.

In bf16 each is as far from fp32 as bf16's rounding says, and not further from the other. Run as a script this file is
the program of one rank: ``python -m tests.worker.engines.test_agreement FAMILY...``.
"""

import json
import sys
from typing import Any

import pytest

from tests.worker.engines.cases import asked_for, cases_of
from tests.worker.engines.megatron.families import load_checkpoint, size_of, weights_of
from tests.worker.tiny import be_rank, tiny_body, told_by_ranks

STEPS, SECONDS = 3, 500.0
PROMPTS, RESPONSES = [3, 7, 5, 7, 4, 6, 7, 2], [4, 9, 1, 6, 12, 3, 5, 8]
ROWS = len(PROMPTS)
#: half the distance from 1 to the next number of bf16: what rounding changes at most, relative to the number
ROUNDING = 2.0**-8
#: PPO, which has values, on GPT-2's own vocabulary; GRPO on the others
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"layers": 4, "vocab": 50257, "tied_embeddings": True},
    "llama": {},
    "qwen2": {},
    "qwen3": {},
}
#: by ranks: engine and layout of equal work; the first in fp32 is the measure
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"deepspeed zero2": {"zero_stage": 2}, "megatron": {}},
    2: {
        "deepspeed zero2 dp2 packed": {"zero_stage": 2, "packing": True},
        "megatron dist-opt dp2": {"distributed_optimizer": True},
        "megatron tp2 sp": {"tensor": 2, "data": 1, "sequence_parallel": True},
        "megatron pp2 packed": {"pipeline": 2, "data": 1, "packing": True},
    },
}
CASES = [f"{family} on {ranks}" for ranks in LAYOUTS for family in FAMILIES]
IN_EVERY_ROUND, QUICK = ("gpt2 on 1", "gpt2 on 2", "qwen3 on 2"), ("qwen3 on 2",)


# --- the program of one rank -----------------------------------------------------------------------------------------


def manifest_of(family: str, ranks: int, layout: dict[str, Any], precision: str) -> dict[str, Any]:
    work = {"rollouts": ROWS // ranks, "optimizer": {"learning_rate": 1e-3}}
    return tiny_body(
        ranks,
        shape=size_of(family, **FAMILIES[family]),
        layout=layout,
        workload=work if family == "gpt2" else {**work, "algorithm": "grpo"},
        measure={"precision": precision},
        silence_seconds=300,
    )


def rank_program(world: Any) -> None:
    """Each family in every layout, in fp32 and bf16; DeepSpeed first: Megatron's CPU patches are process-wide."""
    from suite.worker.engines.deepspeed import engine as deepspeed
    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state

    families = sys.argv[1:]
    deepspeed.draw_weights = rounded(deepspeed.draw_weights)
    seen: dict[str, dict[str, Any]] = {family: {} for family in families}
    starts: dict[str, Any] = {}
    runs = [(layout, family) for layout in LAYOUTS[world.world_size] for family in families]
    for layout, family in runs:
        for precision in ("fp32", "bf16"):
            manifest = manifest_of(family, world.world_size, LAYOUTS[world.world_size][layout], precision)
            if layout.startswith("deepspeed"):
                engine = deepspeed.DeepSpeedEngine(manifest, world)
                starts.setdefault(family, weights_of(engine._policy))
                count_steps_from_zero(engine._engine.optimizer)
                exact = [buffer.dtype for name, buffer in engine._policy.named_buffers() if name.endswith("inv_freq")]
                assert all(str(each) == "torch.float32" for each in exact) and bool(exact) == (family != "gpt2")
            else:
                engine = MegatronEngine(manifest, world)
                load_checkpoint(engine._model, manifest["size"], starts[family])
                engine._optimizer.reload_model_params()
            seen[family][f"{precision} {layout}"] = observe(engine, manifest)
            if not layout.startswith("deepspeed"):
                parallel_state.destroy_model_parallel()
    print(json.dumps({f"{family} on {world.world_size}": compared(runs) for family, runs in seen.items()}))


def rounded(draw: Any) -> Any:
    """Weights as they are drawn, rounded to bf16 in fp32 too."""
    import torch

    @torch.no_grad()
    def draw_rounded(model: Any, *arguments: Any) -> None:
        draw(model, *arguments)
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())

    return draw_rounded


def count_steps_from_zero(optimizer: Any) -> None:
    """Without ZeRO, DeepSpeed's 16-bit optimizer takes a step without gradients as it is built, and AdamW counts it.

    Its bias correction would then make the first update 0.74 times as large as that of every other layout.
    """
    for state in getattr(optimizer, "optimizer", optimizer).state.values():
        state["step"].zero_()


def observe(engine: Any, manifest: dict[str, Any]) -> dict[str, Any]:
    """This replica's scores before and after some steps, their statistics, and the weights' updates."""
    import torch

    from suite.worker.algorithms import build_algorithm
    from suite.worker.samples import Samples

    vocab, rows = manifest["size"]["vocab"], ROWS // engine.data_parallel_size
    own = range(engine.data_parallel_rank * rows, (engine.data_parallel_rank + 1) * rows)
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(vocab, (ROWS, max(map(sum, zip(PROMPTS, RESPONSES, strict=True)))), generator=generator)
    everyone = Samples(tokens, PROMPTS, RESPONSES)
    samples, mask = everyone.take(own), everyone.mask()
    parts = rows // manifest["work"]["micro_batch"] * engine.data_parallel_size
    noise = torch.randn(4, *mask.shape, generator=generator)
    # Off policy where the clips bite, and far from where they begin, which rounding would decide. These small weights
    # give the log-prob of a uniform draw and values of nothing.
    off_policy = 0.6 * noise.sign() * (noise.abs() > 0.7)
    batch = {
        "logprobs": off_policy[0] - torch.tensor(float(vocab)).log(),
        "advantages": noise[1],
        "values": off_policy[2],
        "returns": noise[3],
        "mask": mask,
        "weight": mask.float() * parts / mask.sum(),
    }
    here = (slice(own.start, own.stop), slice(samples.longest_response))

    def scores(when: str) -> dict[str, Any]:
        found = {}
        for name, part in zip(("logprobs", "values"), engine.score(samples), strict=True):
            if part is not None:
                found[f"{name} {when}"] = torch.full(mask.shape, torch.nan)
                found[f"{name} {when}"][here] = part
        return {name: whole.masked_fill(~mask, torch.nan) for name, whole in found.items()}

    before = {name: tensor.float().clone() for name, tensor in engine.weights() if is_compared(name)}
    seen = scores("before")
    loss = build_algorithm(manifest["workload"]).loss
    batch = {name: tensor[here] for name, tensor in batch.items()}
    steps = [engine.train(samples, dict(batch), loss) for _ in range(STEPS)]
    after = {name: tensor.float() for name, tensor in engine.weights() if is_compared(name)}
    updates = {name: after[name] - before[name] for name in before}
    return {"steps": steps, "scores": {**seen, **scores("after")}, "updates": updates}


def is_compared(name: str) -> bool:
    """Not the biases of keys, whose gradient is nothing but rounding (they shift all scores of a query alike).

    Nor norms: in bf16 the next number to 1 is further from it than a few updates go.
    """
    return not any(part in name for part in ("norm", ".ln_", "k_proj.bias", "c_attn.bias"))


def compared(seen: dict[str, Any]) -> dict[str, Any]:
    """Of each run its steps, and how far it is from the first in fp32 and from the first in its own precision."""
    told = {}
    for name, one in seen.items():
        precision = name.split()[0]
        first = {each: next(run for other, run in seen.items() if other.startswith(each)) for each in ("fp32", "bf16")}
        told[name] = {
            "steps": one["steps"],
            "to fp32": apart(one, first["fp32"]),
            "to first": apart(one, first[precision]),
        }
    return told


def apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Of scores the ``distance``, of updates the root of its mean square over the weights."""
    found = {name: distance(one["scores"][name], score) for name, score in other["scores"].items()}
    squares = [distance(one["updates"][name], update) ** 2 for name, update in other["updates"].items()]
    assert len(squares) > 10
    return {**found, "updates": (sum(squares) / len(squares)) ** 0.5}


def distance(tensor: Any, reference: Any) -> float:
    """Root mean square difference, relative to how the reference's numbers spread."""
    both = ~(tensor.isnan() | reference.isnan())
    difference, reference = (tensor - reference)[both].double(), reference[both].double()
    spread = reference - reference.mean() if reference.numel() > 1 else reference
    return float((difference.square().mean() / spread.square().mean()).sqrt())


# --- the tests -------------------------------------------------------------------------------------------------------

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(2 * SECONDS)]
every_case = pytest.mark.parametrize("case", cases_of(CASES, IN_EVERY_ROUND, QUICK))


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By case, what rank 0 saw in each layout and precision."""
    folder, cases = tmp_path_factory.mktemp("agreement"), asked_for(request, CASES)
    found = {}
    for ranks in LAYOUTS:
        families = [case.split()[0] for case in cases if case.endswith(f" {ranks}")]
        if families:
            found.update(told_by_ranks(["tests.worker.engines.test_agreement", *families], ranks, folder, SECONDS)[0])
    return found


def of_precision(seen: dict[str, Any], case: str, precision: str) -> dict[str, Any]:
    return {name: one for name, one in seen[case].items() if name.startswith(precision)}


@every_case
def test_in_fp32_every_layout_of_both_engines_takes_the_same_steps(seen: dict[str, Any], case: str) -> None:
    for name, one in of_precision(seen, case, "fp32").items():
        far = one["to fp32"]
        assert far.pop("updates") < 1e-2, name  # a gradient near nothing may change its sign, and AdamW its step
        assert max(far.values()) < 1e-4, (name, far)


@every_case
def test_in_bf16_both_are_as_far_from_fp32_as_its_rounding_says(seen: dict[str, Any], case: str) -> None:
    """Some roundings to 2^-8 on the way from the embedding to the head; less than half of one would be no bf16."""
    most = {"logprobs before": 4, "values before": 4, "logprobs after": 8, "values after": 16, "updates": 32}
    for name, one in of_precision(seen, case, "bf16").items():
        far = one["to fp32"]
        assert far.keys() >= ({"values before", "values after"} if case.startswith("gpt2") else {"logprobs before"})
        for each, distance_to_fp32 in far.items():
            assert ROUNDING / 2 < distance_to_fp32 < most[each] * ROUNDING, (name, each, far)


@every_case
def test_in_bf16_the_engines_differ_as_independent_roundings_would_or_less(seen: dict[str, Any], case: str) -> None:
    """Independent errors add as squares; a systematic difference, up to the plain sum, would show beyond."""
    measure, *others = of_precision(seen, case, "bf16").values()
    for one in others:
        for each, difference in one["to first"].items():
            own, firsts = one["to fp32"][each], measure["to fp32"][each]
            assert 1 / 2 < own / firsts < 2, (each, own, firsts)
            assert difference < 1.2 * (own**2 + firsts**2) ** 0.5, (each, difference, own, firsts)


@every_case
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 0.02)])
def test_both_tell_the_same_losses_and_clip_the_same_gradient_norms(seen, case, precision, tolerance):
    for steps in zip(*(one["steps"] for one in of_precision(seen, case, precision).values()), strict=True):
        for figure in ("gradient_norm", *(("loss", "value_loss") if case == "gpt2 on 1" else ())):
            told = [step[figure] for step in steps]
            assert told == pytest.approx([told[0]] * len(told), rel=tolerance), figure
    first, *_, last = steps_of = next(iter(of_precision(seen, case, precision).values()))["steps"]
    assert case.startswith("gpt2") or first["gradient_norm"] > 1e-3
    assert not case.startswith("gpt2") or (first["gradient_norm"] > 1 and last["loss"] < first["loss"]), steps_of


if __name__ == "__main__":
    be_rank(rank_program)
