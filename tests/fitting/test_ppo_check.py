"""Whole PPO iterations: the one factor that is fitted on published rates, and what it must agree with beside them."""

import pytest

from suite.fitting.ppo_check import fit_ppo, ppo_table
from suite.fitting.published import csv_files
from suite.planner.ask import question
from suite.planner.hardware import hardware_of
from suite.planner.parameters import load_parameters
from suite.planner.predict_manifest import one_layout
from suite.planner.profiles import PROFILES
from suite.planner.table import predict
from suite.spec.catalogue import devices, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from tests.fitting.rows import PUBLISHED

A100 = hardware_of(devices()["A100-SXM-80GB"])


@pytest.fixture(scope="module")
def found():
    return fit_ppo(csv_files([PUBLISHED]), load_parameters())


def test_the_shipped_factor_and_range_are_those_that_the_fit_gives(found):
    parameters, rows = found
    assert parameters.ppo.model_dump() == pytest.approx(load_parameters().ppo.model_dump(), rel=1e-3)
    assert len(rows) == parameters.ppo.rows == 15


def test_no_published_rate_leaves_the_parameters_alone(tmp_path):
    empty = tmp_path / "none.csv"
    empty.write_text("config_id,metric,value\na,step3_samples_per_sec,1\n")
    parameters, rows = fit_ppo([empty], load_parameters())
    assert (parameters, rows) == (load_parameters(), [])
    assert "No published PPO rate" in ppo_table(rows, None)


#: DeepSpeed-Chat's figure 6 (blogs/deepspeed-chat/README.md): layers, hidden, devices, sequences of each, and the
#: TFLOP/s per device of RLHF training that its bars are labelled with. The rows are in no fit.
FIGURE_6 = [(24, 2048, 8, 64, 62.9), (40, 5120, 8, 32, 97.3), (48, 7168, 32, 32, 103.6), (96, 12288, 64, 16, 74.4)]


def figure_6_flops(layers, hidden, sequences, passes):
    """As DeepSpeed-Chat counts them (dschat/utils/perf.py): per micro batch of 512 tokens, 50,272 words."""
    per_pass = 24 * sequences * 512 * layers * hidden**2
    return passes * per_pass * (1 + 512 / (6 * hidden) + 50272 / (16 * layers * hidden))


@pytest.mark.parametrize(("layers", "hidden", "count", "sequences", "published"), FIGURE_6)
def test_training_rates_that_are_in_no_fit_agree_with_the_factor(layers, hidden, count, sequences, published):
    shape = Shape(
        name="opt",
        architecture="opt",
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=hidden // 128,
        kv_heads=hidden // 128,
        vocab=50272,
        positions=512,
    )
    rank = 128 if hidden >= 5120 else None
    workload = find_workload("ds-chat-step3").model_copy(update={"lora_rank": rank})
    layout = Layout(devices_per_node=count, data=count, zero_stage=3 if rank else 2, recompute="full")
    work = Work(
        global_rollouts=count * sequences, replica_rollouts=sequences, replica_batch=sequences, micro_batch=sequences
    )
    space = one_layout(shape, workload, work, layout, A100, "deepspeed")
    seconds = predict(space, A100, PROFILES["deepspeed"], load_parameters()).seconds["train"][0]
    policy = figure_6_flops(layers, hidden, sequences, 4 if rank is None else 3 + 2 * rank / hidden)
    critic = figure_6_flops(24, 1024, sequences, 4)
    assert (policy + critic) / seconds / 1e12 == pytest.approx(published, rel=0.3)


def test_the_factor_counts_for_eager_models_alone():
    def seconds(backend, parameters):
        workload = find_workload("trlx-ds-chat")
        shape = Shape(name="a", layers=24, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocab=50257, positions=1024)
        asked = question(shape, workload, "A100-80GB", backend, parameters)
        return asked.plan([8]).options[0].phases

    fitted = load_parameters()
    without = fitted.model_copy(update={"ppo": None})
    assert seconds("megatron", fitted) == seconds("megatron", without)
    slow, plain = seconds("deepspeed", fitted), seconds("deepspeed", without)
    assert slow["decode"] == plain["decode"]
    assert slow["score"] == pytest.approx(fitted.ppo.slower * plain["score"], rel=0.05)
