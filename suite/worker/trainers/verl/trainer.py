"""verl's synchronous PPO trainer (``trainer/ppo/v1``) with its controller in rank 0's own process."""

import importlib
import os
import sys
import tempfile
from typing import Any, Dict, Iterator, List

from suite.worker.asked import check_found
from suite.worker.manifest import algorithm_of, learns_values
from suite.worker.rank import ConfigError
from suite.worker.trainers.base import K3
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import Tally, before
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.scratch import ROOT
from suite.worker.trainers.verl import CPU_VARIABLES, HIDDEN, VARIABLES, inspection
from suite.worker.trainers.verl.hooks import Steps, install
from suite.worker.trainers.verl.settings import settings
from suite.worker.trainers.verl.workspace import Workspace, write_plugins
from suite.worker.vllm_common import CACHE_VARIABLE

#: by ``cpu`` in verl's processes and ``keep_linear_weights`` in vLLM's, on a CPU alone
REPLACED = (
    "verl-cpu-platform: verl has no platform for a CPU; one is registered by its plug-in door",
    "verl-process-group: init_process_group is asked for cpu and cpu once more, and is given gloo alone",
    "verl-offload: the reference's CPUOffloadPolicy pins memory, which needs a GPU; it is OffloadPolicy",
    "verl-critic-attention: verl asks for flash_attention_2 for every critic; it is sdpa",
    "vllm-linear: vLLM's linear layers keep their weights and compute as torch, so that new weights find a place",
    "vllm-version: verl asks for the version of vllm, which a CPU's package has under another name",
)


class VerlTrainer(LedTrainer):
    """See ``LedTrainer``. verl's files are unchanged; what is wrapped is in ``hooks``."""

    imports = (
        *("hydra", "omegaconf", "pandas", "pyarrow", "transfer_queue", "verl.trainer.main_ppo", "verl.trainer.ppo.v1"),
        "verl.workers.rollout.vllm_rollout.vllm_async_server",
    )

    @classmethod
    def import_all(cls, device_type: str) -> None:
        if device_type == "cpu":
            sys.path.insert(0, write_plugins(tempfile.mkdtemp()))
        super().import_all(device_type)

    def check(self) -> None:
        self._space = Workspace(self.manifest, self.world)

    def build(self) -> None:
        manifest, is_cpu = self.manifest, self.manifest["measure"]["device"] == "cpu"
        if is_cpu:
            sys.path.insert(0, self._space.folders["plugins"])
        self.waiting_for("verl's imports")
        configuration = self._configuration()
        self._ray = self.cluster.connect(self._space.job, runtime_env={"env_vars": self._variables(configuration)})
        self._queue = importlib.import_module("transfer_queue")
        main = importlib.import_module("verl.trainer.main_ppo")
        registry = importlib.import_module("verl.trainer.ppo.v1")
        self._runner = main.TaskRunnerV1.__ray_metadata__.modified_class()
        self._runner.config = configuration
        self._queue.init(configuration.transfer_queue)
        self.waiting_for("verl's workers and vLLM servers, which import torch and more, each by itself")
        trainer = registry.get_trainer_cls(configuration.trainer.v1.trainer_mode)(config=configuration)
        self._runner.trainer = trainer
        before(trainer, "on_init_end", lambda *_: self._leave_out_heads(trainer))  # which sends the first weights
        trainer.init()
        self.waiting_for("verl's agent loop and reward loop")
        self._runner.init_agent_loop_manager()
        # verl's first step would wait for them
        actors = [*self._runner.agent_loop_manager.agent_loop_workers, *(trainer.get_reward_handles() or ())]
        self._ray.get([actor.__ray_call__.remote(lambda _actor: None) for actor in actors])
        found = self._inspect(trainer)
        trained = sum(self._space.parameters.values())
        self._state = Steps(manifest, Tally(manifest, self.world), trained)
        install(trainer, self._state)
        self.notes += tuple(notes(manifest, str(found[0]["actor"]["attention"])))
        self.work_differences = tuple(work_differences(manifest))

    def lead(self, clock: NullClock, iterations: int) -> None:
        """As verl's TaskRunner goes on after its set-up."""
        self._state.clock = clock
        trainer = self._runner.trainer
        trainer.fit(self._runner.agent_loop_manager)
        trainer.logger.finish(exit_code=0)
        self._queue.close()
        self._ray.shutdown()
        self._state.check_all_ran("verl", iterations)

    def _configuration(self) -> Any:
        """verl's own configuration with what the manifest says, checked by verl."""
        from hydra import compose, initialize_config_dir
        from omegaconf import OmegaConf
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        folder = os.path.join(os.path.dirname(importlib.import_module("verl.trainer").__file__ or ""), "config")
        with initialize_config_dir(folder, version_base=None):
            found = compose("ppo_trainer")
        self.configuration = settings(self.manifest, self._space.folders)
        for name, value in self.configuration.items():
            OmegaConf.update(found, name, value, force_add=True)
        found.transfer_queue.enable = True
        validate_config(found, need_reference_policy(found), need_critic(found))
        OmegaConf.resolve(found)
        return found

    def _variables(self, configuration: Any) -> Dict[str, str]:
        """What every process of Ray finds in its environment, beyond that of the node that it is started on."""
        constants = importlib.import_module("verl.trainer.constants_ppo")
        is_cpu = self.manifest["measure"]["device"] == "cpu"
        variables = {**constants.get_ppo_ray_runtime_env(configuration)["env_vars"], **VARIABLES}
        path = [self._space.folders["plugins"]] * is_cpu + [ROOT, os.environ.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        variables["TRANSFER_QUEUE_ENABLE"] = "1"
        variables["OMP_NUM_THREADS"] = str(self.manifest["measure"]["threads_per_rank"])
        if is_cpu:
            variables.update({**CPU_VARIABLES, CACHE_VARIABLE: "1"})
        return variables

    def _leave_out_heads(self, trainer: Any) -> None:
        """Raises ConfigError where a worker's policy is tied otherwise than the size."""
        calls = [each.__ray_call__.remote(inspection.leave_out_head) for each in trainer.actor_rollout_wg.workers]
        found, wanted = self._ray.get(calls), self.manifest["size"]["tied_embeddings"]
        if set(found) != {wanted}:
            raise ConfigError("tied embeddings in verl's policies: {}; in the size: {}".format(found, wanted))

    def _inspect(self, trainer: Any) -> List[inspection.Found]:
        """What each worker built, checked; and that there is a vLLM server for each."""
        ranks, workers = self.world.world_size, trainer.actor_rollout_wg.workers
        found = self._ray.get([worker.__ray_call__.remote(inspection.describe) for worker in workers])
        drawn: Dict[str, Any] = dict(self._space.parameters)
        if trainer.use_reference_policy:
            drawn["ref"] = None
        facts = [*inspection.facts(found, ranks, self.manifest["measure"]["device"], drawn)]
        servers = ("vLLM servers", ranks, len(trainer.llm_server_manager.get_replicas()))
        check_found("verl runs", [*facts, servers])
        return found


def notes(manifest: Dict[str, Any], attention: str) -> Iterator[str]:
    yield "verl's controller runs in rank 0; workers, agent loop, TransferQueue and vLLM servers are processes of Ray"
    yield "attention: {}".format(attention)
    yield "hidden from verl's processes, which would import them and not use them: {}".format(", ".join(HIDDEN))
    yield "sync is the last phase of an iteration: the weights that the next one generates with"
    if manifest["size"]["tied_embeddings"]:
        said = "{}: the output head is the embedding; verl would send it once more, in a bucket that vLLM refuses"
        yield said.format(inspection.NAME)
    if manifest["layout"].get("sampler") == "fast":
        yield "a custom sampler looks for finished samples every 0.02 s, where verl's own looks every 2 s"
    else:
        yield "verl looks for finished samples every 2 s, so that generation is rounded up by as much"
    if manifest["measure"]["device"] == "cpu":
        yield "one agent loop, reward and storage process each, where verl starts eight"
        yield "vLLM computes in the process of its engine core, where verl starts another one"
        yield from ("replaced on a CPU: " + line for line in REPLACED)


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    yield "prompts are text that verl's agent loop makes tokens of, in generate"
    yield "each sample is scored as soon as it is complete, in generate; reward holds the advantages alone"
    yield "score also makes the entropy of every response token, which goes into verl's statistics alone"
    yield "samples go between processes through TransferQueue in every phase; verl makes statistics of them in other"
    yield "logits of every position are made, in scoring and training, where the suite makes those of responses alone"
    yield "samples are not shuffled between optimizer steps"
    yield "a negative advantage's loss is bounded a second time (dual clip, at a ratio of 3)"
    yield "weights are kept in fp32 and gradients reduced in fp32, whatever the precision of the pass"
    yield "the optimizer is torch's AdamW, not its fused form"
    precision = manifest["measure"]["precision"]
    if manifest["measure"]["device"] == "cpu" and precision != "fp32":
        yield "log-probs are of a softmax in {0}, and rounded to {0}, on a CPU".format(precision)
    if not learns_values(manifest) and algorithm_of(manifest)["options"]["kl_coefficient"] > 0:
        yield K3
    if learns_values(manifest):
        if manifest["workload"].get("critic") is None:
            yield "the critic is a model of its own in the policy's shape, where the suite has a value head"
        else:
            yield "the critic's last layer has a bias"
        yield "the critic takes optimizer steps of its own, and its loss is not scaled by value_coefficient"
