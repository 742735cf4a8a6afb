"""What a reader must know beside TRL's figures: how its work differs from the suite's, and what it ran on."""

from typing import Any, Dict, Iterator

from suite.worker.deepspeed_json import bucket_notes, engine_of, uses_deepspeed
from suite.worker.manifest import installed_version
from suite.worker.models import VOCABULARY_MULTIPLE
from suite.worker.trainers.base import K3
from suite.worker.trainers.trl.config import scores, uses_vllm
from suite.worker.vllm_common import release


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where TRL's iteration does other work than the suite's own of the same manifest, one sentence each."""
    algorithm = manifest["workload"]["algorithm"]
    is_rloo, has_reference = algorithm["name"] == "rloo", algorithm["options"]["kl_coefficient"] > 0
    if not scores(manifest):
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
    if uses_vllm(manifest) and not is_rloo:
        yield "the loss is corrected by the importance of vLLM's log-probs, TRL's default"
    yield from _engine_differences(manifest, engine_of(manifest), has_reference)


def _engine_differences(manifest: Dict[str, Any], engine: str, has_reference: bool) -> Iterator[str]:
    precision = manifest["measure"]["precision"]
    if engine == "ddp" and manifest["layout"]["recompute"] == "none":
        yield "DDP looks for parameters without a gradient in each backward pass, transformers' default"
    if engine == "fsdp2" and has_reference:
        yield "the reference is sharded as one unit, so it is whole on every rank while it computes"
    if engine == "fsdp2" and not uses_vllm(manifest):
        yield "every generated token gathers the weights of each block anew"
    if engine == "deepspeed" and manifest["layout"]["zero_stage"] in (1, 2) and has_reference:
        yield "the reference is whole on every rank, in an engine without ZeRO"
    if engine != "deepspeed" and precision != "fp32":
        yield "weights and optimizer states stay in fp32 and passes are cast, so gradients are in fp32 too"
    if engine == "fsdp2" and precision != "fp32":
        yield (
            "what a pass gives, log-probs among it, is rounded to {0}, and gradients are reduced in {0}: the policy of "
            "mixed precision that Accelerate has for FSDP2 (output_dtype, reduce_dtype)".format(precision)
        )


def notes(manifest: Dict[str, Any], trainer: Any) -> Iterator[str]:
    versions = {name: installed_version(name) for name in ("trl", "transformers", "accelerate")}
    yield "TRL {trl} on transformers {transformers} and Accelerate {accelerate}, files unchanged".format(**versions)
    yield "create_model_from_path is replaced: random weights from a configuration, for policy and reference"
    yield "transformers' {} attention; optimizer {}".format(
        getattr(trainer.model.config, "_attn_implementation", "eager"), trainer.args.optim.value
    )
    yield "FLOPs are those of the suite's own iteration: what TRL computes beyond them lowers its utilisation"
    if uses_deepspeed(manifest) and manifest["layout"]["zero_stage"] == 3 and not uses_vllm(manifest):
        gathers = manifest["layout"].get("gather_for_generation", False)
        yield "ZeRO-3's weights are gathered {}, inside of generate".format(
            "once for a whole generation" if gathers else "layer by layer for every token"
        )
    yield from bucket_notes(manifest)
    is_cpu = manifest["measure"]["device"] == "cpu"
    if uses_vllm(manifest):
        yield (
            "generation by {} in each rank's process, as TRL builds it, on dummy weights until the first sync, in the "
            "run's precision, and without a tokenizer"
        ).format(release(manifest["measure"]["device"]))
        if is_cpu:
            yield "CPU patch: vLLM's linear layers keep their weights, so that new ones can be written"
            yield "CPU patch: vLLM's cache has room for a rank's samples instead of a share of the memory, and is eager"
    elif is_cpu:
        yield "vLLM is hidden from TRL while it is imported, because it does not generate here"
