"""The manifest in OpenRLHF's options, its prompts and labels, and how its patches on a CPU reach a module."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Measure
from suite.worker.trainers.openrlhf import cpu, options
from suite.worker.trainers.openrlhf.label import Label
from suite.worker.trainers.openrlhf.prompts import rows
from suite.worker.trainers.openrlhf.work import work_differences
from tests.worker.trainers.runs import as_read, tiny_shape, trainer_manifest

SHAPE = tiny_shape("llama", hidden=64, ffn=96, heads=2, positions=64)
WORK: dict[str, Any] = {"name": "tiny", "prompt_tokens": 5, "new_tokens": 6, "rollouts": 8, "micro_batch": 2}
MEASURE = Measure(device="cpu", precision="bf16", iterations=2, warmup=1)


def openrlhf_body(ranks: int = 2, work: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    """As a rank reads it."""
    request = LayoutRequest(devices_per_node=ranks, **asked)
    return as_read(trainer_manifest("openrlhf", SHAPE, {**WORK, **(work or {})}, request, MEASURE))


def told(manifest: dict[str, Any]) -> dict[str, str]:
    """Options by name, ``on`` for switches."""
    line = options.command_line(manifest, "/p", "/c")
    starts = [number for number, word in enumerate(line) if word.startswith("--")]
    ends = [*starts[1:], len(line)]
    pairs = zip(starts, ends, strict=True)
    return {line[start][2:]: " ".join(line[start + 1 : end]) or "on" for start, end in pairs}


def test_ppo_has_a_critic_gae_and_the_workloads_batches() -> None:
    said = told(openrlhf_body(work={"optimizer_steps": 2, "ppo_epochs": 3}))
    assert said["critic.model_name_or_path"] == "/c"
    assert said["algo.advantage.estimator"] == "gae"
    assert (said["train.batch_size"], said["train.micro_batch_size"], said["train.max_epochs"]) == ("8", "2", "3")
    assert (said["rollout.batch_size"], said["rollout.n_samples_per_prompt"]) == ("16", "1")
    assert "algo.kl.use_loss" not in said


def test_grpo_has_groups_kl_in_the_loss_and_no_critic() -> None:
    said = told(openrlhf_body(work={"algorithm": "grpo:kl_coefficient=0.02,clip_high=0.3", "group": 4}))
    assert (said["rollout.batch_size"], said["rollout.n_samples_per_prompt"]) == ("4", "4")
    assert (said["algo.kl.use_loss"], said["algo.kl.estimator"], said["algo.kl.init_coef"]) == ("on", "k3", "0.02")
    assert said["actor.eps_clip_low_high"] == "0.2 0.3"
    assert "critic.model_name_or_path" not in said
    plain = told(openrlhf_body(work={"algorithm": "grpo:scale=no,loss=sequence", "group": 4}))
    assert plain["algo.advantage.estimator"] == "dr_grpo"
    assert plain["actor.loss_agg_mode"] == "seq-mean-token-mean"


@pytest.mark.parametrize(
    ("asked", "engines", "ranks", "switches"),
    [
        ({}, "3", "3", {"train.colocate_all"}),
        ({"placement": "split", "generation_ranks": 1}, "1", "2", {"train.colocate_actor_ref"}),
        (
            {"placement": "split", "generation_ranks": 1, "staleness": 1},
            "1",
            "2",
            {"train.colocate_all", "train.async_enable"},
        ),
    ],
)
def test_devices_are_shared_as_the_layout_says(asked, engines, ranks, switches):
    said = told(openrlhf_body(3, {"algorithm": "grpo", "group": 2, "rollouts": 4}, **asked))
    assert (said["vllm.num_engines"], said["actor.num_gpus_per_node"]) == (engines, ranks)
    assert {name for name in said if name.startswith(("train.colocate", "train.async_enable"))} == switches
    assert said.get("train.async_queue_size") == ("1" if "staleness" in asked else None)


def test_prompts_are_the_manifests_and_labels_say_what_each_sample_gets() -> None:
    work = {"algorithm": "grpo", "group": 2, "rollouts": 4, "lengths": "list:LIST", "new_tokens": 3}
    work["lengths"] = {"kind": "list", "listed": (1, 3, 2, 3)}
    found = rows(openrlhf_body(1, work), batches=2)
    labels = [Label.read(row["label"]) for row in found]
    assert [(label.batch, label.first) for label in labels] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [label.new_tokens for label in labels] == [[1, 3], [2, 3]] * 2
    assert all(len(row["input"].split()) == 5 for row in found)
    scores = [score for label in labels for score in label.scores or ()]
    assert len(set(scores)) == 8
    assert Label.read(labels[1].of_sample(1)).first == 3


def test_a_critic_of_the_policys_shape_and_stale_samples_are_told_as_other_work() -> None:
    def told_of(work: dict[str, Any], **asked: Any) -> str:
        return " ".join(work_differences(openrlhf_body(work=work, **asked)))

    critic = {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}
    assert "values come from a model of its own with the policy's shape" in told_of({})
    assert "policy's shape" not in told_of({"critic": critic})
    split = {"placement": "split", "generation_ranks": 1, "staleness": 2}
    assert "up to 2 publications" in told_of({"algorithm": "grpo"}, **split)


def test_a_module_is_patched_after_its_own_code_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "patched_one.py").write_text("value = lent")
    (tmp_path / "plain_one.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)

    def after(module: Any) -> None:
        module.value += 1

    patch = cpu.Patch("p", "patched_one", "because", before=lambda: setattr(sys, "lent", 41), after=after)
    (tmp_path / "patched_one.py").write_text("import sys\nvalue = sys.lent")
    monkeypatch.setattr(sys, "meta_path", [cpu.Finder([patch]), *sys.meta_path])
    monkeypatch.setattr(sys, "lent", 0, raising=False)
    assert importlib.import_module("patched_one").value == 42
    assert importlib.import_module("plain_one").value == 1
