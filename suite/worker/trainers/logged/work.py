"""What the trainers in images of their own can do here, and where all of them differ from the suite's iteration."""

from typing import Any, Dict, List, Tuple

from suite.worker.rank import ConfigError

_REWARDS = ("constant", "pseudo")
FAMILIES = ("llama", "qwen2", "qwen3")


def check_work(manifest: Dict[str, Any], name: str, families: Tuple[str, ...] = FAMILIES) -> None:
    """Raise ConfigError for work that is not mapped to such a trainer's configuration; the driver refuses it before."""
    workload, layout, measure = manifest["workload"], manifest["layout"], manifest["measure"]
    wrong = [
        (manifest["size"]["architecture"] not in families, "models other than {}".format(", ".join(families))),
        (workload.get("algorithm", {}).get("name", "ppo") != "grpo", "algorithms other than grpo"),
        (manifest["work"].get("lengths") is not None, "samples of uneven length"),
        (workload["ppo_epochs"] != 1, "more than one epoch"),
        (workload["trainable_layers"] is not None or workload.get("lora_rank"), "frozen layers or adapters"),
        (workload["reference"] != "full", "a hydra reference"),
        (workload["reward"]["kind"] not in _REWARDS, "rewards other than {}".format(" and ".join(_REWARDS))),
        (layout["tensor"] * layout["pipeline"] != 1, "tensor or pipeline parallelism"),
        (measure["device"] != "cuda" or measure["precision"] != "bf16", "anything but bf16 on CUDA devices"),
    ]
    found = [what for is_wrong, what in wrong if is_wrong]
    if found:
        raise ConfigError("the {} backend does not do {}".format(name, "; ".join(found)))


def common_differences(manifest: Dict[str, Any]) -> List[str]:
    """Where each of these trainers does other work than the suite's own iteration."""
    found = [
        "weights are drawn in bfloat16 and read from files; the trainer keeps fp32 copies of its own",
        "ids of the 3 special tokens stand in no prompt, as other numbers take their place",
        "samples are scored within generation; the phase reward holds means and advantages alone",
        "which sample of a prompt has which of its scores may be the order in which they are complete",
    ]
    if manifest["workload"]["optimizer_steps"] > 1:
        found.append("samples go into optimizer steps in the trainer's own order")
    return found
