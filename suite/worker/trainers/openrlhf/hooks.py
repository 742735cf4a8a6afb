"""Phase edges at the methods of OpenRLHF's trainers, whose own code runs unchanged. Line numbers are of 0.11.2.

A trainer is a class that Ray made an actor of; here it lives in the process that leads, as an object of that class, so
that it calls the clock itself. Everything is hooked on the object.
"""

from typing import Any, Callable, Dict, List, Optional

from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.openrlhf import probe
from suite.worker.trainers.openrlhf.counting import Count

_STATISTICS = {
    "policy_loss": "policy_loss",
    "value_loss": "critic_loss",
    "gradient_norm": "actor_grad_norm",
    "reward": "reward",
    "kl": "kl",
}


class Done(Exception):
    """All iterations were made: raised out of the trainer's endless loop."""


class Sheet:
    """What the hooks share: the clock, the counts, and what the iteration's training said."""

    def __init__(self, count: Count, iterations: int) -> None:
        self.clock: NullClock = NullClock()
        self._given: NullClock = NullClock()
        self.count, self.iterations = count, iterations
        self.iteration: Optional[int] = None
        self.trained: Dict[str, Any] = {}
        self.status: Dict[str, Any] = {}

    def give(self, clock: NullClock) -> None:
        """The run's clock: it hears of life at once, and of phases from ``start`` on."""
        self._given = clock

    def start(self) -> None:
        """What follows is timed."""
        self.clock = self._given

    def beat(self) -> None:
        """The trainer has come further."""
        self._given.beat()

    def begin(self, iteration: int) -> None:
        """The next iteration, or the first."""
        self.iteration = iteration
        self.clock.begin(iteration)

    def finish(self, **optional: Any) -> None:
        """The iteration's counts, statistics and parts; its time was stopped before."""
        counts = self.count.close()
        stats = {name: _number(self.status.get(key)) for name, key in _STATISTICS.items()}
        stats["loss"] = stats["policy_loss"]
        self.clock.finish(counts, stats, details=self.trained, **optional)


def hook_experience(maker: Any, sheet: Sheet) -> None:
    """Scoring, the reference pass and advantages of ``RemoteExperienceMaker``: experience_maker.py:100 and :238."""
    dispatch, advantages = maker._dispatch_forward, maker.compute_advantages_and_returns

    def dispatched(group: Any, *arguments: Any, **options: Any) -> Any:
        is_reference = group is maker.initial_model_group
        more = group is maker.actor_model_group and maker.critic_model_group is not None
        with sheet.clock.phase("reference" if is_reference else "score", more=more):
            return dispatch(group, *arguments, **options)

    def computed(experiences: List[Any]) -> List[Any]:
        with sheet.clock.phase("reward"):
            found: List[Any] = advantages(experiences)
            return found

    maker._dispatch_forward, maker.compute_advantages_and_returns = dispatched, computed


def hook_training(trainer: Any, sheet: Sheet) -> None:
    """The optimizer steps of actor and critic, ``ppo_train`` (ppo_trainer.py:266), and what they came to."""
    train = trainer.ppo_train

    def trained(*arguments: Any, **options: Any) -> Any:
        with sheet.clock.phase("train"):
            status = train(*arguments, **options)
        sheet.status = status
        sheet.trained = read_training(trainer, sheet.count)
        return status

    trainer.ppo_train = trained


def read_training(trainer: Any, count: Count) -> Dict[str, float]:
    """Have the actors' probes read: counts go to ``count``; seconds by part of training, of the slowest rank."""
    policies = ask_all(trainer.actor_model_group, probe.read)
    critics = [] if trainer.critic_model_group is None else ask_all(trainer.critic_model_group, probe.read)
    count.take_training(policies)
    parts = {}
    for prefix, ranks in (("train/", policies), ("train/critic-", critics)):
        for part in ranks[0]["seconds"] if ranks else ():
            parts[prefix + part] = max(each["seconds"][part] for each in ranks)
    return parts


def ask_all(group: Any, question: Callable[[Any], Any]) -> List[Any]:
    """``question`` of every actor of one of OpenRLHF's groups, in its process."""
    import ray

    return list(ray.get([actor.__ray_call__.remote(question) for actor in group._actor_handlers]))


def hook_rounds(trainer: Any, sheet: Sheet) -> None:
    """Iterations of ``PPOTrainer.fit`` (ppo_trainer.py:503): from one call of ``generate_samples`` to the next."""
    generator = trainer.samples_generator
    generate, experience, broadcast = (
        generator.generate_samples,
        generator._process_response_into_experience,
        trainer.broadcast_to_vllm,
    )
    samples: List[Any] = []

    def generated(*arguments: Any, **options: Any) -> Any:
        following = 0
        if sheet.iteration is not None:
            sheet.clock.stop()
            sheet.count.take_samples(samples, sheet.iteration)
            sheet.finish()
            following = sheet.iteration + 1
        if following == sheet.iterations:
            raise Done
        sheet.begin(following)
        with sheet.clock.phase("generate"):
            found = generate(*arguments, **options)
        samples[:] = found[0]
        return found

    def beating(*arguments: Any, **options: Any) -> Any:
        sheet.beat()
        return experience(*arguments, **options)

    def published() -> None:
        with sheet.clock.phase("sync"):
            broadcast()

    generator.generate_samples, generator._process_response_into_experience = generated, beating
    trainer.broadcast_to_vllm = published


def _number(value: Any) -> Optional[float]:
    """Finite, or None."""
    number = float("nan") if value is None else float(value)
    return number if abs(number) < float("inf") else None
