"""Under ZeRO-3 generation on weights gathered once samples what it samples layer by layer, and trains alike behind it;
weights that are given to a generation engine are whole on every rank.

Run as a script this file is one rank of two: ``python -m tests.worker.engines.deepspeed.test_gathered_generation``.
"""

import json
from typing import Any

import pytest

from tests.worker.tiny import be_rank, tiny_body, told_by_ranks

RANKS, ITERATIONS = 2, 2


def rank_program(world: Any) -> None:
    """Both ways one after the other on this rank; what each did is printed."""
    import torch
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    from suite.worker.loop import Loop
    from suite.worker.recorder import NullRecorder
    from suite.worker.registry import backend_class
    from suite.worker.samples import Samples

    fetches: list[int] = []
    fetch = PartitionedParameterCoordinator.fetch_sub_module

    def counting(*arguments: Any, **options: Any) -> Any:
        fetches.append(1)
        return fetch(*arguments, **options)

    PartitionedParameterCoordinator.fetch_sub_module = counting
    told = []
    for gathers in (False, True):
        layout = {"zero_stage": 3, "gather_for_generation": gathers}
        # wide enough for weights that ZeRO-3 does not keep whole (1e5 elements)
        shape = {"hidden": 192, "ffn": 768, "vocab": 600}
        learning = {"optimizer": {"learning_rate": 1e-2}, "reward": {"kind": "token-below", "threshold": 300}}
        manifest = tiny_body(RANKS, layout=layout, shape=shape, workload=learning, silence_seconds=300)
        engine = backend_class("deepspeed", "cpu")(manifest, world)
        loop = Loop(engine, manifest)
        stats = [loop.run_iteration(iteration, NullRecorder())[1] for iteration in range(ITERATIONS)]
        fetches.clear()
        tokens = engine.generate(Samples(torch.zeros(2, 8, dtype=torch.int64), [8, 8], [8, 8])).tokens
        weights = [(name, list(tensor.shape), float(tensor.double().sum())) for name, tensor in engine.weights()]
        sharded = [parameter for parameter in engine._policy.parameters() if not parameter.ds_persist]
        told.append(
            {
                "stats": stats,
                "tokens": tokens.tolist(),
                "weights": weights,
                "fetches": len(fetches),
                "sharded": len(sharded),
                "whole_elements": sum(parameter.numel() for parameter in sharded),
                "notes": [note for note in engine.notes if "generation under ZeRO-3" in note],
            }
        )
    print(json.dumps(told))


@pytest.mark.ranks
@pytest.mark.ci
@pytest.mark.timeout(400)
def test_weights_gathered_once_give_the_same_tokens_and_losses_and_are_partitioned_again(tmp_path):
    for layers, once in told_by_ranks(["tests.worker.engines.deepspeed.test_gathered_generation"], RANKS, tmp_path):
        assert once["tokens"] == layers["tokens"]
        assert once["stats"] == layers["stats"]
        assert once["weights"] == layers["weights"]
        assert ["transformer.wte.weight", [600, 192]] in [weight[:2] for weight in once["weights"]]  # of 640 rows
        assert not any("value_head" in name for name, _, _ in once["weights"])
        assert layers["fetches"] > 0 == once["fetches"]
        assert once["sharded"] > 0 == once["whole_elements"]
        assert "once" in once["notes"][0] and "for each token" in layers["notes"][0]


if __name__ == "__main__":
    be_rank(rank_program)
