"""OpenRLHF's PPO trainers, synchronous and asynchronous, on DeepSpeed and vLLM."""

import os
import runpy
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple
from unittest import mock

from suite.worker.asked import check_found
from suite.worker.manifest import asked_iterations
from suite.worker.models import DTYPES, dtype_name
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.openrlhf import cpu, options
from suite.worker.trainers.openrlhf.work import notes, work_differences
from suite.worker.vllm_common import CACHE_VARIABLE

_PROGRAM = "openrlhf.cli.train_ppo_ray"
#: batches beyond those of the iterations and of the fill, so that generation is as busy in the last iteration
_SPARE_BATCHES = 2


class OpenRlhfTrainer(LedTrainer):
    """Built by OpenRLHF's own command line up to the moment when it would train."""

    imports = ("openrlhf.cli.train_ppo_ray", "openrlhf.trainer.ray.vllm_engine", "openrlhf.trainer.ppo_trainer_async")

    def check(self) -> None:
        measure = self.manifest["measure"]
        if measure["device"] == "cpu":
            os.environ[cpu.PRECISION_VARIABLE] = measure["precision"]
            os.environ["OMP_NUM_THREADS"] = str(measure["threads_per_rank"])
            os.environ[CACHE_VARIABLE] = str(options.cache_gib(self.manifest))

    def build(self) -> None:
        manifest, folder = self.manifest, self.cluster.folder
        ray = self.cluster.connect()
        from suite.worker.trainers.openrlhf.counting import loader
        from suite.worker.trainers.openrlhf.hooks import Rounds, hook_experience, hook_training

        asked = options.all_options(manifest, *self._write_models(folder))
        self.configuration = _shown(asked, folder)
        staleness = options.staleness(manifest)
        self.waiting_for("OpenRLHF's imports, models and vLLM engines: every process imports torch and more by itself")
        module = import_module("openrlhf.trainer.ppo_trainer" + ("_async" if staleness else ""))
        names = ("PPOTrainerAsync", "TrainingActor") if staleness else ("PPOTrainer",)
        trainers = {name: Local(getattr(module, name)) for name in names}
        prompts = partial(loader, manifest, asked_iterations(manifest) + 1 + staleness + _SPARE_BATCHES)
        line = [word for name, words in asked.items() for word in ("--" + name, *words)]
        argv = mock.patch.object(sys, "argv", [_PROGRAM, *line])
        with mock.patch.multiple(module, prepare_datasets=prompts, **trainers), argv, suppress(Ready):
            runpy.run_module(_PROGRAM, run_name="__main__")
        self._ready = trainers[names[-1]].made
        self.waiting_for("vLLM's engines")
        ray.get([engine.get_num_unfinished_requests.remote() for engine in self._ready.vllm_engines])
        self._state = Rounds(self._check_engines(), asked_iterations(manifest))
        self.notes += tuple(notes(manifest))
        self.work_differences = tuple(work_differences(manifest))
        hook_experience(self._ready.experience_maker, self._state)
        hook_training(self._ready, self._state)
        self._hook_rounds(ray, trainers[names[0]].made)

    def lead(self, clock: NullClock, iterations: int) -> None:
        from suite.worker.trainers.openrlhf.hooks import Done

        self._start(clock)
        with suppress(Done):
            self._ready.fit()
        self._state.check_all_ran("OpenRLHF", iterations)

    def _write_models(self, folder: str) -> Tuple[str, str]:
        """Folders of the policy and of the critic: the policy's own, unless the workload has a critic's shape."""
        from suite.worker.trainers.drawn_model import critic_size, write_model

        manifest, measure = self.manifest, self.manifest["measure"]
        precision = DTYPES[measure["precision"]]
        policy, critic = os.path.join(folder, "policy"), os.path.join(folder, "critic")
        write_model(policy, manifest["size"], measure["seed"], precision)
        if manifest["workload"].get("critic") is None:
            return policy, policy
        write_model(critic, critic_size(manifest), measure["seed"] + 1, precision)
        return policy, critic

    def _hook_rounds(self, ray: Any, outer: Any) -> None:
        """``outer``: what OpenRLHF's program made, in which the trainer may be another. Sets what starts the clock."""
        from suite.worker.trainers.openrlhf import asynchronous, hooks

        if outer is self._ready:
            hooks.hook_rounds(outer, self._state)
            self._start = partial(setattr, self._state, "clock")
            return
        path = os.path.join(self.cluster.folder, "generation.times")
        ray.get(outer.generator_actor.__ray_call__.remote(asynchronous.write_times, path))
        asked = self.manifest
        ranks = {"generation": options.generation_ranks(asked), "training": options.training_ranks(asked)}
        self._start = asynchronous.Periods(self._ready, outer.generator_actor, self._state, path, ranks).start

    def _check_engines(self) -> Any:
        """A ``Count`` of what the engines hold. Raises ConfigError unless all are as asked."""
        from suite.worker.trainers.openrlhf import probe
        from suite.worker.trainers.openrlhf.counting import Count
        from suite.worker.trainers.openrlhf.hooks import ask_all

        stage, ranks = self.manifest["layout"]["zero_stage"], options.training_ranks(self.manifest)
        wanted = {
            "engine": "DeepSpeedEngine",
            "ranks": ranks,
            "device": self.manifest["measure"]["device"],
            "precision": dtype_name(self.manifest["measure"]["precision"]),
        }
        total = trains = 0
        for name, own in (("actor", stage), ("critic", stage), ("reference", 3 if stage == 3 else 0)):
            group = getattr(self._ready, name + "_model_group")
            if group is None:
                continue
            found = ask_all(group, probe.install)
            asked = {**wanted, "stage": own}.items()
            facts = [(fact, value, each[fact]) for each in found for fact, value in asked]
            check_found("OpenRLHF built the {}".format(name), [("engines", ranks, len(found)), *facts])
            if name == "actor":
                self.notes += (found[0]["kernels"],)
            if name != "reference":
                total, trains = total + found[0]["total"], trains + found[0]["trains"]
        return Count(self.manifest, self.world, total, trains)


def _shown(asked: Dict[str, List[str]], folder: str) -> Dict[str, Any]:
    """Options as a reader may have them again: by name, without this run's folders; True of a switch."""
    texts = {name: " ".join(words).replace(folder + os.sep, "") for name, words in asked.items()}
    return {name: text.replace(options.AGENT, os.path.basename(options.AGENT)) or True for name, text in texts.items()}


class Ready(Exception):
    """Everything is built and the trainer is about to run."""


class Local:
    """In the place of an actor's class: ``remote`` makes an object of the class beneath it in this process. In the
    place of its handle: methods have a ``remote``, whose answers lie in Ray's store; ``fit`` raises ``Ready``."""

    def __init__(self, actor_class: Any) -> None:
        self._class = actor_class.__ray_metadata__.modified_class
        self.made: Any = None

    def remote(self, *arguments: Any, **options: Any) -> "Local":
        self.made = self._class(*arguments, **options)
        return self

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any, **options: Any) -> Any:
            import ray

            if name == "fit":
                raise Ready
            return ray.put(getattr(self.made, name)(*arguments, **options))

        return SimpleNamespace(remote=remote)
