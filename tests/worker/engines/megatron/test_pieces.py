"""Parts of the Megatron engine that need no second rank."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.engines.megatron import weights as megatron_weights
from suite.worker.engines.megatron.attention import FusedAttention
from suite.worker.engines.megatron.engine import MegatronEngine
from suite.worker.engines.megatron.stack import AttnMaskType
from suite.worker.world import World
from tests.worker.tiny import tiny_body

CPU = World(0, 1, 0, 1, torch.device("cpu"))
CUDA = World(0, 1, 0, 1, torch.device("cuda", 0))


def manifest() -> dict[str, Any]:
    return tiny_body(backend="megatron", layout={"distributed_optimizer": True}, measure={"precision": "bf16"})


@pytest.mark.parametrize(
    ("section", "field", "value", "world", "message"),
    [
        ("size", "architecture", "opt", CPU, "builds no opt shapes, but gpt2, llama"),
        ("size", "experts", {"count": 4, "per_token": 1}, CPU, "no router that gives"),
        ("workload", "reference", "hydra", CPU, "megatron keeps a full reference copy; use reference full"),
        ("layout", "zero_stage", 2, CPU, "deepspeed"),
        ("layout", "offload_parameters", True, CPU, "deepspeed"),
        ("layout", "offload_optimizer", True, CPU, "means nothing on a CPU"),
    ],
)
def test_what_megatron_cannot_do_is_refused(section: str, field: str, value: Any, world: World, message: str) -> None:
    asked = manifest()
    asked[section][field] = value
    with pytest.raises(ValueError, match=message):
        MegatronEngine(asked, world)


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("layout", "distributed_optimizer", False, "only with the distributed optimizer"),
        ("measure", "precision", "fp32", "in bf16 and fp16 only"),
    ],
)
def test_optimizer_offload_names_what_it_needs(section: str, field: str, value: Any, message: str) -> None:
    asked = manifest()
    asked["layout"]["offload_optimizer"] = True
    asked[section][field] = value
    with pytest.raises(ValueError, match=message):
        MegatronEngine(asked, CUDA)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 16))
def test_shards_of_the_vocabulary_join_to_the_whole_and_zero_padding(vocab: int, ranks: int, multiple: int) -> None:
    name = "embedding.word_embeddings.weight"
    whole = torch.rand(vocab, 3) + 1
    padded = -(-vocab // (multiple * ranks)) * multiple * ranks
    parameter = torch.nn.Parameter(torch.empty(padded // ranks, 3))
    parameter.tensor_model_parallel, parameter.partition_dim = True, 0
    shards = []
    for rank in range(ranks):
        with mock.patch.object(
            megatron_weights.parallel_state, "get_tensor_model_parallel_rank", return_value=rank, create=True
        ):
            shards.append(megatron_weights.shard(whole, name, parameter))
    assert all(shard.shape == parameter.shape for shard in shards)
    joined = torch.cat(shards)
    assert torch.equal(joined[:vocab], whole)
    assert not joined[vocab:].any()


def test_heads_that_share_keys_and_values_read_them_where_they_lie() -> None:
    attention = FusedAttention.__new__(FusedAttention)
    torch.nn.Module.__init__(attention)
    attention.softmax_scale = 0.5
    query, key, value = (torch.randn(5, 2, heads, 4) for heads in (6, 2, 2))
    repeated = (each.repeat_interleave(3, dim=2) for each in (key, value))
    expected = attention(query, *repeated, None, AttnMaskType.causal)
    kernel = torch.nn.functional.scaled_dot_product_attention
    with mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=kernel) as called:
        found = attention(query, key, value, None, AttnMaskType.causal)
    assert [each.data_ptr() for each in called.call_args.args[1:]] == [key.data_ptr(), value.data_ptr()]
    assert torch.allclose(found, expected, atol=1e-6)
