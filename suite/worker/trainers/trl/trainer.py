"""TRL's GRPO and RLOO trainers on Accelerate: DeepSpeed's engine, torch's DDP or FSDP2."""

import importlib
import tempfile
from contextlib import nullcontext
from functools import partial
from typing import Any, Dict, List

import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence

from suite.worker.asked import draw_prompts, prompts_of_groups, sample_lengths, scores_of_own
from suite.worker.generation import find_generator
from suite.worker.hugging_face import write_configuration
from suite.worker.manifest import algorithm_of, asked_iterations
from suite.worker.mismatch import mismatch
from suite.worker.models import dtype_name
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, finite
from suite.worker.trainers.on_accelerate import check_engine, check_ranks
from suite.worker.trainers.trl import config as trl_config
from suite.worker.trainers.trl.hooks import TimedTrainer
from suite.worker.trainers.trl.shims import build_with_drawn_weights, shims_on_cpu, without_vllm
from suite.worker.trainers.trl.work import notes, work_differences
from suite.worker.world import World


class TrlTrainer(Trainer):
    """The trainer of the manifest's algorithm, with a drawn model and a tokenizer of numbers instead of a hub's."""

    imports = ("trl.trainer.grpo_trainer", "trl.trainer.rloo_trainer")

    @classmethod
    def load(cls, manifest: Dict[str, Any]) -> None:
        """Import TRL, and vLLM before it where it generates."""
        find_generator(manifest)
        _module(manifest)

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self._manifest, self._world = manifest, world
        own = manifest["work"]["replica_rollouts"]
        self._numbers = range(world.rank * own, (world.rank + 1) * own)
        lengths, layout = sample_lengths(manifest["workload"], manifest["work"])[1], manifest["layout"]
        self._lengths = [lengths[number] for number in self._numbers]
        # ranks that gather weights for each token have to generate equally many
        is_sharded = layout["zero_stage"] == 3 and not layout.get("gather_for_generation")
        self._steps = max(lengths if is_sharded else self._lengths)
        self._state = IterationState(Tally(manifest, world), self._end_iteration)
        self.notes = tuple(shims_on_cpu(manifest))
        with tempfile.TemporaryDirectory(prefix="suite-trl-") as folder:
            self._trainer = self._build(folder)
        check_ranks(self._trainer.accelerator, world)
        self.notes += tuple(notes(manifest, self._trainer))
        self.work_differences = tuple(work_differences(manifest))
        self.unscored = not trl_config.scores(manifest)

    def run(self, clock: NullClock, iterations: int) -> None:
        trainer = self._trainer
        self._state.clock = clock
        reference = [] if trainer.ref_model is None else [trainer.ref_model]
        clock.watch(trainer.model, *reference)
        trainer.train()
        self._state.check_all_ran("TRL", iterations)

    def _build(self, folder: str) -> Any:
        from transformers import PrinterCallback

        manifest, size, iterations = self._manifest, self._manifest["size"], asked_iterations(self._manifest)
        module, name = _module(manifest), algorithm_of(manifest)["name"].upper()
        module.create_model_from_path = self._draw
        if trl_config.uses_vllm(manifest):
            write_configuration(folder, size, dtype_name(manifest["measure"]["precision"]))
            generation: Any = importlib.import_module("trl.generation.vllm_generation")
            generation.LLM = partial(build_with_drawn_weights, manifest, self._lengths)
        self.total_parameters, self.trainable_parameters = drawn_model.count_on_paper(size)
        arguments = trl_config.training_arguments(manifest, iterations, folder, self.trainable_parameters)
        self.configuration = {name: value for name, value in arguments.items() if name != "output_dir"}
        # behind the model's vocabulary come the tokenizer's special tokens, of which the model has none
        all_ids = size["vocab"] + len(drawn_model.SPECIAL_TOKENS)
        tokenizer = drawn_model.build_tokenizer(all_ids)
        tokenizer.pad_token_id = 0  # masked wherever it stands, but the model looks it up
        prompts = drawn_model.as_text(prompts_of_groups(manifest, iterations), all_ids)
        trainer = _timed(getattr(module, name + "Trainer"))(
            state=self._state,
            passes=trl_config.passes(manifest),
            on_start=self._start,
            lengths=self._lengths,
            steps=self._steps,
            model=folder,
            args=getattr(module, name + "Config")(**arguments),
            reward_funcs=self.reward,
            train_dataset=module.Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _draw(self, folder: str, **options: Any) -> Any:
        """In the place of ``create_model_from_path``: the policy, and the reference once more, from equal weights."""
        seed = self._manifest["measure"]["seed"]
        model = drawn_model.draw_model(self._manifest["size"], seed, self._world.device, has_special=False)
        model.name_or_path = model.config.name_or_path = folder
        return model

    def reward(self, completion_ids: List[List[int]], **others: Any) -> List[float]:
        responses = pad_sequence([torch.tensor(ids) for ids in completion_ids], batch_first=True)
        samples = Samples(responses, [0] * len(responses), [len(ids) for ids in completion_ids])
        return scores_of_own(self._manifest, self._state.iteration, self._world.rank, samples).tolist()

    def _start(self) -> None:
        check_engine(self._trainer.model_wrapped, self._manifest)

    def _end_iteration(self) -> None:
        """Not in any timed phase: counting waits for the device."""
        state, output = self._state, self._trainer.collected
        lengths = [output[name].sum(dim=1).tolist() for name in ("prompt_mask", "completion_mask")]
        for number, prompt, response in zip(self._numbers, *lengths):
            state.tally.add_sample(number, prompt, response)
        self._check_prompts(output["prompt_ids"])
        counts = state.tally.counts(self.trainable_parameters, self.total_parameters)
        stats = {name: state.logged.get(name) for name in ("loss", "kl", "reward")}
        optional: Dict[str, Any] = {}
        if "sampling_per_token_logps" in output:
            optional["rollout"] = mismatch(
                output["old_per_token_logps"],
                output["sampling_per_token_logps"],
                output["completion_mask"].bool(),
                _reduced,
                partial(_reduced, by=dist.ReduceOp.MAX),
            )
        state.clock.finish(counts, finite({**stats, "gradient_norm": state.mean("gradient_norm")}), **optional)

    def _check_prompts(self, found: torch.Tensor) -> None:
        wanted = draw_prompts(self._manifest, self._state.iteration)
        own = wanted[self._world.rank * len(found) :][: len(found)]
        wrong = int((own != found.cpu()).any(dim=1).sum())
        if wrong:
            raise ConfigError("{} of {} samples do not start with their prompts".format(wrong, len(found)))


def _module(manifest: Dict[str, Any]) -> Any:
    """TRL's module of the algorithm; on a CPU imported without vLLM where that does not generate."""
    name = "trl.trainer.{}_trainer".format(algorithm_of(manifest)["name"])
    is_hidden = manifest["measure"]["device"] == "cpu" and not trl_config.uses_vllm(manifest)
    with without_vllm() if is_hidden else nullcontext():
        return importlib.import_module(name)


def _reduced(tensor: torch.Tensor, by: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    dist.all_reduce(tensor, op=by)
    return tensor


def _timed(base: type) -> type:
    return type("Timed" + base.__name__, (TimedTrainer, base), {"_name": base._name})
