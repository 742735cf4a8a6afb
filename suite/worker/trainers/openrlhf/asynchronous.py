"""Periods of OpenRLHF's asynchronous trainer: from the end of one publication of weights to the end of the next.

Its generator is an actor of its own, which writes down when it generates; its trainer lives in the process that leads.
All are on one node, whose monotonic clock they share. Line numbers are of ppo_trainer_async.py, 0.11.2.
"""

import os
import queue
import time
from bisect import bisect_right
from collections import Counter
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Tuple

from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import after, before
from suite.worker.trainers.openrlhf.counting import label_of
from suite.worker.trainers.openrlhf.hooks import Rounds

Interval = Tuple[float, float]
#: how long the trainer waits for samples before it looks whether there is still a generator
_LOOK_SECONDS = 5.0


def write_times(actor: Any, path: str) -> None:
    """In the generator's process: a line in ``path`` when a batch begins and when it ends (:133)."""
    lines = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(*_: Any, **__: Any) -> None:
        os.write(lines, "{!r}\n".format(time.monotonic()).encode())

    before(actor.samples_generator, "generate_samples", write)
    after(actor.samples_generator, "generate_samples", write)


def read_times(path: str, now: float) -> List[Interval]:
    """When each batch began and ended; one that is under way ends now."""
    with open(path, encoding="utf-8") as file:
        times = [float(line) for line in file]
    if len(times) % 2:
        times.append(now)
    return list(zip(times[::2], times[1::2]))


def busy_seconds(intervals: List[Interval], began: float, ended: float) -> float:
    """How much of the time from ``began`` to ``ended`` the intervals cover together."""
    total, reached = 0.0, began
    for first, last in sorted(intervals):
        first, last = max(first, reached), min(last, ended)
        if last > first:
            total += last - first
            reached = last
    return total


class Periods:
    """The trainer's side: hooks on a ``TrainingActor``, its queue and its lock."""

    def __init__(self, trainer: Any, generator: Any, state: Rounds, path: str, ranks: Dict[str, int]) -> None:
        """``ranks``: devices by role; ``path``: what the generator writes."""
        self._state, self._path, self._ranks = state, path, ranks
        self._generator = generator
        self._publications: List[float] = []  # when each ended, before the lock was given back
        self._received: List[Interval] = []  # when vLLM was given weights
        self._batch: List[Any] = []
        self._batches = 0
        self._asked_lock = self._had_lock = self._stepped = self._began = 0.0
        self._hook(trainer, state)

    def start(self, clock: NullClock) -> None:
        """Have batches generated, as ``PPOTrainerAsync.fit`` does without a checkpoint (:342)."""
        self._clock = clock
        self._running = self._generator.fit.remote(episode=0, total_consumed_prompts=0)

    def _hook(self, trainer: Any, state: Rounds) -> None:
        publish, queue_get, lock = trainer.broadcast_to_vllm, trainer.rollout_queue.get, trainer.vllm_lock

        def taken(block: bool = True) -> Any:
            with state.clock.phase("generate"):
                found = self._wait(queue_get)
            self._batch, self._batches = found[0], self._batches + 1
            return found

        def published() -> None:
            self._asked_lock = time.monotonic()
            with state.clock.phase("sync"):
                publish()
            self._end_period()

        def is_asked(method_name: str, *_: Any, **__: Any) -> None:
            if method_name == "broadcast_to_vllm":  # the lock is had (:257)
                self._had_lock = time.monotonic()

        def released() -> Any:
            """The weights are all there, and generation gets the lock (:265)."""
            self._publications.append(time.monotonic())
            self._received.append((self._had_lock, self._publications[-1]))
            return lock.release.remote()

        trainer.rollout_queue.get, trainer.broadcast_to_vllm = taken, published
        before(trainer, "train_step", lambda *_, **__: setattr(self, "_stepped", time.monotonic()))
        before(trainer.actor_model_group, "async_run_method", is_asked)
        trainer.vllm_lock = SimpleNamespace(acquire=lock.acquire, release=SimpleNamespace(remote=released))

    def _wait(self, get: Callable[..., Any]) -> Any:
        """The next batch, as long as there is somebody who generates one. Raises what the generator raised."""
        while True:
            try:
                return get(block=True, timeout=_LOOK_SECONDS)
            except queue.Empty:  # Ray's is one
                import ray

                ended, _ = ray.wait([self._running], timeout=0)
                ray.get(ended)
                self._clock.beat()

    def _end_period(self) -> None:
        """The first publication ends the fill and begins iteration 0; each later one ends one and begins the next."""
        state = self._state
        if state.iteration >= 0:
            ended = time.monotonic()
            state.clock.stop()
            state.finish(self._batch, self._batches - 1, asynchronous=self._account(ended))
        else:
            state.clock = self._clock
        state.go_on()
        self._began = time.monotonic()

    def _account(self, ended: float) -> Dict[str, Any]:
        """The event's ``asynchronous``: publications, how old the samples were, who was busy for how long."""
        generated = read_times(self._path, ended)
        generating = busy_seconds(generated + self._received[-2:], self._began, ended)
        training = busy_seconds([(self._stepped, ended)], self._began, ended) - (self._had_lock - self._asked_lock)
        busy = {"generation": generating, "training": max(0.0, training)}
        return {
            "publication": len(self._publications),
            "staleness": self._staleness(generated),
            "roles": {
                name: {"ranks": ranks, "busy_seconds": busy[name] * ranks} for name, ranks in self._ranks.items()
            },
        }

    def _staleness(self, generated: List[Interval]) -> Dict[str, int]:
        """Samples by how many publications their weights were behind those that were trained on them."""
        trained = len(self._publications) - 1
        began = [generated[label_of(sample)["batch"]][0] for sample in self._batch]
        return Counter(str(trained - bisect_right(self._publications, each)) for each in began)
