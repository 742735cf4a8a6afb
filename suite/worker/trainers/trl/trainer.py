"""TRL's GRPO and RLOO trainers on Accelerate: DeepSpeed's engine, torch's DDP or FSDP2."""

import importlib
import tempfile
from contextlib import nullcontext
from functools import partial
from typing import Any, Dict, Iterator, List

import torch
import torch.distributed as dist
from torch.nn.utils.rnn import pad_sequence

from suite.worker.asked import draw_prompts, prompts_of_groups, sample_lengths, scores_of_own
from suite.worker.deepspeed_json import bucket_notes, engine_of, uses_deepspeed
from suite.worker.generation.vllm import find_generator
from suite.worker.hugging_face import write_configuration
from suite.worker.manifest import algorithm_of, asked_iterations, installed_version
from suite.worker.mismatch import mismatch
from suite.worker.models import VOCABULARY_MULTIPLE, dtype_name
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import K3, Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, finite
from suite.worker.trainers.on_accelerate import check_engine, check_ranks
from suite.worker.trainers.trl import config as trl_config
from suite.worker.trainers.trl.hooks import TimedTrainer
from suite.worker.trainers.trl.shims import build_with_drawn_weights, shims_on_cpu, without_vllm
from suite.worker.vllm_common import release
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
            on_start=lambda: check_engine(self._trainer.model_wrapped, manifest),
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


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where TRL's iteration does other work than the suite's own of the same manifest, one sentence each."""
    algorithm = manifest["workload"]["algorithm"]
    is_rloo, has_reference = algorithm["name"] == "rloo", algorithm["options"]["kl_coefficient"] > 0
    if not trl_config.scores(manifest):
        yield "no scoring pass: the log-probs of the training pass stand for those of the policy that generated"
    if manifest["measure"]["device"] == "cpu":
        yield "the output head computes log-probs for prompt positions too, on a CPU, in scoring and in training"
    yield "the entropy of every token is computed in training, for TRL's statistics"
    yield "responses are decoded to text, and texts of all ranks gathered, for TRL's log"
    yield "statistics of the loss are reduced over ranks in each micro batch, and read from the device"
    yield "the output head's log-probs are computed in chunks, so logits of a micro batch are never whole"
    if manifest["size"]["vocab"] % VOCABULARY_MULTIPLE:
        yield "the vocabulary is not padded to a multiple of {}".format(VOCABULARY_MULTIPLE)
    yield "biases and norms have no weight decay"
    if manifest["work"].get("lengths"):
        yield "micro batches are padded to the longest response of all of a rank's samples"
    if has_reference:
        yield "kl is the mean log-ratio at scoring, as the suite's" if is_rloo else K3
    if trl_config.uses_vllm(manifest) and not is_rloo:
        yield "the loss is corrected by the importance of vLLM's log-probs, TRL's default"
    engine, precision = engine_of(manifest), manifest["measure"]["precision"]
    if engine == "ddp" and manifest["layout"]["recompute"] == "none":
        yield "DDP looks for parameters without a gradient in each backward pass, transformers' default"
    if engine == "fsdp2" and has_reference:
        yield "the reference is sharded as one unit, so it is whole on every rank while it computes"
    if engine == "fsdp2" and not trl_config.uses_vllm(manifest):
        yield "every generated token gathers the weights of each block anew"
    if engine == "deepspeed" and manifest["layout"]["zero_stage"] in (1, 2) and has_reference:
        yield "the reference is whole on every rank, in an engine without ZeRO"
    if engine != "deepspeed" and precision != "fp32":
        yield "weights and optimizer states stay in fp32 and passes are cast, so gradients are in fp32 too"
    if engine == "fsdp2" and precision != "fp32":
        yield "what a pass gives, log-probs among it, is rounded to {0}, and gradients are reduced in {0}".format(
            precision
        )


def notes(manifest: Dict[str, Any], trainer: Any) -> Iterator[str]:
    versions = {name: installed_version(name) for name in ("trl", "transformers", "accelerate")}
    yield "TRL {trl} on transformers {transformers} and Accelerate {accelerate}, files unchanged".format(**versions)
    yield "create_model_from_path is replaced: random weights from a configuration, for policy and reference"
    attention = trainer.model.config._attn_implementation
    yield "transformers' {} attention; optimizer {}".format(attention, trainer.args.optim.value)
    yield "FLOPs are those of the suite's own iteration: what TRL computes beyond them lowers its utilisation"
    if uses_deepspeed(manifest) and manifest["layout"]["zero_stage"] == 3 and not trl_config.uses_vllm(manifest):
        gathers = manifest["layout"].get("gather_for_generation")
        how = "once for a whole generation" if gathers else "layer by layer for every token"
        yield "ZeRO-3's weights are gathered {}, inside of generate".format(how)
    yield from bucket_notes(manifest)
    is_cpu = manifest["measure"]["device"] == "cpu"
    if trl_config.uses_vllm(manifest):
        said = "generation by {} in each rank's process, on dummy weights until the first sync, without a tokenizer"
        yield said.format(release(manifest["measure"]["device"]))
        if is_cpu:
            yield "CPU patch: vLLM's linear layers keep their weights, so that new ones can be written"
            yield "CPU patch: vLLM's cache has room for a rank's samples instead of a share of the memory, and is eager"
    elif is_cpu:
        yield "vLLM is hidden from TRL while it is imported, because it does not generate here"
