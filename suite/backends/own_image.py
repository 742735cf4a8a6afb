"""What the backends have in common whose trainers run in an image of their own and are timed by their own log."""

from __future__ import annotations

from collections.abc import Mapping

from suite.backends.base import BackendKind, own_worker_argv
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: What `suite backends`, `suite doctor`, the report and the documentation say of them.
NEVER_RUN = "never run"
_FAMILIES = ("llama", "qwen2", "qwen3")
_REWARDS = ("constant", "pseudo")


class OwnImage:
    """GRPO on FSDP2 and vLLM, on the same devices in turn, on one node; ``version`` is the one whose log is known."""

    kind: BackendKind = "trainer"
    experimental = NEVER_RUN
    extra_work: tuple[str, ...] = ("algorithm", "group")
    settings: tuple[str, ...] = ("recompute", "offload_parameters")
    families: tuple[str, ...] = _FAMILIES
    packages: tuple[str, ...]
    name: str
    image: str
    title: str
    package: str
    version: str

    @property
    def installation(self) -> str:
        """How to get the stack, for doctor and refusals."""
        return (
            f"{self.title} runs in its own image: --launcher docker or a cluster, with the image {self.image} "
            f"(docs/trainers/{self.name}.md)"
        )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Every rank holds its share of the model, generates and trains."""
        return Layout(
            nodes=request.nodes,
            devices_per_node=request.devices_per_node,
            data=request.ranks,
            engine="fsdp2",
            zero_stage=3,
            generation="vllm",
            **request.switches(self.settings),
        )

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What is not mapped to the trainer's configuration, each with what to do."""
        return [
            *self._place_errors(layout, measure),
            *self._model_errors(size),
            *self._work_errors(workload, layout),
        ]

    def _place_errors(self, layout: Layout, measure: Measure) -> list[str]:
        errors = []
        if measure.device != "cuda":
            errors.append(f"{self.title} runs on NVIDIA GPUs only; use --device cuda")
        if measure.precision != "bf16":
            errors.append(f"the {self.name} backend trains in bf16, not {measure.precision}; use --precision bf16")
        if layout.nodes > 1:
            errors.append(f"the {self.name} backend runs on one node, where its model is drawn; use --nodes 1")
        if layout.tensor > 1 or layout.pipeline > 1:
            errors.append(f"the {self.name} backend is data parallel here: tensor and pipeline parallel must be 1")
        return errors

    def _model_errors(self, size: Shape) -> list[str]:
        if size.architecture in self.families:
            return []
        known = ", ".join(self.families)
        return [f"the {self.name} backend runs {known} models; {size.name} is of the {size.architecture} family"]

    def _work_errors(self, workload: Workload, layout: Layout) -> list[str]:
        errors = []
        if workload.algorithm.name != "grpo":
            errors.append(
                f"the {self.name} backend runs grpo, and workload {workload.name} asks for {workload.algorithm.name}: "
                "--algorithm grpo"
            )
        if workload.ppo_epochs != 1:
            errors.append(f"the {self.name} backend goes over its samples once, not {workload.ppo_epochs} times")
        if workload.trainable_layers is not None:
            errors.append(f"the {self.name} backend trains the whole model: leave out --trainable-layers")
        if workload.reference != "full":
            errors.append(f"the reference of the {self.name} backend is a full copy: --reference full")
        if workload.reward.kind not in _REWARDS:
            errors.append(
                f"the {self.name} backend knows the rewards {', '.join(_REWARDS)}, not {workload.reward.kind}"
            )
        prompts = workload.global_rollouts(layout.ranks) // workload.group
        if prompts % workload.optimizer_steps:
            errors.append(
                f"{prompts} prompts do not divide into {workload.optimizer_steps} optimizer steps, whose samples "
                f"{self.title} takes by the prompt; choose another --rollouts or --group"
            )
        return errors

    def versions_errors(self, workload: Workload, versions: Mapping[str, str]) -> list[str]:
        """The log of one version is known by its names."""
        found = versions.get(self.package)
        if found is None or found.partition("+")[0] == self.version:  # a build may add its commit
            return []
        return [f"the {self.name} backend reads the log of {self.title} {self.version}, and finds {found}"]

    def variables(self, measure: Measure) -> dict[str, str]:
        """Nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}

    def stack_errors(self, python: str) -> list[str]:
        """The package's version is all that can be asked without importing it (``versions_errors``)."""
        return []

    def worker_argv(self, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        return own_worker_argv(manifest_path, bundle_path)
