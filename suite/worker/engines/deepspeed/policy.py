"""A family's causal language model as Hugging Face builds it, with a value head: log-probs and values of responses.

b samples, R the longest response, T the longest sample. Embedding and output matrix are padded with rows of zeros: no
token finds them, no logit shows them. Adapters and a critic of its own are as in DeepSpeed-Chat.
"""

from functools import partial
from itertools import product
from typing import Any, Callable, Dict, Optional

import torch
from torch import nn

from suite.worker.engines.deepspeed.families import FAMILIES, Family, build_config, class_of
from suite.worker.engines.deepspeed.rows import TrunkRows, register_attention
from suite.worker.models import build_value_head


class HydraBranch(nn.Module):
    """A frozen copy of the last ``layers`` blocks and of the final norm, on the policy's frozen trunk; its parts are
    called as the trunk's, so that their weights are drawn as theirs."""

    def __init__(self, config: Any, family: Family, trunk: nn.Module, layers: int) -> None:
        super().__init__()
        blocks, norm = getattr(trunk, family.blocks), getattr(trunk, family.norm)
        first, epsilon = len(blocks) - layers, getattr(norm, "eps", None) or norm.variance_epsilon
        copies = [type(blocks[0])(config, layer_idx=first + index) for index in range(layers)]
        self.depth = layers
        setattr(self, family.blocks, nn.ModuleList(copies))
        setattr(self, family.norm, type(norm)(config.hidden_size, eps=epsilon))
        self._parts = (family.blocks, family.norm)

    def forward(self, states: torch.Tensor, options: Dict[str, Any]) -> torch.Tensor:
        """[b, T, h] -> [b, T, h]; blocks without an attention mask are causal."""
        blocks, norm = (getattr(self, name) for name in self._parts)
        for block in blocks:
            output = block(states, **options)
            states = output[0] if isinstance(output, tuple) else output
        return norm(states)


class Policy(nn.Module):
    """A causal language model that also speaks of responses; ``rows`` chooses that way of being called.

    It stands before a family's own class, whose names of parameters it keeps. Everything goes through ``forward``,
    because ZeRO-3 gathers parameters from the root module's hooks on.
    """

    family: Family

    def __init__(
        self, config: Any, hydra_layers: Optional[int] = None, with_value_head: bool = True, lora_rank: int = 0
    ) -> None:
        super().__init__(config)
        if lora_rank:
            for block, (path, groups) in product(self.blocks, self.family.matrices.items()):
                parent_name, name = path.split(".")
                parent = getattr(block, parent_name)
                setattr(parent, name, LowRank(getattr(parent, name), lora_rank, groups))
        self.value_head = build_value_head(config.hidden_size) if with_value_head else None
        self.branch = None
        if hydra_layers is not None:
            self.branch = HydraBranch(config, self.family, self.trunk, hydra_layers).requires_grad_(False)

    def forward(
        self,
        input_ids: Optional[torch.Tensor] = None,
        rows: Optional[TrunkRows] = None,
        trunk_states: Optional[torch.Tensor] = None,
        logits_to_keep: int = 0,
        **options: Any,
    ) -> Any:
        """Without ``rows`` Hugging Face's own forward, which generation calls; logits of tokens alone.

        With it: log-probs and values, each [b, R] fp32, zero behind a response (values None without a value head), or
        with ``trunk_states``, as a hook on the trunk's ``first_trainable`` sees them, the reference branch's and None.
        """
        if rows is None:
            output = super().forward(input_ids, logits_to_keep=logits_to_keep, **options)
            output.logits = output.logits[..., : self.config.unpadded_vocab]
            return output
        if trunk_states is None:
            states = self.trunk(rows.tokens, use_cache=False, **rows.options).last_hidden_state
        else:
            states = self.branch(trunk_states, self._block_options(trunk_states, rows))
        before_response = rows.before_responses(states)
        logits = self.lm_head(before_response)
        logprobs = token_logprobs(logits, rows.responses(), self.config.unpadded_vocab)
        if trunk_states is not None or self.value_head is None:
            return rows.spread(logprobs), None
        return rows.spread(logprobs), rows.spread(self.value_head(before_response).squeeze(-1).float())

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        attention_mask: Optional[torch.Tensor] = None,
        position_ids: Optional[torch.Tensor] = None,
        **options: Any,
    ) -> Any:
        """Hugging Face's own; its names tell ``generate`` that a mask and positions may be given."""
        given = {"attention_mask": attention_mask, "position_ids": position_ids}
        options.update({name: tensor for name, tensor in given.items() if tensor is not None})
        return super().prepare_inputs_for_generation(input_ids, **options)

    def _block_options(self, states: torch.Tensor, rows: TrunkRows) -> Dict[str, Any]:
        """What the trunk would give to its blocks."""
        options = dict(rows.options)
        positions = options.pop("position_ids", None)
        if self.family.rotary:
            if positions is None:
                positions = torch.arange(states.size(1), device=states.device).unsqueeze(0)
            options["position_embeddings"] = self.trunk.rotary_emb(states, positions)
        return options

    @property
    def trunk(self) -> Any:
        return getattr(self, self.family.trunk)

    @property
    def blocks(self) -> nn.ModuleList:
        return getattr(self.trunk, self.family.blocks)

    @property
    def final_norm(self) -> nn.Module:
        return getattr(self.trunk, self.family.norm)

    def first_trainable(self, trainable_layers: int) -> nn.Module:
        """The module that sees the states of the frozen trunk."""
        return self.blocks[-trainable_layers] if trainable_layers else self.final_norm


def policy_builder(size: Dict[str, Any], packs: bool = False, **options: Any) -> Callable[[], Policy]:
    """What makes the policy of a manifest's ``size``, its weights not yet drawn; all it needs is imported before.
    ``packs``: its samples go through end to end in one row, for which it has an attention of its own."""
    config, family = build_config(size, register_attention() if packs else "sdpa"), FAMILIES[size["architecture"]]
    return partial(type("Policy", (Policy, class_of(size["architecture"])), {"family": family}), config, **options)


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor, vocab: int) -> torch.Tensor:
    """Log-probability of each token under its logits, in fp32: [*, V], [*] -> [*]. Logits from ``vocab`` on are
    padding, and overwritten where they are of fp32: nobody else reads them."""
    wide = logits.float()
    # Without a record for backward, which would copy the gradient of all logits: the softmax there is zero anyway.
    wide.detach()[..., vocab:].fill_(float("-inf"))
    chosen = wide.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - wide.logsumexp(-1)


def freeze_below(model: Policy, trainable_layers: Optional[int]) -> None:
    """Only the last ``trainable_layers`` blocks, the final norm and the value head train; None: everything."""
    if trainable_layers is None:
        return
    model.requires_grad_(False)
    trained: Any = [model.final_norm] + ([] if model.value_head is None else [model.value_head])
    for module in trained + list(model.blocks[len(model.blocks) - trainable_layers :]):
        module.requires_grad_(True)


def keep_rotary_exact(model: nn.Module) -> None:
    """Frequencies of rotary positions in fp32, as Hugging Face and Megatron compute them. DeepSpeed converts all of a
    model to 16 bit, its buffers too, and ZeRO-3 rounds them as they are made."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            with module.inv_freq.device:
                fresh = type(module)(config=module.config)
            for name, buffer in list(fresh.named_buffers()):
                setattr(module, name, buffer.float())


class LowRank(nn.Module):
    """``base(x) + (x down) up / rank``: ``groups`` adapters of one input, their outputs side by side.

    ``down`` [in, groups x rank], ``up`` [groups, rank, out / groups]. Scaled as DeepSpeed-Chat scales by default
    (``dschat/utils/module/lora.py``); nothing is fused into ``base`` for generation.
    """

    def __init__(self, base: Any, rank: int, groups: int) -> None:
        """``base``: a Linear, or transformers' Conv1D, whose weight is [in, out]; under ZeRO-3 perhaps partitioned."""
        super().__init__()
        self.transposed = isinstance(base, nn.Linear)
        inside, outside = (base.in_features, base.out_features) if self.transposed else (base.nx, base.nf)
        self.base = base
        self.base.weight.requires_grad_(False)
        self.rank, self.groups = rank, groups
        self.down = nn.Parameter(torch.empty(inside, groups * rank))
        self.up = nn.Parameter(torch.empty(groups, rank, outside // groups))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[*, in] -> [*, out]."""
        low = (states @ self.down).reshape(-1, self.groups, self.rank).transpose(0, 1)
        added = torch.bmm(low, self.up).transpose(0, 1).reshape(*states.shape[:-1], -1)
        return self.base(states) + added / self.rank

    def merged(self) -> torch.Tensor:
        """The weight of one matrix that computes the same, laid out as ``base``'s; all three are whole here."""
        downs = self.down.split(self.rank, dim=1)
        added = torch.cat([down @ up for down, up in zip(downs, self.up)], dim=1) / self.rank
        return self.base.weight + (added.t() if self.transposed else added)


class Critic(nn.Module):
    """A GPT-2 trunk and one linear layer without bias: values of response positions."""

    family = FAMILIES["gpt2"]

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.transformer = class_of("gpt2", "GPT2Model")(config)
        self.value_head = nn.Linear(self.config.hidden_size, 1, bias=False)

    def forward(self, rows: TrunkRows) -> torch.Tensor:
        """[b, R] fp32, zero behind a response; column j is the value of the state before response token j."""
        states = self.transformer(rows.tokens, use_cache=False, **rows.options).last_hidden_state
        return rows.spread(self.value_head(rows.before_responses(states)).squeeze(-1).float())


def critic_config(size: Dict[str, Any], critic: Dict[str, int], packs: bool = False) -> Any:
    """Vocabulary and positions are those of the policy's ``size``, of whichever family that is."""
    own = {"architecture": "gpt2", "vocab": size["vocab"], "positions": size["positions"], "tied_embeddings": True}
    if size["architecture"] == "gpt2":
        own["norm_epsilon"] = size.get("norm_epsilon")
    class_of("gpt2", "GPT2Model")  # imported here, not where ZeRO-3 changes how tensors are made
    return build_config({**own, **critic}, register_attention() if packs else "sdpa")
