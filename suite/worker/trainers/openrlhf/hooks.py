"""Phase edges at the methods of OpenRLHF's trainers, whose own code runs unchanged. Line numbers are of 0.11.2.

A trainer is a class that Ray made an actor of; here it lives in the process that leads, as an object of that class, so
that it calls the clock itself. Everything is hooked on the object.
"""

from typing import Any, Callable, Dict, List

from suite.worker.trainers.iteration import IterationState, Piece, after, before, finite
from suite.worker.trainers.openrlhf import probe
from suite.worker.trainers.openrlhf.counting import Count

_STATISTICS = {
    "loss": "policy_loss",
    "policy_loss": "policy_loss",
    "value_loss": "critic_loss",
    "gradient_norm": "actor_grad_norm",
    "reward": "reward",
    "kl": "kl",
}


class Done(Exception):
    """All iterations were made: raised out of the trainer's endless loop."""


class Rounds(IterationState):
    """Those of OpenRLHF's trainers: what a round's training came to (``logged``), and seconds of its parts."""

    def __init__(self, count: Count, iterations: int) -> None:
        super().__init__(count)
        self.iterations = iterations
        self.parts: Dict[str, float] = {}

    def go_on(self) -> None:
        """Begin the next iteration, or end the trainer's endless loop."""
        if self.iteration + 1 == self.iterations:
            raise Done
        self.begin()

    def finish(self, samples: List[Any], batch: int, **optional: Any) -> None:
        """The iteration's counts, statistics and parts. ``samples``: those of this ``batch``, which were trained on."""
        self.tally.take_samples(samples, batch)
        stats = {name: self.logged.get(key) for name, key in _STATISTICS.items()}
        counts = self.tally.own_counts(*self.tally.parameters)
        self.clock.finish(counts, finite(stats), details=self.parts, **optional)


def hook_experience(maker: Any, state: Rounds) -> None:
    """Scoring, the reference pass and advantages of ``RemoteExperienceMaker``: experience_maker.py:100 and :238."""

    def where(group: Any, *_: Any, **__: Any) -> Piece:
        more = group is maker.actor_model_group and maker.critic_model_group is not None
        return "reference" if group is maker.initial_model_group else "score", more

    maker._dispatch_forward = state.placed(maker._dispatch_forward, where)
    maker.compute_advantages_and_returns = state.phased(maker.compute_advantages_and_returns, "reward")


def hook_training(trainer: Any, state: Rounds) -> None:
    """The optimizer steps of actor and critic, ``ppo_train`` (ppo_trainer.py:266), and what they came to."""
    trainer.ppo_train = state.phased(trainer.ppo_train, "train")

    def note(status: Dict[str, Any], *_: Any, **__: Any) -> None:
        state.logged.update(status)
        policies = ask_all(trainer.actor_model_group, probe.read)
        state.tally.take_training(policies)
        state.parts = _slowest("train/", policies)
        if trainer.critic_model_group is not None:
            state.parts.update(_slowest("train/critic-", ask_all(trainer.critic_model_group, probe.read)))

    after(trainer, "ppo_train", note)


def _slowest(prefix: str, ranks: List[probe.Facts]) -> Dict[str, float]:
    """Seconds by part of training, of the rank that was slowest in it."""
    return {prefix + part: max(each["seconds"][part] for each in ranks) for part in ranks[0]["seconds"]}


def ask_all(group: Any, question: Callable[[Any], Any]) -> List[Any]:
    """``question`` of every actor of one of OpenRLHF's groups, in its process."""
    import ray

    return list(ray.get([actor.__ray_call__.remote(question) for actor in group._actor_handlers]))


def hook_rounds(trainer: Any, state: Rounds) -> None:
    """Iterations of ``PPOTrainer.fit`` (ppo_trainer.py:503): from one call of ``generate_samples`` to the next."""
    generator = trainer.samples_generator
    generate = state.phased(generator.generate_samples, "generate")
    samples: List[Any] = []

    def generated(*arguments: Any, **options: Any) -> Any:
        if state.iteration >= 0:
            state.clock.stop()
            state.finish(samples, state.iteration)
        state.go_on()
        found = generate(*arguments, **options)
        samples[:] = found[0]
        return found

    generator.generate_samples = generated
    before(generator, "_process_response_into_experience", lambda *_, **__: state.clock.beat())
    trainer.broadcast_to_vllm = state.phased(trainer.broadcast_to_vllm, "sync")
