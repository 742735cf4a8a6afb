"""trlx's own PPO trainers: on Accelerate with DeepSpeed's engine or torch's DDP, and on NeMo-Megatron."""

import re
from collections.abc import Mapping

from suite.backends.base import BackendDriver, BackendKind
from suite.backends.deepspeed import zero_layout
from suite.launch.probe import ask_worker
from suite.spec.catalogue import data_file
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: trlx's own copies of model code, of which its hydra reference is made: 4.35 breaks OPT's, 4.36 Llama's, 4.48 GPT-2's
#: (without a word)
_FIRST_WITHOUT_BRANCHES = (4, 35)
TESTED_TRANSFORMERS = "4.33.3"
#: Fields of a shape that older transformers do not take over (suite/worker/hugging_face.py).
_NOT_BUILT = ("head_width", "norm_epsilon", "rope_theta", "rope_scaling")
#: trlx's NeMo trainer pads the sequences that it trains on to a multiple of this (modeling_nemo_ppo.py, MP:953).
_SEQUENCE_MULTIPLE = 8


def branch_errors(versions: Mapping[str, str | None], advice: str = "") -> list[str]:
    """Why trlx's own model code does not run on this transformers, with what to do; empty where it does."""
    found = versions.get("transformers")
    numbers = re.match(r"(\d+)\.(\d+)", found or "")
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _FIRST_WITHOUT_BRANCHES:
        return []
    return [f"transformers {found} is too new for trlx's own model code; install {TESTED_TRANSFORMERS}{advice}"]


class _Trlx(BackendDriver):
    """It keeps to one commit, and the worker knows on which transformers that runs."""

    kind: BackendKind = "trainer"
    takes_turns = True
    trains_last_layers = True

    def stack_errors(self, python: str) -> list[str]:
        """What is wrong with its trlx and transformers, of which neither is imported. UsageError where none answers."""
        found: dict[str, str | None] = ask_worker(python, "suite.worker.trainers.trlx.source")
        return [text for text in found.values() if text]


class _Accelerate(_Trlx):
    """Data parallel over all ranks; there is no recomputation."""

    families = ("gpt2", "opt", "llama")
    #: it does not say which sample a reward scores
    rewards = ("constant", "token-below")
    kept_tokens = 3
    has_hydra = True
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
        return branch_errors(versions, ", or ask for --reference full") if workload.reference == "hydra" else []


class TrlxDeepSpeed(_Accelerate):
    """ZeRO stages 0 to 3 on DeepSpeed's engine; stage 0 is that engine without sharding."""

    name = "trlx-deepspeed"
    summary = "trlx's own PPO trainer on Accelerate and DeepSpeed ZeRO"
    settings: tuple[str, ...] = ("zero_stage", "offload_optimizer", "offload_parameters", "bucket_elements")

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        return zero_layout(self, size, workload, request)


class TrlxDdp(_Accelerate):
    """Every rank holds everything; torch's DistributedDataParallel averages the gradients."""

    name = "trlx-ddp"
    summary = "trlx's own PPO trainer on Accelerate and torch's DistributedDataParallel"


class TrlxNemo(_Trlx):
    """Tensor, sequence and data parallel with apex's distributed Adam; trlx's NeMo trainer has no pipeline."""

    name = "trlx-nemo"
    families = ("gpt2",)
    precisions = ("bf16",)
    rewards = ("constant",)
    on_gpus_only = True
    summary = "trlx's NeMoPPOTrainer on NeMo-Megatron 1.17; not run on a GPU yet"
    packages: tuple[str, ...] = ("torch", "nemo_toolkit", "apex", "pytorch-lightning", "transformers")
    settings: tuple[str, ...] = ("tensor", "sequence_parallel", "recompute")
    #: the only release whose modules and signatures trlx at 3340c2f3 imports and calls, what that needs, and what
    #: NVIDIA's apex calls itself at every commit: the package index has another project of that name
    hooked = (("nemo_toolkit", "1.17.0"), ("pytorch-lightning", "1.9"), ("apex", "0.1"))
    installation = (
        "NeMo 1.17 needs Python 3.8 and a build of NVIDIA's apex, so do not install it here but use its image: "
        "`suite images build nemo`, then --launcher docker (docs/trainers/trlx.md, section trlx-nemo)"
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Data parallel beside the tensor degree: the one trlx's script has for a size of this name, or 1."""
        shipped = data_file("trlx_reference.yaml")["sizes"]
        row = shipped.get(size.name) or shipped.get(f"{size.name}-trlx") or {"tensor": 1}
        tensor = request.tensor or row["tensor"]
        return self.laid_out(request, tensor=tensor, sequence_parallel=tensor > 1, distributed_optimizer=True)

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors = []
        # prompt, response, one end token, padding
        positions = -(-(workload.sequence_tokens + 1) // _SEQUENCE_MULTIPLE) * _SEQUENCE_MULTIPLE
        if not size.tied_embeddings:
            errors.append(f"trlx-nemo ties output head and embedding; those of {size.name} are not tied")
        if layout.sequence_parallel and positions % layout.tensor:
            errors.append(
                f"trlx trains on {positions} positions, not divisible by tensor parallel {layout.tensor}: choose "
                "another --tp, or --no-sequence-parallel"
            )
        if positions > size.positions:
            errors.append(f"trlx trains on {positions} positions, more than the {size.positions} of {size.name}")
        if workload.new_tokens < 2:
            errors.append("trlx's NeMo trainer leaves a response's first token out of its loss: ask for 2 or more")
        if workload.trainable_layers == 0:
            errors.append("trlx's NeMo trainer trains at least one block; use --trainable-layers 1 or more")
        return errors

    def variables(self, measure: Measure) -> dict[str, str]:
        """trlx's trainer logs to Weights & Biases by itself; nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}

    def wrong_versions(self, versions: Mapping[str, str | None]) -> list[str]:
        return super().wrong_versions(versions) + branch_errors(versions)
