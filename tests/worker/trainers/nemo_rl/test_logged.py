"""What is written for NeMo-RL, what its own timers gave, and ranks with a program beside them that logs as it does."""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from suite.worker.asked import draw_prompts, score_samples
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers.nemo_rl.configuration import REGISTERED, Rewards, configuration, prompts
from suite.worker.trainers.nemo_rl.entry import told
from suite.worker.trainers.nemo_rl.logged import Step, check_counts, read_steps, time_step
from tests.worker.tiny import Finished, fork_ranks, write_manifest
from tests.worker.trainers.nemo_rl.made import HERE, made_manifest, recorded_steps
from tests.worker.trainers.runs import as_read


def changed(folder: Path, **values: float | None) -> Step:
    """The first step with other values; timers by their names behind the prefix."""
    step = recorded_steps(folder)[0]
    return {**step, "values": {**step["values"], **{f"timing/train/{name}": value for name, value in values.items()}}}


@pytest.mark.slow
def test_prompts_are_the_manifests_one_for_each_group_in_ordinary_tokens() -> None:
    manifest = as_read(made_manifest())
    rows = list(prompts(manifest))
    assert [row["number"] for row in rows] == list(range(4 * 8))
    drawn = draw_prompts(manifest, 0)[::2] % (manifest["size"]["vocab"] - 3)
    assert [row["tokens"] for row in rows[:8]] == drawn.tolist()


def test_the_samples_of_a_prompt_get_the_scores_that_the_suite_gives_them() -> None:
    manifest = as_read(made_manifest())
    seed = manifest["measure"]["seed"] * 1_000_003 + 1
    scores = score_samples(manifest["workload"]["reward"], Samples.even(torch.empty(16, 0), 0), seed).tolist()
    rewards, second = Rewards(), list(prompts(manifest))[8:16]
    assert [rewards.next(second[place]) for place in (2, 0, 2, 0)] == [scores[4], scores[0], scores[5], scores[1]]


def test_its_logger_is_called_as_before_and_a_step_ends_with_its_timers(tmp_path: Path) -> None:
    calls: list[tuple[Any, ...]] = []
    log = told(lambda *given, **named: calls.append((*given[1:], named)), str(tmp_path / "log"))
    log(None, {"worker": 30.0}, 0, prefix="timing/setup")
    log(None, {"loss": float("nan"), "turns": 2, "text": "x", "lengths": [1, 2]}, 1, prefix="train")
    log(None, {"accuracy": 1.0}, 1, prefix="validation")
    log(None, {"total_step_time": torch.tensor(2.0)}, 1, prefix="timing/train", step_finished=True)
    assert [call[2] for call in calls] == ["timing/setup", "train", "validation", "timing/train"]
    assert calls[-1][-1] == {"step_finished": True}
    values = {"train/loss": None, "train/turns": 2, "timing/train/total_step_time": 2.0}
    assert next(read_steps(str(tmp_path / "log"))) == {"step": 1, "values": values}


def test_the_log_is_read_as_it_grows_and_a_step_out_of_order_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    steps = read_steps(str(path))
    assert next(steps) is None, "it is not there yet"
    with path.open("w") as file:
        for text in ('{"step": 1, "val', 'ues": {"a": 1}}\n{"step": 2, "values": {}}\n', '{"step": 4, "values": {}}\n'):
            file.write(text)
            file.flush()
            if text.endswith("val"):
                assert next(steps) is None, "half a line waits for its other half"
    assert list(islice(steps, 2)) == [{"step": 1, "values": {"a": 1}}, {"step": 2, "values": {}}]
    with pytest.raises(ConfigError, match="is of step 4 where 3 follows"):
        next(steps)


def test_four_steps_have_their_phases_within_the_whole(tmp_path: Path) -> None:
    steps = recorded_steps(tmp_path)
    assert len(steps) == 4
    for seconds, phases, details in map(time_step, steps):
        assert set(phases) == {"sync", "generate", "reward", "score", "train"}
        assert 0 < sum(phases.values()) <= seconds * 1.01
        assert phases["generate"] >= 0.03 and phases["train"] >= 0.02
        assert details["sync/transfer"] <= phases["sync"] and details["train/prepare"] <= phases["train"]
    first = {
        name.rpartition("/")[2]: seconds for name, seconds in steps[0]["values"].items() if name.startswith("timing")
    }
    trained = time_step(steps[0])[1]["train"]
    assert trained == first["training_prep"] + first["policy_training"], "what lies within another timer is in no sum"


def test_another_amount_of_work_and_none_are_refused(tmp_path: Path) -> None:
    step = recorded_steps(tmp_path)[0]
    with pytest.raises(ConfigError, match="response_tokens 256 wanted, 128 logged"):
        check_counts(step, as_read(made_manifest(new_tokens=16)))
    with pytest.raises(ConfigError, match="samples 16 wanted, nan logged"):
        check_counts({**step, "values": {}}, as_read(made_manifest()))
    with pytest.raises(ConfigError, match=r"prompt_tokens 128 wanted, 128\.48 logged"):
        check_counts({**step, "values": {**step["values"], "train/mean_prompt_length": 8.03}}, as_read(made_manifest()))


def test_names_of_another_version_are_refused(tmp_path: Path) -> None:
    step = recorded_steps(tmp_path)[0]
    values = {name: number for name, number in step["values"].items() if name != "timing/train/policy_training"}
    with pytest.raises(ConfigError, match="has no timing/train/policy_training: a version that logs by other names"):
        time_step({**step, "values": values})


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "took None in "), (-0.5, "took -0.5 in "), (1000.0, "the phases of step 1")]
)
def test_times_that_cannot_be_are_refused(tmp_path: Path, seconds: float | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        time_step(changed(tmp_path, generation=seconds))


#: keys that NeMo-RL 0.7.0 reads beside those of its file (grpo.py:180, vllm_worker.py:516, data/__init__.py:18)
ALSO = {
    "defaults",
    "env." + REGISTERED,
    "grpo.skip_reference_policy_logprobs_calculation",
    "policy.generation.ignore_eos",
    *("data.train." + key for key in ("data_path", "env_name", "processor", "prompt_file", "system_prompt_file")),
}
#: what is handed on to classes of torch
FREE = ("policy.optimizer.kwargs.", "policy.scheduler.")
#: what asks for the manifest's 8 prompts of 2 samples, 8 + 8 tokens, 2 optimizer steps and 4 iterations on 2 devices
WORK: dict[str, Any] = {
    "grpo.num_prompts_per_step": 8,
    "grpo.num_generations_per_prompt": 2,
    "grpo.max_num_steps": 4,
    "grpo.skip_reference_policy_logprobs_calculation": True,
    "policy.train_global_batch_size": 8,
    "policy.max_total_sequence_length": 16,
    "policy.generation.max_new_tokens": 8,
    "policy.generation.ignore_eos": True,
    "policy.generation.stop_token_ids": [],
    "cluster.gpus_per_node": 2,
    "cluster.num_nodes": 1,
}


def dotted(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Of nested objects every key by its path, with its value; lists of objects have the keys of their first."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        for key, part in value.items():
            yield prefix + key, part
            yield from dotted(part, f"{prefix}{key}.")


def written(kl_coefficient: float) -> dict[str, Any]:
    manifest = as_read(made_manifest(kl_coefficient))
    manifest["layout"]["engine_memory"] = 40
    return dict(dotted(configuration(manifest, "/run", "/opt/nemo-rl/examples/configs/grpo_math_1B.yaml")))


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
def test_every_key_is_one_that_it_has(kl_coefficient: float) -> None:
    own = {key for key in written(kl_coefficient) if not key.startswith(FREE)}
    assert own - set(json.loads((HERE / "keys-0.7.0.json").read_text())) - ALSO == set()


def test_the_work_is_the_manifests_and_without_a_kl_coefficient_there_is_no_reference() -> None:
    assert WORK.items() <= written(0.0).items()
    assert written(0.0)["policy.generation.vllm_cfg.gpu_memory_utilization"] == 0.4


def run(folder: Path, steps: int) -> Finished:
    path = write_manifest(made_manifest(device="cpu").model_copy(update={"stack": {}}), folder)
    with mock.patch.dict(os.environ, {"STAND_IN_STEPS": str(steps)}):
        return fork_ranks(["tests.worker.trainers.nemo_rl.made", "rank", str(path)], 2, folder, 300)


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_both_ranks_tell_what_the_log_tells_and_whose_it_is(tmp_path: Path) -> None:
    finished = run(tmp_path, 4)
    assert finished.exit_codes == [0, 0], "\n".join(error[-3000:] for error in finished.errors)
    logged = recorded_steps(tmp_path)
    for rank in (0, 1):
        iterations, phases = finished.events(rank, "iteration"), finished.events(rank, "phase")
        assert [event["iteration"] for event in iterations] == [0, 1, 2, 3]
        assert {event["source"] for event in (*iterations, *phases)} == {"trainer"}
        for name, events in (
            ("total_step_time", iterations),
            ("generation", [event for event in phases if event["phase"] == "generate"]),
        ):
            told = [step["values"][f"timing/train/{name}"] for step in logged]
            assert [event["seconds"] for event in events] == told
        memory = [event for event in finished.events(rank, "memory") if event["iteration"] is not None]
        assert [event["phase"] for event in memory] == ["other"] * 4, "of whole iterations"
        assert all(event["peak_resident_bytes"] > 10_000_000 for event in memory), "the program's"
    known = {"samples": 16, "prompt_tokens": 128, "response_tokens": 128, "trained_tokens": 256}
    unknown = dict.fromkeys(("padded_tokens", "optimizer_steps", "trainable_parameters", "total_parameters"))
    assert finished.events(0, "iteration")[0]["counts"] == {**known, **unknown}
    facts = finished.events(0, "environment")[0]["facts"]
    assert "resident_baseline_bytes" not in facts, "peaks are the program's, and this rank's own set is no baseline"
    assert (facts["clock"], facts["experimental"]) == ("the trainer's own log", "never run")
    assert any("swapped into" in text for text in facts["work_differences"])


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_a_program_that_ends_early_fails_the_run_with_the_steps_it_made(tmp_path: Path) -> None:
    finished = run(tmp_path, 2)
    assert finished.exit_codes == [1, 1]
    evidence = finished.events(0, "failure")[0]["evidence"][0]
    assert "nemo-rl ended with code 0 after 2 of 4 steps; it said last: all is there" in evidence
    assert [event["iteration"] for event in finished.events(0, "iteration")] == [0, 1]
