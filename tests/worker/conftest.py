"""Fixtures of the worker's tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def group_of_one() -> Iterator[None]:
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
