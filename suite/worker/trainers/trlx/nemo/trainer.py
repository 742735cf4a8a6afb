"""trlx's own PPO trainer on NeMo-Megatron: tensor, sequence and data parallel ranks on NVIDIA GPUs."""

import json
import os
import tempfile
from typing import Any, Dict, Iterator, Optional

from suite.worker.asked import check_found, prompts_of_groups
from suite.worker.loop import TRAIN_STATS
from suite.worker.manifest import asked_iterations
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally
from suite.worker.trainers.trlx.config import learn
from suite.worker.trainers.trlx.nemo.config import VOCABULARY_MULTIPLE, megatron_config, nemo_trlx_config
from suite.worker.trainers.trlx.nemo.hooks import TimedNeMoPPO
from suite.worker.trainers.trlx.source import COMMIT, VERSIONS, shim_without_git
from suite.worker.world import World

_END = "<eos>"


class TrlxNemoTrainer(Trainer):
    """``NeMoPPOTrainer`` at one commit, with random weights and a tokenizer of numbers instead of a hub's."""

    versions = VERSIONS

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Builds trainer and model; optimizer and groups come with ``run``. Raises ConfigError for what cannot be."""
        self._manifest, self._world = manifest, world
        shims = shim_without_git("trlx.trainer.nemo_ppo_trainer")
        self.notes = (*lead_lightning(world), *_notes(), *shims)
        self.work_differences = tuple(work_differences(manifest))
        leader = world.rank % manifest["layout"]["tensor"] == 0
        self._state = IterationState(Tally(manifest, world, leader), self._end_iteration)
        multiple = VOCABULARY_MULTIPLE * manifest["layout"]["tensor"]
        self._padded_vocab = -(-manifest["size"]["vocab"] // multiple) * multiple
        self._trainer = self._build(tempfile.mkdtemp())  # NeMo keeps log files open in it as long as the run

    def run(self, clock: NullClock, iterations: int) -> None:
        """The evaluation at trlx's end gets one prompt."""
        self._state.clock = clock
        # words of all replicas' prompts; the end token, which would end the attention, becomes an ordinary one
        rows = prompts_of_groups(self._manifest, iterations) % (self._manifest["size"]["vocab"] - 1)
        learn(self._trainer, self._manifest, [" ".join(map(str, row)) for row in rows.tolist()], 1)
        self._trainer.check_closed()
        self._state.check_all_ran("trlx", iterations)

    def _build(self, folder: str) -> Any:
        from trlx.data.configs import TRLConfig
        from trlx.trainer.nemo_ppo_trainer import NeMoPPOTrainer
        from trlx.utils import set_seed

        manifest, iterations = self._manifest, asked_iterations(self._manifest)
        self.configuration = megatron_config(manifest, folder, os.path.join(folder, "logs"))
        write_tokenizer(folder, manifest["size"]["vocab"])
        megatron_file = os.path.join(folder, "megatron.yaml")
        with open(megatron_file, "w", encoding="utf-8") as file:
            json.dump(self.configuration, file)  # YAML is more than JSON
        config = TRLConfig.from_dict(nemo_trlx_config(manifest, iterations, megatron_file, folder))
        set_seed(config.train.seed)
        return type("SuiteNeMoPPOTrainer", (TimedNeMoPPO, NeMoPPOTrainer), {})(
            state=self._state,
            steps=manifest["workload"]["optimizer_steps"] * manifest["workload"]["ppo_epochs"],
            on_setup=self._check_setup,
            config=config,
            reward_fn=lambda samples, **_: [float(manifest["workload"]["reward"]["value"])] * len(samples),
            metric_fn=None,
            stop_sequences=[],
            **config.train.trainer_kwargs,
        )

    def _check_setup(self) -> None:
        """Raise ConfigError unless NeMo's groups and batches are the manifest's; count parameters."""
        from trlx.trainer.nemo_ppo_trainer import parallel_state

        layout, work, trainer = self._manifest["layout"], self._manifest["work"], self._trainer
        facts = (
            ("ranks", self._world.world_size, trainer.trainer.world_size),
            ("tensor parallel", layout["tensor"], parallel_state.get_tensor_model_parallel_world_size()),
            ("data parallel", layout["data"], parallel_state.get_data_parallel_world_size()),
            ("tensor rank", self._world.rank % layout["tensor"], parallel_state.get_tensor_model_parallel_rank()),
            ("global batch", work["replica_batch"] * layout["data"], trainer.batch_size),
            ("micro batch", work["micro_batch"], trainer.model.cfg.micro_batch_size),
            ("padded vocabulary", self._padded_vocab, trainer.model.padded_vocab_size),
        )
        check_found("NeMo is laid out", facts)
        self._count_parameters(trainer.model)
        self._state.clock.watch(getattr(trainer.model.model, "module", trainer.model.model))

    def _count_parameters(self, model: Any) -> None:
        """Over tensor parallel ranks, without the padding of the vocabulary.

        ``PPOGPT.parameters`` (MP:931) gives those that the optimizer gets, the value head not among them.
        """
        size, tensor = self._manifest["size"], self._manifest["layout"]["tensor"]
        heads = getattr(model.model, "module", model.model)
        padding = (self._padded_vocab - size["vocab"]) * size["hidden"]
        is_trained = heads.word_embeddings_weight().requires_grad
        self._trained = _whole_size(model.parameters(), tensor) - (padding if is_trained else 0)
        whole = (*heads.language_model.parameters(), *heads.other_heads.parameters())
        self._total = _whole_size(whole, tensor) - padding

    def _end_iteration(self) -> None:
        state = self._state
        counts = state.tally.counts(self._trained, self._total)
        stats: Dict[str, Optional[float]] = dict.fromkeys((*TRAIN_STATS, "kl", "reward"))
        stats["loss"] = state.mean("loss")
        stats["kl"] = float(state.logged["train/kl"].mean())
        stats["reward"] = float(state.logged["train/unnorm_scores"].mean())
        state.clock.finish(counts, stats)


def write_tokenizer(folder: str, vocab: int) -> None:
    """As ``AutoTokenizer`` reads it: each word is the number of its id. transformers up to 4.32 needs a decoder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    end = vocab - 1  # the only special token: end, padding and unknown in one, so that nothing else ends a response
    tokenizer = Tokenizer(models.WordLevel({**{str(word): word for word in range(end)}, _END: end}, unk_token=_END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), _END)
    more = {"clean_up_tokenization_spaces": False, "model_max_length": 10**9}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **more).save_pretrained(folder)


def _whole_size(parameters: Any, tensor: int) -> int:
    """Elements over all tensor parallel ranks; apex marks what it splits."""
    return sum(each.numel() * (tensor if getattr(each, "tensor_model_parallel", False) else 1) for each in parameters)


def lead_lightning(world: World) -> Iterator[str]:
    """Let Lightning 1.9 take the ranks from torchrun's variables; a note for what it would have taken instead.

    It asks for Slurm first, where one task may stand for a whole node, and takes torchrun's variables only where
    torchrun's own mark is set. A job called "bash" is Lightning's documented way to be left alone by Slurm.
    """
    os.environ.setdefault("TORCHELASTIC_RUN_ID", "suite")
    os.environ.setdefault("GROUP_RANK", str(world.rank // world.local_world_size))
    yield "Lightning takes rank and world from torchrun's variables, which the launcher sets"
    if "SLURM_NTASKS" in os.environ:
        os.environ["SLURM_JOB_NAME"] = "bash"
        yield "Lightning is kept from Slurm's variables, which count tasks and not ranks"


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where trlx's NeMo trainer does other work than the suite's own iteration of the same manifest."""
    workload = manifest["workload"]
    sequence = workload["prompt_tokens"] + workload["new_tokens"]
    padded = -(-(sequence + 1) // 8) * 8
    yield "the value head runs but is never optimised: the optimizer gets the language model's parameters alone"
    yield "generation applies a repetition penalty of 1.2 over all tokens so far, which trlx has no option for"
    yield "generation runs over all samples of a replica at once, and logits are computed on every position"
    yield "the trained part of the reference lies in pinned host memory, swapped with the policy in each iteration"
    yield "the trained part of the reference is in fp32; autocast casts its weights in each micro batch"
    said = "training runs on {} positions a sample, {} of them padding that is not counted as trained"
    yield said.format(padded, padded - sequence)
    # trlx pads what it scores to a multiple of 8 (TP:222), so there may be a position for one token more
    end = " and takes in the end token behind its last" if sequence % 8 else ""
    yield "the loss leaves out each response's first token" + end
    yield "gradients are not clipped: trlx runs the steps itself and leaves Lightning's clipping out"
    yield "samples are not shuffled between make_experience and the batches"
    if workload["ppo_epochs"] > 1:
        yield "the PPO epochs follow one another on each batch, not on the whole set of samples"
    if workload["trainable_layers"] is not None:
        yield "the final LayerNorm is frozen with the embeddings, where the suite's iteration trains it"


def _notes() -> Iterator[str]:
    yield "trlx {}, files unchanged: a subclass reports where phases begin and end".format(COMMIT[:8])
    yield "trlx evaluates at its end over one prompt, outside of every iteration; nothing is saved"
    yield "kl is trlx's own estimate (exp(r) - 1 - r); policy loss, value loss and gradient norm are not reported"
    yield 'reward scaling is off: the script\'s "ref" would turn a constant 0.5 into the clip value of 10'
