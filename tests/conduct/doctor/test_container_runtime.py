"""What `suite doctor` says of the container runtime."""

from __future__ import annotations

import pytest

from suite.conduct.doctor import container_runtime
from suite.conduct.doctor.container_runtime import look_at_runtime
from suite.launch.docker.connection import Runtime as Connected
from tests.container_runtime import Runtime


def test_no_runtime_is_shown_with_the_reason_and_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    look = look_at_runtime()
    assert not look.is_there and look.found == "none"
    assert "no container runtime answers at unix:///nowhere/docker.sock" in look.advice
    assert look.advice.endswith("only --launcher docker needs one")


@pytest.mark.daemon
def test_a_runtime_is_shown_with_its_version_its_gpus_and_the_images_it_holds(
    connected: Connected, runtime: Runtime, scripted_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_runtime, "images", dict)
    empty = look_at_runtime()
    assert connected.facts.version in empty.found and empty.found.endswith("images: none")
    assert "suite images build" in empty.advice

    class Built:
        def tag(self, version: str) -> str:
            return scripted_image

    monkeypatch.setattr(container_runtime, "images", lambda: {"scripted": Built()})
    look = look_at_runtime()
    assert look.is_there and look.advice is None and look.found.endswith(f"images: {scripted_image}")
