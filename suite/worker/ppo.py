"""The arithmetic of PPO and its relatives on tensors: penalised rewards, advantages, clipped losses, KL.

Shapes: b samples, R response tokens. Column j is response token j. ``weight`` is by how much each counts in a sum that
stands for a mean over an optimizer step; it is 0 behind a response.
PPO: Schulman et al., arXiv 1707.06347. GAE: Schulman et al., arXiv 1506.02438. KL penalty: Ziegler et al., arXiv
1909.08593.
"""

from typing import Optional, Tuple

import torch

_WHITENING_EPSILON = 1e-8


def penalised_rewards(
    scores: torch.Tensor, logprobs: torch.Tensor, reference: torch.Tensor, kl_coefficient: float, mask: torch.Tensor
) -> torch.Tensor:
    """Reward of each token: ``-kl_coefficient (log pi - log ref)``, on a response's last also the sample's score
    (1909.08593, equation 2, token by token).

    ``scores`` [b], ``logprobs``, ``reference`` and ``mask`` [b, R] -> [b, R]; zero behind a response.
    """
    rewards = -kl_coefficient * (logprobs - reference) * mask
    last = mask.sum(dim=1, keepdim=True) - 1
    return rewards.scatter_add(1, last, scores.unsqueeze(1).to(rewards.dtype))


def advantages_and_returns(
    rewards: torch.Tensor, values: torch.Tensor, discount: float, gae_lambda: float
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimates and the returns ``advantage + value`` (1506.02438, equation 16).

    ``rewards`` and ``values`` [b, R], both 0 behind a response: its last state is terminal. Both results [b, R].
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
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    clip_ratio: float,
    weight: torch.Tensor,
    clip_high: Optional[float] = None,
) -> torch.Tensor:
    """Clipped surrogate objective, negated (1707.06347, equation 7), summed by ``weight``: all [b, R] (or [b], where
    whole responses are the actions) -> scalar.

    ``clip_high``: another bound upwards (DAPO, arXiv 2503.14476, equation 8).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + (clip_ratio if clip_high is None else clip_high))
    return -(weight * torch.minimum(ratio * advantages, clipped * advantages)).sum()


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip_value: float, weight: torch.Tensor
) -> torch.Tensor:
    """Half the squared error, the larger of plain and clipped, summed by ``weight``: all [b, R] -> scalar.

    The clip keeps a value within ``clip_value`` of what it was at rollout, as OpenAI's PPO2 code and trlx do.
    """
    near = old_values + (values - old_values).clamp(-clip_value, clip_value)
    return 0.5 * (weight * torch.maximum((values - returns).square(), (near - returns).square())).sum()


def clipped_share(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
    weight: torch.Tensor,
) -> torch.Tensor:
    """By weight, where the clip keeps the gradient of ``policy_loss`` at zero: scalar, detached."""
    ratio = torch.exp(logprobs.detach() - old_logprobs)
    is_clipped = ((ratio > 1 + clip_high) & (advantages > 0)) | ((ratio < 1 - clip_low) & (advantages < 0))
    return (weight * is_clipped).sum()


def kl_to_reference(logprobs: torch.Tensor, reference: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``exp(d) - d - 1`` with ``d = log ref - log pi`` (the estimator k3; GRPO, arXiv 2402.03300, equation 4), summed
    by ``weight``: all [b, R] -> scalar."""
    difference = (reference - logprobs) * (weight != 0)  # exp of what stands behind a response may be infinite
    return (weight * (torch.exp(difference) - difference - 1.0)).sum()


def weights_by_sample(mask: torch.Tensor) -> torch.Tensor:
    """[b, R]: every sample counts 1, spread evenly over its tokens."""
    return mask.float() / mask.sum(dim=1, keepdim=True)
