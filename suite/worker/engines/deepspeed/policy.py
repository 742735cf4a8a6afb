"""GPT-2 as Hugging Face builds it, with a value head: log-probs and values of response positions.

b sequences, P prompt tokens, R response tokens, T = P + R. Logits are computed for response positions only. Embedding
and output matrix are padded (``suite.worker.vocabulary``) with rows of zeros: no token finds them, no logit shows them.
"""

import inspect
import math
import zlib
from functools import partial
from typing import Any, Callable, ContextManager, Dict, Optional, Tuple
from unittest import mock

import torch
import transformers.utils
from torch import nn
from torch.utils.checkpoint import checkpoint

from suite.worker.engines.deepspeed.lora import add_adapters
from suite.worker.value_head import build_value_head
from suite.worker.vocabulary import padded_vocab

# transformers imports scipy, if it finds it, for losses of object detectors: half a second that no rank needs.
with mock.patch.object(transformers.utils, "is_scipy_available", lambda: False):
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block, GPT2LMHeadModel

INITIAL_DEVIATION = 0.02
#: their outputs are added to the residual stream: GPT-2 scales their deviation by 1 / sqrt(2 layers)
_RESIDUAL_WEIGHT = "c_proj.weight"
_VOCABULARY_WEIGHTS = ("transformer.wte.weight", "lm_head.weight")

#: gives a context in which the parameter is whole on every rank, and changes of rank 0 reach the others
Gather = Callable[[nn.Parameter], ContextManager[Any]]


def build_config(size: Dict[str, Any]) -> GPT2Config:
    """The configuration of a manifest's ``size``: no dropout, no token that could end a response early.

    ``vocab_size`` is the padded one, as the matrices are; ``unpadded_vocab`` holds the number of tokens.
    """
    config = GPT2Config(
        vocab_size=padded_vocab(size["vocab"]),
        n_positions=size["positions"],
        n_embd=size["hidden"],
        n_layer=size["layers"],
        n_head=size["heads"],
        n_inner=size["ffn"],
        activation_function="gelu_pytorch_tanh",  # GPT-2's tanh approximation, in one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=size["tied_embeddings"],
        attn_implementation="sdpa",
    )
    config.unpadded_vocab = size["vocab"]
    return config


class HydraBranch(nn.Module):
    """A frozen copy of the last ``layers`` blocks and of the final LayerNorm, on the policy's frozen trunk."""

    def __init__(self, config: GPT2Config, layers: int) -> None:
        super().__init__()
        first = config.n_layer - layers
        self.h = nn.ModuleList([GPT2Block(config, layer_idx=first + index) for index in range(layers)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[b, T, h] -> [b, T, h]; blocks without an attention mask are causal."""
        for block in self.h:
            output = block(states)
            states = output[0] if isinstance(output, tuple) else output
        return self.ln_f(states)


class Policy(GPT2LMHeadModel):
    """A causal language model that also speaks of responses; ``prompt_tokens`` chooses that way of being called.

    Everything goes through ``forward``, because ZeRO-3 gathers parameters from the root module's hooks on.
    """

    def __init__(
        self,
        config: GPT2Config,
        hydra_layers: Optional[int] = None,
        with_value_head: bool = True,
        lora_rank: Optional[int] = None,
    ) -> None:
        super().__init__(config)
        if lora_rank is not None:
            add_adapters(self.transformer.h, lora_rank)
        self.value_head = build_value_head(config.n_embd) if with_value_head else None
        self.branch = None if hydra_layers is None else HydraBranch(config, hydra_layers).requires_grad_(False)

    def forward(
        self,
        input_ids: Optional[torch.Tensor] = None,
        prompt_tokens: Optional[int] = None,
        trunk_states: Optional[torch.Tensor] = None,
        logits_to_keep: int = 0,
        **options: Any,
    ) -> Any:
        """Without ``prompt_tokens`` Hugging Face's own forward, which generation calls; logits of tokens alone.

        With it: ``input_ids`` [b, T] -> log-probs and values, each [b, R] fp32 (values None without a value head).
        With ``trunk_states`` [b, T, h] too: log-probs of the reference branch and None.
        """
        if prompt_tokens is None:
            if logits_to_keep:  # transformers before 4.45 neither asks for it nor knows it
                options["logits_to_keep"] = logits_to_keep
            output = super().forward(input_ids, **options)
            output.logits = output.logits[..., : self.config.unpadded_vocab]
            return output
        assert input_ids is not None
        if trunk_states is None:
            states = self.transformer(input_ids, use_cache=False).last_hidden_state
        else:
            states = self.branch(trunk_states)
        before_response = states[:, prompt_tokens - 1 : -1]
        logits = self.lm_head(before_response)
        logprobs = token_logprobs(logits, input_ids[:, prompt_tokens:], self.config.unpadded_vocab)
        if trunk_states is not None or self.value_head is None:
            return logprobs, None
        return logprobs, self.value_head(before_response).squeeze(-1).float()

    def first_trainable(self, trainable_layers: int) -> nn.Module:
        """The module that sees the states of the frozen trunk."""
        return self.transformer.h[-trainable_layers] if trainable_layers else self.transformer.ln_f


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor, vocab: int) -> torch.Tensor:
    """Log-probability of each token under its logits, in fp32: [b, R, V], [b, R] -> [b, R].

    Logits from ``vocab`` on are padding. Those of fp32 are overwritten: nobody else reads them.
    """
    wide = logits.float()
    # Without a record for backward, which would copy the gradient of all logits: the softmax there is zero anyway.
    wide.detach()[..., vocab:].fill_(float("-inf"))
    chosen = wide.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - wide.logsumexp(-1)


@torch.no_grad()
def draw_weights(model: Policy, seed: int, gather: Gather) -> None:
    """Normal weights of deviation 0.02, biases zero, LayerNorm one, as GPT-2's.

    Each parameter has a generator of its own, seeded by its name, so that policy, reference and hydra branch start
    from equal weights, and ZeRO-3 from those of the other stages. Rows that pad the vocabulary are zero.
    """
    for name, parameter in model.named_parameters():
        with gather(parameter):
            if parameter.numel():
                drawn = parameter
                if name in _VOCABULARY_WEIGHTS:
                    drawn = parameter[: model.config.unpadded_vocab]
                    parameter[model.config.unpadded_vocab :] = 0
                _draw(_twin_name(name, model.config.n_layer, model.branch), drawn, seed, model.config.n_layer)


def _twin_name(name: str, layers: int, branch: Optional[HydraBranch]) -> str:
    """The name of the plain policy's parameter that a parameter of branch or adapter stands for; else the name."""
    name = name.replace(".base.", ".")
    if branch is None or not name.startswith("branch."):
        return name
    parts = name.split(".")
    if parts[1] == "h":
        parts[2] = str(layers - len(branch.h) + int(parts[2]))
    return ".".join(["transformer", *parts[1:]])


def _draw(name: str, parameter: torch.Tensor, seed: int, layers: int) -> None:
    if name.endswith(("bias", ".up")):  # a fresh adapter adds nothing
        parameter.zero_()
    elif ".ln_" in name:
        parameter.fill_(1.0)
    else:
        deviation = INITIAL_DEVIATION / (math.sqrt(2 * layers) if name.endswith(_RESIDUAL_WEIGHT) else 1.0)
        generator = torch.Generator(device=parameter.device)
        generator.manual_seed(zlib.crc32("{}:{}".format(seed, name).encode()))
        whole = torch.empty(parameter.shape, device=parameter.device)
        parameter.copy_(whole.normal_(0.0, deviation, generator=generator))


def freeze_below(model: Policy, trainable_layers: Optional[int]) -> None:
    """Only the last ``trainable_layers`` blocks, the final LayerNorm and the value head train; None: everything."""
    if trainable_layers is None:
        return
    first = model.config.n_layer - trainable_layers
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    trained: Any = [model.transformer.ln_f] + ([] if model.value_head is None else [model.value_head])
    for module in trained + list(model.transformer.h[first:]):
        module.requires_grad_(True)


def recompute_blocks(model: Policy) -> None:
    """Of each block only the input is kept for the backward pass, which runs the block once more."""
    if "gradient_checkpointing_kwargs" in inspect.signature(model.gradient_checkpointing_enable).parameters:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    # transformers before 4.35 has no choice: its reentrant kind gives no gradients to blocks above a frozen trunk
    for block in model.transformer.h:
        block.forward = partial(_recomputed, block.forward)


def _recomputed(forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments, **options)
    return checkpoint(forward, *arguments, use_reentrant=False, **options)


def count_parameters(model: nn.Module) -> Tuple[int, int]:
    """A model without its reference branch: all parameters, and those that train.

    Whole under ZeRO-3 too; without vocabulary padding.
    """
    own = [(name, parameter) for name, parameter in model.named_parameters() if not name.startswith("branch.")]
    sizes = [(_unpadded_size(name, parameter, model.config), parameter.requires_grad) for name, parameter in own]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)


def held_elements(parameter: nn.Parameter) -> int:
    """Elements of the whole parameter, with vocabulary padding; of a partitioned one too."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _unpadded_size(name: str, parameter: nn.Parameter, config: GPT2Config) -> int:
    padding = config.vocab_size - config.unpadded_vocab if name in _VOCABULARY_WEIGHTS else 0
    return held_elements(parameter) - padding * config.n_embd
