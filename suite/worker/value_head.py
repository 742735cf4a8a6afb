"""The value head, the same on every engine."""

from torch import nn


def build_value_head(hidden: int) -> nn.Sequential:
    """Two linear layers with a ReLU: [*, hidden] -> [*, 1]; ``2 h^2 + 4 h + 1`` parameters.

    The shape is trlx's ``make_head`` (CarperAI/trlx, ``trlx/utils/modeling.py``): width ``2 h`` inside.
    """
    return nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, 1))
