"""A critic of its own under DeepSpeed, beside the policy: built, asked and trained as DeepSpeed-Chat does."""

from typing import Any, Dict

import torch
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Model

from suite.worker.engines.deepspeed.policy import build_config


class Critic(nn.Module):
    """A GPT-2 trunk and one linear layer without bias: values of response positions."""

    branch = None

    def __init__(self, size: Dict[str, Any], critic: Dict[str, int]) -> None:
        """Vocabulary and positions are those of the policy's ``size``."""
        super().__init__()
        self.config = build_config(dict(size, **critic))
        self.transformer = GPT2Model(self.config)
        self.value_head = nn.Linear(self.config.n_embd, 1, bias=False)

    def forward(self, tokens: torch.Tensor, prompt_tokens: int) -> torch.Tensor:
        """[b, T] -> [b, R] fp32; column j is the value of the state before response token j."""
        states = self.transformer(tokens, use_cache=False).last_hidden_state[:, prompt_tokens - 1 : -1]
        return self.value_head(states).squeeze(-1).float()


def joined_losses(policy: Dict[str, torch.Tensor], critic: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """The statistics of one micro batch from those of its two passes, each of which held the other's part constant."""
    loss = policy["policy_loss"] + critic["loss"] - critic["policy_loss"]
    return {"loss": loss, "policy_loss": policy["policy_loss"], "value_loss": critic["value_loss"]}
