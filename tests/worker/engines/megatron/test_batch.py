"""Parts of the Megatron engine that need no second rank: micro batches as the model takes them, and its loss."""

from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.deepspeed_json import training_config
from suite.worker.engines.megatron import stack
from suite.worker.engines.megatron.batch import MicroBatch
from suite.worker.engines.megatron.engine import MegatronEngine
from suite.worker.engines.megatron.optimizer import INITIAL_LOSS_SCALE, wrap_for_training
from suite.worker.samples import Samples
from tests.worker.tiny import tiny_body

LENGTHS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=5)


def samples_of(lengths: list[tuple[int, int]]) -> Samples:
    """Every token of every sample is another number."""
    longest = max(prompt + response for prompt, response in lengths)
    tokens = torch.arange(1, len(lengths) * longest + 1).view(len(lengths), longest)
    ends = torch.tensor([prompt + response for prompt, response in lengths]).unsqueeze(1)
    return Samples(tokens * (torch.arange(longest) < ends), *(list(each) for each in zip(*lengths, strict=True)))


@given(LENGTHS, st.booleans(), st.sampled_from([1, 2, 4]))
def test_each_response_token_is_told_by_the_state_before_it(lengths, packed, multiple):
    samples = samples_of(lengths)
    batch = MicroBatch(samples, packed, multiple)
    states = batch.tokens.t().unsqueeze(-1).double()  # a state that knows which token it is of
    before, mask = samples.tokens.gather(1, samples.response_positions() - 1), samples.mask()
    assert torch.equal(batch.spread(batch.before_responses(states).squeeze(-1).t()), before.double() * mask)
    assert torch.equal(batch.spread(batch.targets.t()), samples.responses() * mask)
    assert batch.tokens.size(1) % multiple == 0
    if packed:
        assert batch.tokens.numel() - samples.real_tokens < multiple and sum(batch.segments or ()) == batch.tokens.size(
            1
        )
    if packed and multiple == 1:
        positions = [position for length in samples.lengths for position in range(length)]
        assert batch.positions.tolist() == positions and batch.segments == samples.lengths, "they start again with each"


def test_fp16_starts_at_one_loss_scale_in_both_engines() -> None:
    config = training_config(tiny_body(measure={"precision": "fp16", "device": "cuda"}), 1000)
    assert 2 ** config["fp16"]["initial_scale_power"] == INITIAL_LOSS_SCALE


def test_megatron_gets_the_bucket_that_is_asked_for() -> None:
    for asked in ({}, {"bucket_elements": 5000}):
        layout = tiny_body(2, backend="megatron", layout=asked)["layout"]
        with mock.patch.object(stack, "DistributedDataParallel") as wrapper:
            wrap_for_training(mock.Mock(), layout, torch.device("cuda"))
        config = wrapper.call_args.args[1]
        assert config.overlap_grad_reduce and config.bucket_size == asked.get("bucket_elements")


def test_a_schedule_that_divides_the_loss_in_place_leaves_parts_that_share_its_storage() -> None:
    engine = mock.Mock(_share_statistics=lambda parts: parts[0], _micros=lambda *_: [])
    engine._optimizer.step.return_value = True, None, None

    def schedule(_model: Any, _micros: Any, end: Any, forward_only: bool) -> list[Any]:
        whole, parts = end(mock.Mock(), {})[1]((None, None))
        whole /= 4
        return [parts]

    engine._run, loss = schedule, torch.tensor(3.0, requires_grad=True) * 2
    told = MegatronEngine.train(engine, mock.Mock(real_tokens=0), {}, lambda *_: (loss, {"policy_loss": loss.detach()}))
    assert told["policy_loss"] == 6
