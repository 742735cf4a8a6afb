"""For each way to fail, what to do about it."""

from __future__ import annotations

from suite.launch.outcome import FailureKind

NEXT_STEPS: dict[FailureKind, str] = {
    "oom_device": "The model did not fit: take more devices, a higher ZeRO stage or tensor parallel degree, recompute, "
    "offload, or a smaller micro batch.",
    "oom_host": "The host ran out of memory: run fewer ranks on it, take a smaller size, leave out offload, or raise "
    "the memory limit.",
    "nccl_timeout": "A collective did not finish: check the links between the devices (nvidia-smi topo -m, dmesg), "
    "then run again with NCCL_DEBUG=INFO.",
    "hang": "The ranks went silent: read the stacks in the evidence and logs, or raise the silence limit if the work "
    "is really that slow.",
    "rank_lost": "A rank was ended from outside or crashed: read its log and the kernel's (dmesg) for that time, then "
    "run again.",
    "image_missing": "The image is not on this machine: build or pull it (suite images), or name another.",
    "image_pull": "The image could not be pulled: check its name, the registry's address and the log-in, then pull it "
    "by hand once.",
    "gpu_unavailable": "The ranks saw no usable GPU: compare nvidia-smi with the device ids asked for, and check that "
    "the stack was built for CUDA.",
    "driver_mismatch": "The GPU driver does not fit the stack: update the driver, or take a stack built for its CUDA "
    "version and this GPU.",
    "disk_full": "A file system is full: free space where the evidence says (runs folder, /tmp or /dev/shm), then run "
    "again.",
    "port_taken": "Another program listens where the ranks were to meet: run it again, which takes another port; "
    "ss -ltnp on the first node shows what holds this one.",
    "config": "The stack cannot start as it is set up: mend what the evidence names (a missing package, a wrong path, "
    "setting or limit); suite doctor checks it.",
    "timeout": "The run took longer than its limit: raise the limit, or ask for fewer iterations or a smaller size.",
    "interrupted": "The run was stopped on request: the same command again redoes it and keeps what is done.",
    "unknown": "Nothing known fits: read the evidence and the whole log of the rank it names.",
}


def next_step(kind: FailureKind) -> str:
    """One sentence that tells a user what to do after a failure of this kind."""
    return NEXT_STEPS[kind]
