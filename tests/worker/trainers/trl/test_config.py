"""The manifest in TRL's words; nothing of TRL is imported."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from suite.worker.trainers.trl import config
from suite.worker.trainers.trl.shims import shims_on_cpu
from suite.worker.trainers.trl.trainer import work_differences
from tests.worker.tiny import tiny_body

WORK: dict[str, Any] = {"rollouts": 16, "micro_batch": 2, "optimizer_steps": 2, "ppo_epochs": 3, "group": 4}
ENGINE = {"generation": "vllm", "engine_memory": 40}


def trl_body(backend: str = "trl-grpo", algorithm: str | None = None, **changes: Any) -> dict[str, Any]:
    work = {**WORK, "algorithm": algorithm or backend.removeprefix("trl-"), **changes.pop("workload", {})}
    return tiny_body(2, backend=backend, workload=work, **changes)


def arguments(manifest: dict[str, Any], **more: Any) -> dict[str, Any]:
    return config.training_arguments(manifest, 3, "folder", **{"parameters": 1000, **more})


def test_a_generation_and_its_optimizer_steps_are_an_iteration() -> None:
    found = arguments(trl_body())
    assert found["per_device_train_batch_size"] == 2
    assert found["gradient_accumulation_steps"] == 4, "8 samples a step and rank"
    assert found["steps_per_generation"] == 8, "16 samples a rank"
    assert (found["num_iterations"], found["num_generations"]) == (3, 4)
    assert found["max_steps"] == 3 * 2 * 3
    assert found["logging_steps"] == 2 * 3
    assert config.passes(trl_body()) == 4 * 2 * 3


def test_options_of_the_algorithm_are_trls() -> None:
    options = "kl_coefficient=0.02,clip_low=0.1,clip_high=0.3"
    grpo = arguments(trl_body(algorithm=f"grpo:{options},loss=sequence,scale=no"))
    rloo = arguments(trl_body("trl-rloo", f"rloo:{options}"))
    for found in (grpo, rloo):
        assert (found["beta"], found["epsilon"], found["epsilon_high"]) == (0.02, 0.1, 0.3)
    assert (grpo["loss_type"], grpo["scale_rewards"]) == ("grpo", "none")
    assert arguments(trl_body())["loss_type"] == "dapo"
    assert rloo["normalize_advantages"] is False
    assert "loss_type" not in rloo


def test_vllm_ends_no_response_before_its_length_and_has_the_memory_that_is_asked_for() -> None:
    plain, vllm = arguments(trl_body()), arguments(trl_body(layout=ENGINE))
    assert plain["max_completion_length"] == vllm["max_completion_length"] == 8
    assert "use_vllm" not in plain
    assert vllm["generation_kwargs"]["ignore_eos"] is True
    assert (vllm["vllm_max_model_length"], vllm["vllm_gpu_memory_utilization"]) == (16, 0.4)


@pytest.mark.parametrize(
    ("backend", "work", "layout", "expected"),
    [
        ("trl-grpo", {"optimizer_steps": 1, "ppo_epochs": 1}, {}, False),
        ("trl-grpo", {"optimizer_steps": 1, "ppo_epochs": 1}, {"generation": "vllm"}, True),
        ("trl-grpo", {}, {}, True),
        ("trl-rloo", {"optimizer_steps": 1, "ppo_epochs": 1}, {}, True),
    ],
)
def test_whether_there_is_a_scoring_pass_is_told(backend, work, layout, expected):
    manifest = trl_body(backend, workload=work, layout=layout)
    assert config.scores(manifest) is expected
    assert any("no scoring pass" in text for text in work_differences(manifest)) is not expected


@pytest.mark.parametrize(
    ("engine", "precision", "vocab", "told"),
    [
        ("fsdp2", "bf16", 5_120, {"is rounded to bf16"}),
        ("ddp", "bf16", 5_000, {"not padded"}),
        ("fsdp2", "fp32", 128, set()),
    ],
)
def test_rounded_log_probs_and_a_vocabulary_without_padding_are_told_where_they_are(engine, precision, vocab, told):
    manifest = trl_body(layout={"engine": engine, "zero_stage": 3 if engine == "fsdp2" else 0})
    manifest["measure"]["precision"], manifest["size"]["vocab"] = precision, vocab
    text = "; ".join(work_differences(manifest))
    assert {words for words in ("is rounded to bf16", "not padded") if words in text} == told


def test_deepspeeds_operator_is_replaced_before_its_group_would_compile_it(monkeypatch: pytest.MonkeyPatch) -> None:
    operators, built = SimpleNamespace(build_shm_op=lambda: "compiled"), []
    join = lambda *_, **__: built.append(operators.build_shm_op())  # noqa: E731
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace(init_distributed=join))
    monkeypatch.setitem(sys.modules, "deepspeed.comm.torch", operators)
    notes = list(shims_on_cpu(trl_body(layout={"zero_stage": 3})))
    assert [note.split()[1] for note in notes] == ["no-shared-memory-operator:", "deepspeed-joins-gloo:"]
    assert built == [None]
