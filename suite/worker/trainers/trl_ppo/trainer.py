"""TRL's PPO trainer, the last there was, with drawn models and a reward that costs nothing."""

import json
import os
import tempfile
from typing import Any, Dict, Optional

import torch
from torch import nn

from suite.worker.asked import draw_prompts
from suite.worker.deepspeed_json import training_json
from suite.worker.manifest import asked_iterations
from suite.worker.trainers.accelerate_check import check_engine, check_ranks
from suite.worker.trainers.accelerate_launch import accelerate_variables
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.drawn_model import (
    build_model,
    build_tokenizer,
    count_parameters,
    critic_size,
    draw_model,
    draw_weights,
    gathered,
    is_partitioned,
    model_config,
    whole,
)
from suite.worker.trainers.iteration import finite
from suite.worker.trainers.shims import apply_shims, deepspeed_on_cpu
from suite.worker.trainers.tally import Tally
from suite.worker.trainers.trl_ppo import config as trl_config
from suite.worker.trainers.trl_ppo.hooks import LOGGED, Updates, time_functions, time_methods
from suite.worker.trainers.trl_ppo.reward import Scores
from suite.worker.trainers.trl_ppo.work import notes, work_differences
from suite.worker.world import World


class TrlPpo(Trainer):
    """``PPOTrainer`` of ``trl.experimental.ppo``: policy, value model and reference, each a model of its own."""

    unscored = True
    imports = ("trl.experimental.ppo.ppo_trainer",)

    @classmethod
    def load(cls, manifest: Dict[str, Any]) -> None:
        cls.import_all(manifest["measure"]["device"])

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Collective over all ranks. Raises ConfigError for what TRL did not do."""
        self._manifest, self._world = manifest, world
        self._folder = tempfile.TemporaryDirectory()
        with_deepspeed = deepspeed_on_cpu(lambda manifest, world: world.device.type == "cpu")
        shims = apply_shims(with_deepspeed if trl_config.uses_deepspeed(manifest) else (), manifest, world)
        self._tokenizer = _tokenizer(manifest["size"]["vocab"])
        self._state = Updates(Tally(manifest, world), self._tokenizer.pad_token_id, self._end_iteration)
        self._trainer = self._build()
        self._check_engine()
        self.notes = (*shims, *notes(manifest))
        self.work_differences = tuple(work_differences(manifest))

    def run(self, clock: NullClock, iterations: int) -> None:
        """One ``train`` holds all iterations."""
        state, trainer = self._state, self._trainer
        state.clock = clock
        policy = trainer.accelerator.unwrap_model(trainer.model)
        clock.watch(policy.policy, policy.value_model, trainer.ref_model)
        try:
            trainer.train()
        finally:
            self._folder.cleanup()
        state.end()
        state.check_all_ran("TRL", iterations)

    def _build(self) -> Any:
        from transformers import set_seed
        from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

        manifest, seed = self._manifest, self._manifest["measure"]["seed"]
        self._set_variables()
        iterations = asked_iterations(manifest)
        arguments = PPOConfig(**trl_config.ppo_config(manifest, iterations, self._folder.name))
        set_seed(seed)  # NumPy's too, which shuffles; TRL itself sets torch's alone
        policy, reference = (draw_model(manifest["size"], seed, self._world.device) for _ in range(2))
        value = self._value_model()
        total, trainable = zip(count_parameters(policy), count_parameters(value))
        self.total_parameters, self.trainable_parameters = sum(total), sum(trainable)
        trainer = PPOTrainer(
            args=arguments,
            processing_class=self._tokenizer,
            model=policy,
            ref_model=reference.requires_grad_(False).eval(),
            reward_model=Scores(manifest, self._world.rank, lambda: self._state.iteration),
            value_model=value,
            train_dataset=self._prompts(iterations),
            callbacks=[_callback(self._state)],
        )
        time_functions(ppo_trainer, trainer, self._state)
        time_methods(trainer, self._state)
        return trainer

    def _set_variables(self) -> None:
        """Accelerate's, and the file that DeepSpeed is configured by."""
        manifest = self._manifest
        path = os.path.join(self._folder.name, "deepspeed.json")
        with torch.device("meta"):
            trained = sum(count_parameters(build())[1] for build in (self._bare_policy, self._bare_value_model))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(training_json(manifest, trained), file)
        os.environ.update(accelerate_variables(manifest, path if trl_config.uses_deepspeed(manifest) else None))

    def _bare_policy(self) -> nn.Module:
        return build_model(self._manifest["size"])

    def _bare_value_model(self) -> nn.Module:
        """The policy's shape, or the manifest's critic: a trunk and one linear layer without bias."""
        from transformers import AutoModelForSequenceClassification

        config = model_config(critic_size(self._manifest))
        config.num_labels = 1
        return AutoModelForSequenceClassification.from_config(config)

    def _value_model(self) -> nn.Module:
        model = self._bare_value_model()
        gather = gathered if is_partitioned(model) else whole
        draw_weights(model, self._manifest["measure"]["seed"], gather, self._world.device)
        return model

    def _prompts(self, iterations: int) -> Any:
        """Those of all iterations, and of one more: TRL's batches are dealt one ahead, and at the last one Accelerate
        would step after every micro batch."""
        from datasets import Dataset

        rows = [row for index in range(iterations + 1) for row in draw_prompts(self._manifest, index).tolist()]
        return Dataset.from_dict({"input_ids": rows})

    def _check_engine(self) -> None:
        """Raise ConfigError unless the ranks, the device and the wrapper are those that were asked for."""
        check_ranks(self._trainer.accelerator, self._world)
        engine = "deepspeed" if trl_config.uses_deepspeed(self._manifest) else "ddp"
        check_engine(self._trainer.model, engine, self._manifest["layout"]["zero_stage"])

    def _end_iteration(self) -> None:
        counts = self._state.tally.counts(self.trainable_parameters, self.total_parameters)
        self._state.clock.finish(counts, self._statistics())

    def _statistics(self) -> Dict[str, Optional[float]]:
        """TRL's own, which it has averaged over ranks already; the KL divergence is per token here, per sample there.

        It averages losses over as many places as all mini batches have micro batches, of which each fills its part.
        """
        workload, logged = self._manifest["workload"], self._state.logged
        stats = {name: logged[key] for name, key in LOGGED.items()}
        for name in ("policy_loss", "value_loss"):
            stats[name] *= workload["optimizer_steps"]
        stats["kl"] /= workload["new_tokens"]
        stats["loss"] = stats["policy_loss"] + workload["ppo"]["value_coefficient"] * stats["value_loss"]
        return finite({**stats, "gradient_norm": self._state.mean("gradient_norm")})


def _tokenizer(vocab: int) -> Any:
    """One number a token, and padding by an id of its own behind them: no sampled token is taken for padding."""
    tokenizer = build_tokenizer(vocab)
    tokenizer.add_special_tokens({"pad_token": "<padding>"})
    return tokenizer


def _callback(updates: Updates) -> Any:
    """What TRL logs at the end of an iteration."""
    from transformers import TrainerCallback

    class Logged(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Dict[str, Any], **others: Any) -> None:
            updates.logged.update(logs)

    return Logged()
