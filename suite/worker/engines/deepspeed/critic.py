"""A critic of its own under DeepSpeed, beside the policy: built, asked and trained as DeepSpeed-Chat does."""

from typing import Any, Dict

import torch
from torch import nn

from suite.worker.engines.deepspeed import attention
from suite.worker.engines.deepspeed.families import FAMILIES, build_config, class_of
from suite.worker.engines.deepspeed.rows import Rows


class Critic(nn.Module):
    """A GPT-2 trunk and one linear layer without bias: values of response positions."""

    branch = None
    family = FAMILIES["gpt2"]

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.transformer = class_of("gpt2", "GPT2Model")(config)
        self.value_head = nn.Linear(self.config.hidden_size, 1, bias=False)

    def forward(self, rows: Rows) -> torch.Tensor:
        """[b, R] fp32, zero behind a response; column j is the value of the state before response token j."""
        states = self.transformer(rows.tokens, use_cache=False, **rows.options).last_hidden_state
        return rows.spread(self.value_head(rows.before_responses(states)).squeeze(-1).float())


def critic_config(size: Dict[str, Any], critic: Dict[str, int], packs: bool = False) -> Any:
    """Vocabulary and positions are those of the policy's ``size``, of whichever family that is."""
    own = {"architecture": "gpt2", "vocab": size["vocab"], "positions": size["positions"], "tied_embeddings": True}
    if size["architecture"] == "gpt2":
        own["norm_epsilon"] = size.get("norm_epsilon")
    class_of("gpt2", "GPT2Model")  # imported here, not where ZeRO-3 changes how tensors are made
    return build_config({**own, **critic}, attention.register() if packs else "sdpa")


def joined_losses(policy: Dict[str, torch.Tensor], critic: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """The statistics of one micro batch from those of its two passes, each of which held the other's part constant."""
    loss = policy["policy_loss"] + critic["loss"] - critic["policy_loss"]
    return {"loss": loss, "policy_loss": policy["policy_loss"], "value_loss": critic["value_loss"]}
