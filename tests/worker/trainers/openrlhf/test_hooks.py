"""The manifest in OpenRLHF's options, and phase edges at its trainers' methods; its classes and Ray are stand-ins."""

import importlib
import itertools
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Measure
from suite.worker.asked import draw_prompts
from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import ordinary
from suite.worker.trainers.openrlhf import asynchronous, cpu, hooks, options
from suite.worker.trainers.openrlhf.counting import Count, rows
from suite.worker.trainers.openrlhf.work import work_differences
from tests.worker.trainers.journal import Journal
from tests.worker.trainers.runs import ALONE, ONE_STEP, as_read, tiny_shape, trainer_manifest
from tests.worker.written import write

GROUPED = {"algorithm": "grpo", "group": 2, "rollouts": 4}
SPLIT: dict[str, Any] = {"placement": "split", "generation_ranks": 1}


def edges(*phases: str) -> list[str]:
    """Of an iteration with these phases; a plus is behind what goes on later."""
    each = [(f"open {phase.rstrip('+')}", "close more" if phase.endswith("+") else "close") for phase in phases]
    return [*(edge for pair in each for edge in pair), "stop"]


def samples_of(manifest: dict[str, Any], batch: int) -> list[Any]:
    """Finished as OpenRLHF hands them over."""
    rows = ordinary(draw_prompts(manifest, batch), manifest["size"]["vocab"])
    prompt, response = manifest["workload"]["prompt_tokens"], manifest["workload"]["new_tokens"]
    mask = torch.tensor([[0] * (prompt - 1) + [1] * response])
    return [
        SimpleNamespace(
            sequences=torch.cat([row, torch.zeros(response, dtype=torch.int64)]).unsqueeze(0),
            action_mask=mask,
            labels=[json.dumps({"batch": batch, "first": number})],
        )
        for number, row in enumerate(rows)
    ]


def trained(manifest: dict[str, Any], steps: int = 1) -> list[dict[str, Any]]:
    """What the probes of the policy's ranks read."""
    ranks, work = manifest["layout"]["data"], manifest["workload"]
    tokens = (work["prompt_tokens"] + work["new_tokens"]) * manifest["work"]["replica_rollouts"]
    seconds = {"forward": 0.1, "backward": 0.2, "optimizer": 0.3}
    return [{"tokens": tokens, "padding": 0, "steps": steps, "seconds": seconds}] * ranks


def test_an_iteration_lasts_from_one_generation_to_the_next(monkeypatch):
    manifest, clock = openrlhf_body(1, GROUPED), Journal()
    monkeypatch.setattr(hooks, "ask_all", lambda *_: trained(manifest))
    calls = iter(range(9))
    maker = SimpleNamespace(
        initial_model_group="reference",
        actor_model_group="policy",
        critic_model_group="critic",
        _dispatch_forward=lambda group: group,
        compute_advantages_and_returns=lambda experiences: experiences,
    )
    trainer: Any = SimpleNamespace(
        samples_generator=SimpleNamespace(
            generate_samples=lambda: (samples_of(manifest, next(calls)), None, 2, False),
            _process_response_into_experience=lambda response: response,
        ),
        ppo_train=lambda step: {"policy_loss": 0.5, "actor_grad_norm": float("inf")},
        broadcast_to_vllm=lambda: None,
        actor_model_group=None,
        critic_model_group=None,
    )
    state = hooks.Rounds(Count(manifest, ALONE, 10, 9), iterations=2)
    state.clock = clock
    hooks.hook_experience(maker, state)
    hooks.hook_training(trainer, state)
    hooks.hook_rounds(trainer, state)
    with pytest.raises(hooks.Done):
        while True:
            trainer.samples_generator.generate_samples()
            for group in ("policy", "critic", "reference"):
                maker._dispatch_forward(group)
            maker.compute_advantages_and_returns([])
            trainer.ppo_train(0)
            trainer.broadcast_to_vllm()
    whole = edges("generate", "score+", "score", "reference", "reward", "train", "sync")
    assert clock.lines == ["begin 0", *whole, "begin 1", *whole]
    first = clock.finished[0]
    assert first["counts"]["samples"] == 4
    assert first["counts"]["total_parameters"] == 10
    assert first["stats"]["policy_loss"] == 0.5
    assert first["stats"]["gradient_norm"] is None
    assert first["details"] == {"train/forward": 0.1, "train/backward": 0.2, "train/optimizer": 0.3}


@pytest.mark.parametrize("fault", ["of another batch", "repeated", "shorter", "of another prompt"])
def test_other_samples_than_the_batchs_are_no_iteration(fault):
    manifest = openrlhf_body(1, GROUPED)
    samples = samples_of(manifest, 1 if fault == "of another batch" else 0)
    if fault == "repeated":
        samples[1] = samples[0]
    elif fault == "shorter":
        samples[1].action_mask, samples[1].sequences = samples[1].action_mask[:, :-1], samples[1].sequences[:, :-1]
    elif fault == "of another prompt":
        samples[1].sequences[0, 0] += 1
    with pytest.raises(ConfigError):
        Count(manifest, ALONE, 1, 1).take_samples(samples, 0)


def test_ranks_that_made_other_optimizer_steps_are_no_iteration():
    manifest = openrlhf_body(1, GROUPED)
    count = Count(manifest, ALONE, 1, 1)
    count.take_samples(samples_of(manifest, 0), 0)
    count.take_training(trained(manifest, steps=2))
    with pytest.raises(ConfigError, match="optimizer_steps 1 wanted, 2 done"):
        count.own_counts(*count.parameters)


def test_busy_time_is_what_intervals_cover_within_the_period():
    intervals = [(0.0, 2.0), (1.0, 3.0), (5.0, float("inf"))]
    assert asynchronous.busy_seconds(intervals, 1.0, 6.0) == pytest.approx(3.0)
    assert asynchronous.busy_seconds([], 0.0, 1.0) == 0.0


def test_a_batch_that_is_under_way_is_busy_until_now(tmp_path):
    path = str(tmp_path / "times")
    actor = SimpleNamespace(samples_generator=SimpleNamespace(generate_samples=lambda: None))
    asynchronous.write_times(actor, path)
    actor.samples_generator.generate_samples()
    with open(path, "a") as file:
        file.write("5.0\n")
    (began, ended), under_way = asynchronous.read_times(path, 9.0)
    assert ended >= began
    assert under_way == (5.0, 9.0)


def test_periods_begin_behind_the_first_publication_and_tell_how_old_samples_were(tmp_path, monkeypatch):
    manifest, clock = openrlhf_body(2, GROUPED, **SPLIT, staleness=1), Journal()
    monkeypatch.setattr(hooks, "ask_all", lambda *_: trained(manifest))
    path = tmp_path / "times"

    class Trainer:
        """Trains on a batch, publishes, and so on; each batch was generated before the publication ahead of it."""

        critic_model_group = None
        vllm_lock: Any = SimpleNamespace(acquire=None, release=SimpleNamespace(remote=lambda: None))
        actor_model_group = SimpleNamespace(async_run_method=lambda method_name: None)
        batches = itertools.count()

        def __init__(self) -> None:
            self.rollout_queue = SimpleNamespace(get=self.batch)

        def batch(self, block: bool, timeout: float) -> Any:
            with path.open("a") as file:
                file.write(f"{time.monotonic()!r}\n{time.monotonic()!r}\n")
            return (samples_of(manifest, next(self.batches)), {}, None, 0.0)

        def ppo_train(self, step: int) -> dict[str, float]:
            return {"policy_loss": 0.1}

        def train_step(self) -> None:
            self.ppo_train(0)
            self.broadcast_to_vllm()

        def broadcast_to_vllm(self) -> None:
            self.actor_model_group.async_run_method(method_name="broadcast_to_vllm")
            self.vllm_lock.release.remote()

        def fit(self) -> None:
            while True:
                self.rollout_queue.get(block=True)
                self.train_step()

    trainer = Trainer()
    state = hooks.Rounds(Count(manifest, ALONE, 2, 2), iterations=2)
    hooks.hook_training(trainer, state)
    generator = SimpleNamespace(fit=SimpleNamespace(remote=lambda **_: None))
    ranks = {"generation": 1, "training": 1}
    asynchronous.Periods(trainer, generator, state, str(path), ranks).start(clock)
    with pytest.raises(hooks.Done):
        trainer.fit()
    whole = edges("generate", "train", "sync")
    assert clock.lines == ["begin 0", *whole, "begin 1", *whole]
    accounts = [each["asynchronous"] for each in clock.finished]
    assert [each["publication"] for each in accounts] == [2, 3]
    # here a batch is begun when it is asked for, with the newest weights
    assert [each["staleness"] for each in accounts] == [{"0": 8}, {"0": 8}]
    assert all(role["busy_seconds"] > 0 for each in accounts for role in each["roles"].values())


SHAPE = tiny_shape("llama", hidden=64, ffn=96, heads=2, positions=64)
MEASURE = Measure(device="cpu", precision="bf16", iterations=2, warmup=1)


def openrlhf_body(ranks: int = 2, work: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    """As a rank reads it."""
    request = LayoutRequest(devices_per_node=ranks, **asked)
    return as_read(trainer_manifest("openrlhf", SHAPE, {**ONE_STEP, **(work or {})}, request, MEASURE))


def told(manifest: dict[str, Any]) -> dict[str, str]:
    """Options by name, ``on`` for switches."""
    asked = options.all_options(manifest, "/p", "/c")
    return {name: " ".join(words) or "on" for name, words in asked.items()}


def test_ppo_has_a_critic_gae_and_the_workloads_batches():
    said = told(openrlhf_body(work={"optimizer_steps": 2, "ppo_epochs": 3}))
    assert said["critic.model_name_or_path"] == "/c"
    assert said["algo.advantage.estimator"] == "gae"
    assert (said["train.batch_size"], said["train.micro_batch_size"], said["train.max_epochs"]) == ("8", "2", "3")
    assert (said["rollout.batch_size"], said["rollout.n_samples_per_prompt"]) == ("16", "1")
    assert "algo.kl.use_loss" not in said


def test_grpo_has_groups_kl_in_the_loss_and_no_critic():
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
        (SPLIT, "1", "2", {"train.colocate_actor_ref"}),
        ({**SPLIT, "staleness": 1, "engine_memory": 70}, "1", "2", {"train.colocate_all", "train.async_enable"}),
    ],
)
def test_devices_are_shared_as_the_layout_says(asked, engines, ranks, switches):
    said = told(openrlhf_body(3, GROUPED, **asked))
    assert (said["vllm.num_engines"], said["actor.num_gpus_per_node"]) == (engines, ranks)
    assert {name for name in said if name.startswith(("train.colocate", "train.async_enable"))} == switches
    assert said.get("train.async_queue_size") == ("1" if "staleness" in asked else None)
    assert (said["vllm.gpu_memory_utilization"] == "0.7") == ("engine_memory" in asked)


def test_prompts_are_the_manifests_and_labels_say_what_each_sample_gets():
    work = {"algorithm": "grpo", "group": 2, "rollouts": 4, "lengths": "list:LIST", "new_tokens": 3}
    work["lengths"] = {"kind": "list", "listed": (1, 3, 2, 3)}
    found = rows(openrlhf_body(1, work), batches=2)
    labels = [json.loads(row["label"]) for row in found]
    assert [(label["batch"], label["first"]) for label in labels] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [label["new_tokens"] for label in labels] == [[1, 3], [2, 3]] * 2
    assert all(len(row["input"].split()) == 5 for row in found)
    scores = [score for label in labels for score in label["scores"]]
    assert len(set(scores)) == 8


def test_a_critic_of_the_policys_shape_and_stale_samples_are_told_as_other_work():
    def told_of(work: dict[str, Any], **asked: Any) -> str:
        return " ".join(work_differences(openrlhf_body(work=work, **asked)))

    critic = {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}
    assert "values come from a model of its own with the policy's shape" in told_of({})
    assert "policy's shape" not in told_of({"critic": critic})
    assert "up to 2 publications" in told_of({"algorithm": "grpo"}, **SPLIT, staleness=2)


def test_a_module_is_patched_after_its_own_code_ran(tmp_path, monkeypatch):
    write(tmp_path, {"patched_one.py": "import sys\nvalue = sys.lent", "plain_one.py": "value = 1"})
    monkeypatch.syspath_prepend(tmp_path)

    def change(module: Any, run: Any) -> None:
        sys.lent = 41  # type: ignore[attr-defined]
        run()
        module.value += 1

    monkeypatch.setitem(cpu.PATCHES, "patched_one", ("p", change))
    monkeypatch.setattr(sys, "meta_path", [cpu.Finder(), *sys.meta_path])
    monkeypatch.setattr(sys, "lent", 0, raising=False)
    assert importlib.import_module("patched_one").value == 42
    assert importlib.import_module("plain_one").value == 1
