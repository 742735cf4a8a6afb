"""Parts of the Megatron engine that need no second rank."""

from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from suite.worker.deepspeed_json import training_config
from suite.worker.engines.megatron import model as model_module
from suite.worker.engines.megatron import weights as megatron_weights
from suite.worker.engines.megatron.engine import MegatronEngine
from suite.worker.engines.megatron.layers import FusedAttention
from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.optimizer import INITIAL_LOSS_SCALE
from suite.worker.engines.megatron.stack import AttnMaskType
from tests.worker.tiny import tiny_body


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


def test_fp16_starts_at_one_loss_scale_in_both_engines() -> None:
    config = training_config(tiny_body(measure={"precision": "fp16", "device": "cuda"}), 1000)
    assert 2 ** config["fp16"]["initial_scale_power"] == INITIAL_LOSS_SCALE


def test_heads_that_share_keys_and_values_read_them_where_they_lie() -> None:
    attention = mock.Mock(softmax_scale=0.5)
    tensors = [torch.randn(5, 2, heads, 4) for heads in (6, 2, 2)]
    FusedAttention.forward(attention, *tensors, None, AttnMaskType.causal)
    assert all(passed is own for passed, own in zip(attention._attend.call_args.args, tensors, strict=False))
    assert FusedAttention._attend(attention, *tensors, True).shape == (5, 2, 24)


def test_a_schedule_that_divides_the_loss_in_place_leaves_parts_that_share_its_storage() -> None:
    engine = mock.Mock(_share_statistics=lambda parts: parts[0], _micros=lambda *_: [])
    engine._optimizer.step.return_value = True, None, None

    def schedule(_model: Any, _micros: Any, forward: Any, forward_only: bool) -> list[Any]:
        whole, parts = forward(iter([(mock.Mock(), {})]), mock.Mock())[1]((None, None))
        whole /= 4
        return [parts]

    engine._run, loss = schedule, torch.tensor(3.0, requires_grad=True) * 2
    told = MegatronEngine.train(engine, mock.Mock(), {}, lambda *_: (loss, {"policy_loss": loss.detach()}))
    assert told["policy_loss"] == 6


def test_padding_of_the_vocabulary_gets_no_probability_and_copies_no_gradient() -> None:
    model, copied = mock.Mock(unpadded_vocab=5), []
    logits = torch.randn(3, 2, 8, requires_grad=True) * 1

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            copied.append(str(function).split(".")[1])
            return function(*arguments, **(options or {}))

    with mock.patch.object(model_module.parallel_state, "get_tensor_model_parallel_rank", return_value=0):
        PolicyModel._forbid_padding(model, logits)
    chances = logits.softmax(-1)
    assert not chances[..., 5:].any()
    with Watch():
        chances[..., 0].sum().backward()
    assert "clone" not in copied and "copy_" not in copied
