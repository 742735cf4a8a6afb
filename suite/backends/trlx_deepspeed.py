"""trlx's own PPO trainer on Accelerate: ``trlx-deepspeed`` on DeepSpeed's engine, ``trlx-ddp`` on torch's DDP."""

from collections.abc import Mapping

from suite.backends.base import OnDeepSpeed, Trainer, laid_out
from suite.backends.deepspeed import zero_layout
from suite.backends.trlx import branch_error, trlx_errors
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: Fields of a shape that older transformers do not take over (suite/worker/hugging_face.py).
_NOT_BUILT = ("head_width", "norm_epsilon", "rope_theta", "rope_scaling")


class _Accelerate(Trainer, OnDeepSpeed):
    """Data parallel over all ranks; there is no recomputation."""

    families = ("gpt2", "opt", "llama")
    #: it does not say which sample a reward scores
    rewards = ("constant", "token-below")
    kept_tokens = 3
    trains_last_layers = True
    takes_turns = True
    # trlx imports DeepSpeed on DDP too
    packages: tuple[str, ...] = ("torch", "transformers", "tokenizers", "accelerate", "deepspeed")
    environment = "trlx"
    installation = (
        '`make trlx` makes an interpreter of its own for it (docs/trainers/trlx.md, section "Installing it"), '
        "or build its image with `suite images build trlx` and measure with --launcher docker"
    )

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors = []
        unknown = [name for name in _NOT_BUILT if getattr(size, name) is not None]
        if unknown:
            errors.append(f"trlx builds its models with the defaults of {', '.join(unknown)}; {size.name} has its own")
        if workload.reference == "hydra" and not workload.trainable_layers:
            errors.append("trlx branches its hydra reference off below the trainable layers: train at least one layer")
        return errors

    def versions_errors(self, workload: Workload, layout: Layout, versions: Mapping[str, str]) -> list[str]:
        """The hydra reference is made of trlx's own model code; a full one is not."""
        error = branch_error(versions.get("transformers")) if workload.reference == "hydra" else None
        return [f"{error}, or ask for --reference full"] if error else []

    def stack_errors(self, python: str) -> list[str]:
        """trlx must be the measured commit, and transformers one that its code runs on."""
        return trlx_errors(python)


class TrlxDeepSpeed(_Accelerate):
    """ZeRO stages 0 to 3 on DeepSpeed's engine; stage 0 is that engine without sharding."""

    name = "trlx-deepspeed"
    summary = "trlx's own PPO trainer on Accelerate and DeepSpeed ZeRO"
    settings: tuple[str, ...] = ("zero_stage", "offload_optimizer", "offload_parameters", "bucket_elements")

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """As the deepspeed backend chooses."""
        return zero_layout(size, workload, request, self.settings)


class TrlxDdp(_Accelerate):
    """Every rank holds everything; torch's DistributedDataParallel averages the gradients."""

    name = "trlx-ddp"
    summary = "trlx's own PPO trainer on Accelerate and torch's DistributedDataParallel"
    settings: tuple[str, ...] = ()

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """There is nothing to choose."""
        return laid_out(request)
