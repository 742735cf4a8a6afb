"""The suite's clock at the phase edges of verl's own iteration, by wrapping methods of one trainer object.

Their lines in verl 0.9.1 stand in docs/trainers/verl.md.
"""

from typing import Any, Dict, Optional

import torch

from suite.worker.asked import draw_prompts
from suite.worker.manifest import learns_values
from suite.worker.mismatch import mismatch
from suite.worker.rank import ConfigError
from suite.worker.trainers.iteration import IterationState, Tally, after, before, finite

_TIMERS = "timing_s/"
#: the suite's name of a statistic -> verl's
_STATISTICS = {
    "policy_loss": "actor/pg_loss",
    "value_loss": "critic/vf_loss",
    "gradient_norm": "actor/grad_norm",
    "reward": "critic/score/mean",
    "loss": "actor/loss",
}
#: PPO's penalty of the rewards; GRPO's term of the loss
_KL_PENALTY, _KL_LOSS = "actor/reward_kl_penalty", "actor/kl_loss"
_NO_PADDING = -1


class Steps(IterationState):
    """Those of verl's trainer: what it showed of its tensors (``logged``), and how a step ends."""

    def __init__(self, manifest: Dict[str, Any], tally: Tally, parameters: int) -> None:
        """``parameters``: of everything that trains, the critic's too."""
        super().__init__(tally)
        self._manifest, self._parameters = manifest, parameters

    def note_training(self, batch: Any, metrics: Dict[str, Any]) -> None:
        """What the policy was trained on: a sum of lengths for each epoch, and a gradient norm for each step."""
        lengths = [tag["seq_len"] for tag in batch.tags if not tag.get("is_padding")]
        self.tally.trained_tokens += sum(lengths) * batch.extra_info["epochs"]
        norms = metrics["grad_norm"]
        self.tally.optimizer_steps += len(norms) if isinstance(norms, list) else 1

    def finish(self, metrics: Dict[str, Any]) -> None:
        """verl has logged: the iteration is over. Raises ConfigError unless its work was the manifest's."""
        self.clock.stop()
        self._count()
        counts = self.tally.own_counts(self._parameters, self._parameters)
        timers = {name[len(_TIMERS) :]: float(value) for name, value in metrics.items() if name.startswith(_TIMERS)}
        self.clock.finish(counts, self._statistics(metrics), own_timers=timers, **self._rollout())

    def _count(self) -> None:
        from suite.worker.trainers.drawn_model import ordinary

        batch = self.logged["batch"]
        prompts, responses = batch["prompts"], batch["responses"]
        for name, tensor in (("prompt", prompts), ("response", responses)):
            lengths = set(batch[name + "_length"].int().tolist())
            if lengths != {tensor.size(1)}:
                raise ConfigError("{}s have {} tokens where one length was forced".format(name, sorted(lengths)))
        self.tally.add_samples(prompts, responses, _NO_PADDING)
        wanted = ordinary(draw_prompts(self._manifest, self.iteration), self._manifest["size"]["vocab"])
        if not same_rows(prompts, wanted):
            raise ConfigError("verl's prompts are not the manifest's")

    def _statistics(self, metrics: Dict[str, Any]) -> Dict[str, Optional[float]]:
        has_critic = learns_values(self._manifest)
        names = {**_STATISTICS, "kl": _KL_PENALTY if has_critic else _KL_LOSS}
        if not has_critic:
            del names["value_loss"]
        return finite({name: metrics.get(verls) for name, verls in names.items()})

    def _rollout(self) -> Dict[str, Any]:
        told = self.logged.get("logprobs")
        if told is None:
            return {}
        own, engine, mask = (told[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask"))
        # one process has all samples: what it sums is whole
        return {"rollout": mismatch(own, engine, mask.bool(), torch.clone, torch.clone)}


def install(trainer: Any, state: Steps) -> None:
    """Wrap the methods of ``trainer`` (verl's PPOTrainerSync), and what its module makes statistics with."""
    from verl.trainer.ppo.v1 import trainer_base as module

    has_critic = trainer.use_critic
    before(trainer, "on_step_begin", lambda *_, **__: state.begin())
    before(trainer, "prepare_step", lambda *_, **__: state.clock.open("generate"))
    after(trainer, "on_sample_end", lambda *_, **__: state.clock.close())
    if has_critic:
        trainer._update_critic = state.detailed(trainer._update_critic, "train/critic")
        trainer._update_actor = state.detailed(trainer._update_actor, "train/actor")
    for method, phase, more in (
        ("_compute_old_log_prob", "score", has_critic),
        ("_compute_ref_log_prob", "reference", False),
        ("_compute_values", "score", False),
        ("_compute_advantage", "reward", False),
        ("_update_critic", "train", True),
        ("_update_actor", "train", False),
        ("on_step_end", "sync", False),
    ):
        setattr(trainer, method, state.phased(getattr(trainer, method), phase, more))
    workers = trainer.actor_rollout_wg
    after(workers, "update_actor", lambda output, batch: state.note_training(batch, output["metrics"]))
    # the finished samples, as verl makes its own statistics of them
    before(module, "compute_data_metrics", lambda batch, *_, **__: state.logged.update(batch=batch.batch))
    # the policy's log-probs beside those that vLLM told
    before(module, "calculate_debug_metrics", lambda data, *_, **__: state.logged.update(logprobs=data.batch))
    after(module.Tracking, "log", lambda _, tracking, data, *__, **___: state.finish(data))


def same_rows(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same rows equally often, in any order."""
    found = [each.cpu().long().unique(dim=0, return_counts=True) for each in (one, other)]
    return all(torch.equal(*pair) for pair in zip(*found))
