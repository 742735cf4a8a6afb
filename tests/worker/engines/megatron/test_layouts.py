"""Real Megatron ranks on the CPU: one model, Hugging Face's of its family, gives the same numbers in every layout."""

from typing import Any

import pytest

from tests.worker.engines.cases import asked_for, cases_of
from tests.worker.engines.megatron.families import HIDDEN, LAYERS
from tests.worker.engines.megatron.layouts import BASELINES, CASES, ONLY_THOROUGH, STEPS, apart
from tests.worker.tiny import told_by_ranks

Seen = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """case -> what each rank saw. One launch for each number of ranks."""
    folder = tmp_path_factory.mktemp("megatron")
    asked = asked_for(request, CASES)
    cases = [case for case in CASES if case in asked or case in {BASELINES[each] for each in asked}]
    found: Seen = {}
    for ranks in sorted({CASES[case].ranks for case in cases}):
        own = [case for case in cases if CASES[case].ranks == ranks]
        told = told_by_ranks(["tests.worker.engines.megatron.layouts", *own], ranks, folder, SECONDS)
        found.update({case: [rank[case] for rank in told] for case in own})
    return found


def whole(ranks: list[dict[str, Any]], field: str) -> list[Any]:
    """The rows of all replicas in order, as their leaders tell them, each to the longest response of all."""
    leaders = {rank["replica"]: rank[field] for rank in ranks if rank["leader"]}
    rows = [leaders[row % len(leaders)][row // len(leaders)] for row in range(4)]
    return [row + [0.0] * (max(map(len, rows)) - len(row)) for row in rows]


def mean_steps(ranks: list[dict[str, Any]], field: str) -> list[float]:
    """One figure of each train step, averaged over replicas."""
    leaders = [rank for rank in ranks if rank["leader"]]
    return [sum(leader["steps"][step][field] for leader in leaders) / len(leaders) for step in range(STEPS)]


VALUE_HEAD_PARAMETERS = (HIDDEN + 1) * 2 * HIDDEN + 2 * HIDDEN + 1
SECONDS = 500.0
# the first test waits for all launches
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.ci,
    pytest.mark.timeout(3 * SECONDS),
]
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
        assert rank["total"] == rank["parameters"] + VALUE_HEAD_PARAMETERS
        frozen = rank["last_block"] + VALUE_HEAD_PARAMETERS
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


@the(["gpt2-fp16", "gpt2-pp2-fp16"])
def test_an_overflow_on_one_rank_is_a_skipped_step_on_all(seen: Seen, case: str) -> None:
    for rank in seen[case]:
        steps, sums = rank["overflow"]["steps"], rank["overflow"]["sums"]
        assert [step["skipped_steps"] for step in steps] == [0, 1, 0]
        assert "gradient_norm" not in steps[1]
        assert sums[0] == sums[1] != sums[2]


@the(["gpt2-dp2-distributed"])
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
