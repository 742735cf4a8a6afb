"""When NCCL's communicators are made, and what they take: torch.cuda and the process group are replaced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from suite.worker.communicators import Communicators
from suite.worker.rank import RankIdentity
from suite.worker.world import join
from tests.worker.tiny import rank_environment


@pytest.mark.parametrize("eager", [True, False])
def test_communicators_are_made_with_their_groups_or_at_first_use(monkeypatch: pytest.MonkeyPatch, eager: bool) -> None:
    asked: dict[str, Any] = {}

    def initialise(backend: str, timeout: Any = None, device_id: Any = None) -> None:
        asked.update(backend=backend, device_id=device_id)

    for name, value in rank_environment(1, 2, 29500).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "init_process_group", initialise)
    monkeypatch.setattr(dist, "new_group", dist.new_group)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    world = join(RankIdentity(1, 2, 1, 2), "cuda", 60.0, eager=eager)
    assert world.device == torch.device("cuda", 1)
    assert asked == {"backend": "nccl", "device_id": world.device if eager else None}


def test_memory_outside_of_the_allocator_is_noted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((90, 60))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (next(free), 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 8)
    notes = Communicators("cuda", 0, eager=True)
    for when in ("before_join", "joined"):
        notes.note(when)
    assert notes.facts() == {"eager": True, "outside_allocator_bytes": {"before_join": 2, "joined": 32}}


def test_a_cpu_has_none() -> None:
    notes = Communicators("cpu", 0, eager=True)
    notes.note("before_join")
    assert notes.facts() is None
