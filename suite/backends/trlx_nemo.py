"""trlx on NeMo-Megatron: trlx's own NeMoPPOTrainer, timed at its phase edges."""

from suite.backends.base import Trainer, laid_out
from suite.backends.trlx import branch_error, trlx_errors
from suite.launch.probe import stack_versions
from suite.spec.catalogue import data_file
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: The only release whose modules and signatures are those that trlx at 3340c2f3 imports and calls.
NEMO_VERSION = "1.17.0"
#: What NVIDIA's apex calls itself at every commit; the package index has another project of that name.
APEX_VERSION = "0.1"
#: trlx pads the sequences that it trains on to a multiple of this (modeling_nemo_ppo.py, MP:953).
SEQUENCE_MULTIPLE = 8


class TrlxNemo(Trainer):
    """Tensor, sequence and data parallel with apex's distributed Adam; trlx's NeMo trainer has no pipeline."""

    name = "trlx-nemo"
    takes_turns = True
    families = ("gpt2",)
    precisions = ("bf16",)
    rewards = ("constant",)
    trains_last_layers = True
    is_data_parallel = False
    summary = "trlx's NeMoPPOTrainer on NeMo-Megatron 1.17; not run on a GPU yet"
    packages: tuple[str, ...] = ("torch", "nemo_toolkit", "apex", "pytorch-lightning", "transformers")
    settings: tuple[str, ...] = ("tensor", "pipeline", "sequence_parallel", "recompute")
    installation = (
        "NeMo 1.17 needs Python 3.8 and a build of apex, so do not install it here but use its image: "
        "`suite images build nemo`, then --launcher docker (docs/trainers/trlx.md, section trlx-nemo)"
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Data parallel beside the tensor degree: the one trlx's script has for a size of this name, or 1."""
        tensor = request.tensor or shipped_tensor(size)
        pipeline = request.pipeline or 1
        if request.ranks % (tensor * pipeline):
            raise ValueError(
                f"{request.ranks} ranks do not divide into tensor parallel {tensor} x pipeline {pipeline}; "
                "choose a degree with --tp"
            )
        sequence = request.sequence_parallel
        return laid_out(
            request,
            tensor=tensor,
            pipeline=pipeline,
            data=request.ranks // (tensor * pipeline),
            sequence_parallel=tensor > 1 if sequence is None else sequence,
            distributed_optimizer=True,
            **request.switches(self.settings),
        )

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What trlx's trainer and NeMo cannot do, each with what to do about it."""
        errors, positions = [], trained_positions(workload)
        if not size.tied_embeddings:
            errors.append(f"trlx-nemo ties output head and embedding; those of {size.name} are not tied")
        if layout.pipeline > 1:
            errors.append(
                f"pipeline parallel {layout.pipeline}: trlx's NeMo trainer runs with 1 only "
                "(it calls what only the last stage has); leave --pp out"
            )
        if layout.zero_stage or layout.offload_optimizer or layout.offload_parameters:
            errors.append("ZeRO stages and offload belong to the DeepSpeed backends")
        if layout.sequence_parallel and positions % layout.tensor:
            errors.append(
                f"trlx trains on {positions} positions a sample, not divisible by tensor parallel {layout.tensor}; "
                "choose another --tp, or --no-sequence-parallel"
            )
        if positions > size.positions:
            errors.append(
                f"trlx trains on {positions} positions a sample, more than the {size.positions} of {size.name}"
            )
        if workload.new_tokens < 2:
            errors.append(
                "trlx's NeMo trainer leaves each response's first token out of its loss: force at least 2 tokens"
            )
        if workload.reference == "hydra":
            errors.append("trlx's NeMo trainer swaps a full reference in from the host; use --reference full")
        if workload.trainable_layers == 0:
            errors.append("trlx's NeMo trainer trains at least one block; use --trainable-layers 1 or more")
        if measure.device != "cuda":
            errors.append("NeMo and apex run on NVIDIA GPUs only; use --device cuda")
        return errors

    def variables(self, measure: Measure) -> dict[str, str]:
        """trlx's trainer logs to Weights & Biases by itself; nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}

    def stack_errors(self, python: str) -> list[str]:
        """Releases that trlx's trainer cannot be imported on, found before NeMo hides them behind its own message."""
        found = stack_versions(python, self.packages)
        errors = []
        if found["nemo_toolkit"] not in (None, NEMO_VERSION):
            errors.append(f"trlx's NeMo trainers fit nemo_toolkit {NEMO_VERSION} only, not {found['nemo_toolkit']}")
        lightning = found["pytorch-lightning"]
        if lightning is not None and not lightning.startswith("1.9."):
            errors.append(f"nemo_toolkit {NEMO_VERSION} needs pytorch-lightning 1.9, not {lightning}")
        if found["apex"] not in (None, APEX_VERSION):
            errors.append(f"apex {found['apex']} is another project than NVIDIA's apex; build that at 03c9d80e")
        too_new = branch_error(found["transformers"])
        return errors + ([too_new] if too_new else []) + trlx_errors(python)


def shipped_tensor(size: Shape) -> int:
    """The tensor parallel degree that trlx's script has for a size of this name; 1 for a size it does not have."""
    shipped = data_file("trlx_reference.yaml")["sizes"]
    row = shipped.get(size.name) or shipped.get(f"{size.name}-trlx")
    return row["tensor"] if row else 1


def trained_positions(workload: Workload) -> int:
    """Positions of one sequence in training: prompt, response, one end token, padding."""
    return -(-(workload.sequence_tokens + 1) // SEQUENCE_MULTIPLE) * SEQUENCE_MULTIPLE
