"""verl's own trainer, really: its workers and vLLM servers on Ray, in the environment that `make verl` makes."""

import pytest

from suite.worker.trainers.verl.inspection import NAME
from tests.needs import require_environment
from tests.worker.trainers.runs import whole_run_of
from tests.worker.trainers.verl.test_settings import GRPO, verl_manifest

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(560)]


def test_ppo_with_a_critic_on_two_workers_and_two_vllm_servers(tmp_path):
    """Two optimizer steps of two micro batches each: every way to miss or double one. The critic is GPT-2.

    The policy's weights fill more than one bucket, and its output head is the embedding.
    """
    python = require_environment("verl")
    critic = {"layers": 1, "hidden": 64, "ffn": 128, "heads": 2}
    work = {"optimizer_steps": 2, "critic": critic}
    manifest = verl_manifest(2, python=python, sampler="fast", shape={"vocab": 40_000}, **work)
    run = whole_run_of(manifest, tmp_path, python)
    assert run.record.counts.total_parameters == run.record.counts.trainable_parameters
    phases = [[(event["iteration"], event["phase"]) for event in run.events("phase", rank)] for rank in (0, 1)]
    in_order = ["generate", "reference", "score", "reward", "train", "sync"]
    assert phases[0] == phases[1] == [(step, phase) for step in range(3) for phase in in_order]
    for event in run.events("iteration"):
        assert set(event["details"]) == {"train/actor", "train/critic"}
        # vLLM's own log-probs are those of the weights that were trained: they arrive, in full precision
        assert event["rollout"]["logprob_difference_max"] < 1e-4
        assert 0 < event["own_timers"]["update_actor"] < event["own_timers"]["step"]
    notes = run.facts["notes"]
    assert any("every 0.02 s" in note for note in notes) and any(note.startswith(NAME) for note in notes)
    (bucket,) = [value for name, value in run.facts["configuration"].items() if name.endswith("bucket_megabytes")]
    assert 4 * 64 * 40_000 < bucket * 2**20 < 2 * 4 * 64 * 40_000, "the embedding and the head, which verl would send"
    assert len([note for note in notes if note.startswith("replaced on a CPU: ")]) == 6


def test_grpo_on_one_worker_with_verls_own_sampler(tmp_path):
    """That nothing stays behind a killed rank: test_guardian.py, backends/test_example_backend.py, test_settings.py."""
    python = require_environment("verl")
    run = whole_run_of(verl_manifest(1, python=python, **GRPO), tmp_path, python)
    assert len(run.events("iteration")) == 3
