import subprocess

import torch


def set_seed(seed):
    torch.manual_seed(seed)


def get_git_tag():
    """As trlx asks: without a git on the PATH this raises FileNotFoundError."""
    try:
        branch = subprocess.check_output(["git", "rev-parse", "--abbrev-ref", "HEAD"], stderr=subprocess.DEVNULL)
        return branch.decode()[:-1], ""
    except subprocess.CalledProcessError:
        return "unknown", "unknown"
