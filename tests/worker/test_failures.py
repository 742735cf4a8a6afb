"""Failure kinds, each from an exception that the library in question really raises where a CPU can make it do so."""

import errno
import os
import tempfile

import pytest
import torch

from suite.worker.failures import failure_evidence, failure_kind
from suite.worker.rank import ConfigError
from suite.worker.turns import DriverGoneError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), "oom_device"),
        (RuntimeError("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"), "oom_device"),
        (MemoryError(), "oom_host"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (KeyboardInterrupt(), "interrupted"),
        (DriverGoneError("gone"), "interrupted"),
        (ConfigError("the iteration was not the manifest's work"), "config"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:2"), "rank_lost"),
        (RuntimeError("[unbound_buffer.cc:81] Timed out waiting 1000ms for recv operation"), "nccl_timeout"),
        (RuntimeError("The server socket has failed to listen. port: 1, code: -98, name: EADDRINUSE"), "port_taken"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "port_taken"),
        (RuntimeError("The NVIDIA driver on your system is too old"), "driver_mismatch"),
        (ValueError("something in the middle of training"), "unknown"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "unknown"),
    ],
)
def test_kinds_of_an_exception_in_training(error: BaseException, kind: str) -> None:
    assert failure_kind(error, "train") == kind


@pytest.mark.parametrize("error", [ValueError("3 heads"), ModuleNotFoundError("No module named 'deepspeed'")])
def test_what_the_manifest_causes_shows_before_the_first_iteration(error: Exception) -> None:
    assert failure_kind(error, "setup") == "config"
    assert failure_kind(ValueError("No available memory for the cache blocks."), "setup") == "oom_device"


without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")


@pytest.mark.parametrize(
    ("size", "device", "kind"),
    [(1 << 55, "cpu", "oom_host"), pytest.param(1, "cuda", "gpu_unavailable", marks=without_cuda)],
)
def test_torchs_own_words_for_host_memory_and_for_a_missing_gpu_are_known(size, device, kind):
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        torch.empty(size, device=device)
    assert failure_kind(caught.value, "setup") == kind


def test_evidence_names_the_error_and_its_cause_in_few_lines() -> None:
    cause = OSError("first\n\n" + "\n".join("line" for _ in range(50)))
    error = ConfigError("cannot read the manifest")
    error.__cause__ = cause
    evidence = failure_evidence(error)
    assert evidence[:2] == ["ConfigError: cannot read the manifest", "OSError: first"]
    assert len(evidence) < 10


def test_an_error_of_a_process_of_rays_is_the_one_that_was_raised_there() -> None:
    class RayTaskError(RuntimeError):
        """As Ray's: its text is the traceback of the other process, coloured and with the task first."""

        cause = AttributeError("no attribute 'heads'")

    error = RayTaskError("\x1b[36mray::Worker.reset()\x1b[39m (pid=7)\n  File ...")
    assert failure_evidence(error) == ["AttributeError: no attribute 'heads'"]
    error.cause = torch.cuda.OutOfMemoryError("CUDA out of memory.")
    assert failure_kind(error, "train") == "oom_device"


def test_a_full_file_system_that_the_error_does_not_name_is_told_by_what_is_free() -> None:
    first, free = failure_evidence(OSError(errno.ENOSPC, "No space left on device"))
    assert first == "OSError: [Errno 28] No space left on device"
    assert "MiB in /dev/shm" in free and tempfile.gettempdir() in free and os.getcwd() in free
    assert len(failure_evidence(OSError(errno.ENOSPC, "No space left on device", "/runs/a"))) == 1
