"""The arithmetic of PPO on tensors: penalised rewards, advantages, the two clipped losses.

Shapes: b samples, R response tokens. Column j is response token j.
PPO: Schulman et al., arXiv 1707.06347. GAE: Schulman et al., arXiv 1506.02438. KL penalty: Ziegler et al., arXiv
1909.08593.
"""

from typing import Tuple

import torch

_WHITENING_EPSILON = 1e-8


def penalised_rewards(
    scores: torch.Tensor, logprobs: torch.Tensor, reference: torch.Tensor, kl_coefficient: float
) -> torch.Tensor:
    """Reward of each token: ``-kl_coefficient (log pi - log ref)``, on the last also the sample's score.

    1909.08593, equation 2, token by token.

    ``scores`` [b], ``logprobs`` and ``reference`` [b, R] -> [b, R].
    """
    rewards = -kl_coefficient * (logprobs - reference)
    rewards[:, -1] += scores
    return rewards


def advantages_and_returns(
    rewards: torch.Tensor, values: torch.Tensor, discount: float, gae_lambda: float
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimates and the returns ``advantage + value`` (1506.02438, equation 16).

    ``rewards`` and ``values`` [b, R]; the state behind the last token is terminal, its value 0. Both results [b, R].
    """
    advantages = torch.empty_like(values)
    following_advantage = torch.zeros_like(values[:, 0])
    following_value = torch.zeros_like(values[:, 0])
    for token in range(values.size(1) - 1, -1, -1):
        error = rewards[:, token] + discount * following_value - values[:, token]
        following_advantage = error + discount * gae_lambda * following_advantage
        following_value = values[:, token]
        advantages[:, token] = following_advantage
    return advantages, advantages + values


def moments(numbers: torch.Tensor) -> torch.Tensor:
    """Count, sum and sum of squares, fp64 [3]: what ranks add up to whiten over all of them."""
    wide = numbers.double()
    return torch.stack([torch.full_like(wide.sum(), float(numbers.numel())), wide.sum(), wide.square().sum()])


def whiten(numbers: torch.Tensor, all_moments: torch.Tensor) -> torch.Tensor:
    """``numbers`` less the mean, over the (population) standard deviation by ``all_moments`` [3]."""
    count, total, squares = all_moments.unbind()
    mean = total / count
    variance = (squares / count - mean.square()).clamp_min(0.0)
    return ((numbers - mean) / (variance + _WHITENING_EPSILON).sqrt()).to(numbers.dtype)


def policy_loss(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, clip_ratio: float
) -> torch.Tensor:
    """Clipped surrogate objective, negated and averaged over tokens (1707.06347, equation 7): all [b, R] -> scalar."""
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip_value: float
) -> torch.Tensor:
    """Half the mean squared error, the larger of plain and clipped: all [b, R] -> scalar.

    The clip keeps a value within ``clip_value`` of what it was at rollout, as OpenAI's PPO2 code does and the paper
    does not say; Ziegler et al. and trlx use the same.
    """
    near = old_values + (values - old_values).clamp(-clip_value, clip_value)
    return 0.5 * torch.maximum((values - returns).square(), (near - returns).square()).mean()
