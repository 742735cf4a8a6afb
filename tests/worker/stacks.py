"""Importing this imports both training stacks, as a rank on a CPU does."""

from suite.worker.registry import backend_class

for _backend in ("deepspeed", "megatron"):
    backend_class(_backend, "cpu")
