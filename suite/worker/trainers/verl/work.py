"""Where verl's iteration differs from the suite's, and what a reader of its figures must know."""

from typing import Any, Dict, Iterator

from suite.worker.manifest import algorithm_of, learns_values
from suite.worker.trainers.base import K3
from suite.worker.trainers.verl import HIDDEN
from suite.worker.trainers.verl.inspection import NAME

#: by ``cpu`` in verl's processes and ``keep_linear_weights`` in vLLM's, on a CPU alone
REPLACED = (
    "verl-cpu-platform: verl has no platform for a CPU; one is registered by its plug-in door",
    "verl-process-group: init_process_group is asked for cpu and cpu once more, and is given gloo alone",
    "verl-offload: the reference's CPUOffloadPolicy pins memory, which needs a GPU; it is OffloadPolicy",
    "verl-critic-attention: verl asks for flash_attention_2 for every critic; it is sdpa",
    "vllm-linear: vLLM's linear layers keep their weights and compute as torch, so that new weights find a place",
    "vllm-version: verl asks for the version of vllm, which a CPU's package has under another name",
)


def notes(manifest: Dict[str, Any], attention: str) -> Iterator[str]:
    yield "verl's controller runs in rank 0; workers, agent loop, TransferQueue and vLLM servers are processes of Ray"
    yield "attention: {}".format(attention)
    yield "hidden from verl's processes, which would import them and not use them: {}".format(", ".join(HIDDEN))
    yield "sync is the last phase of an iteration: the weights that the next one generates with"
    if manifest["size"]["tied_embeddings"]:
        yield (
            "{}: the output head is the embedding; verl would send it to vLLM once more, which refuses it in another "
            "bucket than the embedding's".format(NAME)
        )
    if manifest["layout"].get("sampler") == "fast":
        yield "a custom sampler looks for finished samples every 0.02 s, where verl's own looks every 2 s"
    else:
        yield "verl looks for finished samples every 2 s, so that generation is rounded up by as much"
    if manifest["measure"]["device"] == "cpu":
        yield "one agent loop, reward and storage process each, where verl starts eight"
        yield "vLLM computes in the process of its engine core, where verl starts another one"
        yield from ("replaced on a CPU: " + line for line in REPLACED)


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    workload = manifest["workload"]
    yield "prompts are text that verl's agent loop makes tokens of, in generate"
    yield "each sample is scored as soon as it is complete, in generate; reward holds the advantages alone"
    yield "score also makes the entropy of every response token, which goes into verl's statistics alone"
    yield (
        "samples go between processes through TransferQueue in every phase, and verl makes statistics of them in other"
    )
    yield "logits of every position are made, in scoring and training, where the suite makes those of responses alone"
    yield "samples are not shuffled between optimizer steps"
    yield "a negative advantage's loss is bounded a second time (dual clip, at a ratio of 3)"
    yield (
        "weights are kept in fp32 and gradients reduced in fp32, whatever the precision of the pass; the optimizer is "
        "torch's AdamW, not its fused form"
    )
    measure = manifest["measure"]
    if measure["device"] == "cpu" and measure["precision"] != "fp32":
        yield (
            "log-probs are of a softmax in {0}, and rounded to {0}, on a CPU (logprobs_from_logits_v2)".format(
                measure["precision"]
            )
        )
    if not learns_values(manifest) and algorithm_of(manifest)["options"]["kl_coefficient"] > 0:
        yield K3
    if learns_values(manifest):
        if workload.get("critic") is None:
            yield "the critic is a model of its own in the policy's shape, where the suite has a value head"
        else:
            yield "the critic's last layer has a bias"
        yield "the critic takes optimizer steps of its own, and its loss is not scaled by value_coefficient"
