"""What a reader must know beside OpenRLHF's figures: how its work differs from the suite's, and what it ran on."""

from typing import Any, Dict, Iterator

from suite.worker.manifest import learns_values
from suite.worker.trainers.openrlhf import cpu, options


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where OpenRLHF's iteration does other work than the suite's own of the same manifest, one sentence each."""
    workload = manifest["workload"]
    yield "logits, log-probs and values are computed for prompt positions too, in scoring and in training, in fp32"
    yield "vLLM generates in processes of its own and turns every response into text; prompts are text and tokenised"
    yield "samples, log-probs and values go from process to process by Ray's object store, through host memory"
    yield "the score comes with the sample, while generation goes on; the reward phase is advantages alone"
    yield "advantages are computed by the controller, on its CPU, for all samples"
    yield "the new weights are given to vLLM at the end of an iteration, tensor by tensor"
    if learns_values(manifest):
        if workload.get("critic") is None:
            yield (
                "values come from a model of its own with the policy's shape, not from a head on the policy: it is "
                "scored and trained whole, and counted in the parameters"
            )
        if not manifest["layout"].get("engine_sleep"):
            yield "policy and critic train at the same time, in processes that share the devices"
        if options.kl_coefficient(manifest) == 0:
            yield "there is no reference pass: OpenRLHF has no reference policy where the KL coefficient is 0"
    if workload["ppo_epochs"] > 1 or workload["optimizer_steps"] > 1:
        yield "each rank shuffles its samples by its own random numbers, not by the suite's"
    if options.staleness(manifest):
        yield (
            "samples are up to {} publications of weights old when they are trained on; nothing corrects for it "
            "(its importance sampling correction is off)".format(options.staleness(manifest))
        )


def notes(manifest: Dict[str, Any]) -> Iterator[str]:
    """What else a reader must know."""
    yield (
        "OpenRLHF {}, files unchanged: its command line built everything; its trainer's object runs in the process of "
        "rank 0 and not in a Ray actor of its own".format(options.VERSION)
    )
    yield "prompts are the manifest's, in its order and from memory (prepare_datasets is replaced); nothing is saved"
    yield "lengths are forced and scores given by an agent of OpenRLHF's own option --train.agent_func_path"
    yield "random weights from a configuration; a tokenizer of numbers"
    yield "biases and norms have no weight decay; the learning rate is constant"
    yield "FLOPs are those of the suite's own iteration: what OpenRLHF computes beyond them lowers its utilisation"
    if options.staleness(manifest):
        yield (
            "the fill, up to the end of the first publication, is in no iteration; batches generated behind the last "
            "consumed one are in no count"
        )
    if manifest["measure"]["device"] == "cpu":
        yield "Ray's workers map no tensors read-only (RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=0), and vLLM compiles nothing"
        for name, change in cpu.PATCHES.values():
            yield "CPU patch {}: {}".format(name, change.__doc__)
