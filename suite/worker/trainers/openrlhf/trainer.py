"""OpenRLHF's PPO trainers, synchronous and asynchronous, on DeepSpeed and vLLM."""

import os
import runpy
import sys
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple
from unittest import mock

from suite.worker.asked import check_found
from suite.worker.manifest import asked_iterations
from suite.worker.models import DTYPES, dtype_name
from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.openrlhf import cpu, options
from suite.worker.trainers.openrlhf.work import notes, work_differences
from suite.worker.vllm_common import CACHE_VARIABLE

_PROGRAM = "openrlhf.cli.train_ppo_ray"
#: how argparse ends a program
_BAD_USAGE = 2
#: batches beyond those of the iterations and of the fill, so that generation is as busy in the last iteration
_SPARE_BATCHES = 2


class OpenRlhfTrainer(LedTrainer):
    """Built by OpenRLHF's own command line up to the moment when it would train."""

    imports = ("openrlhf.cli.train_ppo_ray", "openrlhf.trainer.ray.vllm_engine", "openrlhf.trainer.ppo_trainer_async")

    def check(self) -> None:
        manifest = self.manifest
        if manifest["measure"]["device"] == "cpu":
            os.environ[cpu.PRECISION_VARIABLE] = manifest["measure"]["precision"]
            os.environ["OMP_NUM_THREADS"] = str(manifest["measure"]["threads_per_rank"])
            os.environ[CACHE_VARIABLE] = str(options.cache_gib(manifest))

    def build(self) -> None:
        manifest = self.manifest
        ray = self.cluster.connect()
        from suite.worker.trainers.openrlhf.hooks import Rounds

        line = options.command_line(manifest, *self._write_models(self.cluster.folder))
        self.configuration = _shown(line, self.cluster.folder)
        self._is_asynchronous = options.staleness(manifest) > 0
        self.waiting_for("OpenRLHF's imports, models and vLLM engines: every process imports torch and more by itself")
        with self._replaced():
            _run_until_ready(line)
        self._ready = self._training.made if self._is_asynchronous else self._outer.made
        self.waiting_for("vLLM's engines")
        ray.get([engine.get_num_unfinished_requests.remote() for engine in self._ready.vllm_engines])
        facts, count = self._look()
        self.notes += tuple(notes(manifest, facts))
        self.work_differences = tuple(work_differences(manifest))
        self._state = Rounds(count, asked_iterations(manifest))
        self._hook(ray)

    def lead(self, clock: NullClock, iterations: int) -> None:
        from suite.worker.trainers.openrlhf.hooks import Done

        state = self._state
        state.give(clock)
        if self._is_asynchronous:
            self._periods.run()
        else:
            state.start()
            try:
                self._ready.fit()
            except Done:
                pass
        state.check_all_ran("OpenRLHF", iterations)

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

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """OpenRLHF's trainers as objects of this process, with the manifest's prompts."""
        from suite.worker.trainers.openrlhf.counting import loader

        batches = asked_iterations(self.manifest) + 1 + options.staleness(self.manifest) + _SPARE_BATCHES
        prompts = partial(loader, self.manifest, batches)
        if self._is_asynchronous:
            module = import_module("openrlhf.trainer.ppo_trainer_async")
            self._outer = Local(module.PPOTrainerAsync, held=("fit",))
            self._training = Local(module.TrainingActor)
            trainers = {"PPOTrainerAsync": self._outer, "TrainingActor": self._training}
        else:
            module = import_module("openrlhf.trainer.ppo_trainer")
            self._outer = Local(module.PPOTrainer, held=("fit",))
            trainers = {"PPOTrainer": self._outer}
        with mock.patch.multiple(module, prepare_datasets=prompts, **trainers):
            yield

    def _hook(self, ray: Any) -> None:
        from suite.worker.trainers.openrlhf import asynchronous, hooks

        hooks.hook_experience(self._ready.experience_maker, self._state)
        hooks.hook_training(self._ready, self._state)
        if not self._is_asynchronous:
            hooks.hook_rounds(self._ready, self._state)
            return
        path = os.path.join(self.cluster.folder, "generation.times")
        generator = self._outer.made.generator_actor
        ray.get(generator.__ray_call__.remote(asynchronous.write_times, path))
        ranks = {
            "generation": options.generation_ranks(self.manifest),
            "training": options.training_ranks(self.manifest),
        }
        self._periods = asynchronous.Periods(self._ready, generator, self._state, path, ranks)

    def _look(self) -> Any:
        """Facts of the policy's engine, and a ``Count``. Raises ConfigError unless all engines are as asked."""
        from suite.worker.trainers.openrlhf import probe
        from suite.worker.trainers.openrlhf.counting import Count
        from suite.worker.trainers.openrlhf.hooks import ask_all

        trainer, stage = self._ready, self.manifest["layout"]["zero_stage"]
        policies = ask_all(trainer.actor_model_group, probe.install)
        self._check_engines("policy", policies, stage)
        total, trains = policies[0]["total"], policies[0]["trains"]
        if trainer.critic_model_group is not None:
            critics = ask_all(trainer.critic_model_group, probe.install)
            self._check_engines("critic", critics, stage)
            total, trains = total + critics[0]["total"], trains + critics[0]["trains"]
        if trainer.reference_model_group is not None:
            references = ask_all(trainer.reference_model_group, probe.look)
            self._check_engines("reference", references, 3 if stage == 3 else 0)
        wanted = options.generation_ranks(self.manifest) or options.training_ranks(self.manifest)
        check_found("OpenRLHF runs", [("vLLM engines", wanted, len(trainer.vllm_engines))])
        return policies[0], Count(self.manifest, self.world, total, trains)

    def _check_engines(self, name: str, found: List[Dict[str, Any]], stage: int) -> None:
        ranks = options.training_ranks(self.manifest)
        wanted = {
            "engine": "DeepSpeedEngine",
            "stage": stage,
            "ranks": ranks,
            "device": self.manifest["measure"]["device"],
            "precision": dtype_name(self.manifest["measure"]["precision"]),
        }
        facts = [(fact, value, each[fact]) for each in found for fact, value in wanted.items()]
        check_found("OpenRLHF built the {}".format(name), [("engines", ranks, len(found)), *facts])


def _run_until_ready(line: List[str]) -> None:
    """OpenRLHF's program with these options, up to the call of ``fit``. Raises ConfigError where it refuses them."""
    with mock.patch.object(sys, "argv", [_PROGRAM, *line]):
        try:
            runpy.run_module(_PROGRAM, run_name="__main__")
        except Ready:
            return
        except SystemExit as error:
            if error.code != _BAD_USAGE:
                raise
            raise ConfigError("OpenRLHF refuses its options: {}".format(" ".join(line))) from error
    raise ConfigError("OpenRLHF ended before it trained")


def _shown(line: List[str], folder: str) -> Dict[str, Any]:
    """Options as a reader may have them again: by name, without this run's folders."""
    shown: Dict[str, Any] = {}
    name = ""
    for word in line:
        if word.startswith("--"):
            name = word[2:]
            shown[name] = True
        else:
            word = word.replace(folder, "").replace(options.AGENT, os.path.basename(options.AGENT)).lstrip("/")
            shown[name] = word if shown[name] is True else "{} {}".format(shown[name], word)
    return shown


class Ready(Exception):
    """Everything is built and the trainer is about to run."""


class Local:
    """In the place of an actor's class: ``remote`` makes an object of the class beneath it in this process."""

    def __init__(self, actor_class: Any, held: Tuple[str, ...] = ()) -> None:
        """``held``: methods that raise ``Ready`` where they are called remotely."""
        self._class = actor_class.__ray_metadata__.modified_class
        self._held = held
        self.made: Any = None

    def remote(self, *arguments: Any, **options: Any) -> "_Handle":
        self.made = self._class(*arguments, **options)
        return _Handle(self.made, self._held)


class _Handle:
    """What an actor's handle is asked for: methods with a ``remote``, whose answers lie in Ray's store."""

    def __init__(self, made: Any, held: Tuple[str, ...]) -> None:
        self._made, self._held = made, held

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any, **options: Any) -> Any:
            import ray

            if name in self._held:
                raise Ready
            return ray.put(getattr(self._made, name)(*arguments, **options))

        return SimpleNamespace(remote=remote)
