"""Importing this imports both training stacks, as a rank on a CPU does."""

from suite.worker.registry import engine_class

for _backend in ("deepspeed", "megatron"):
    engine_class(_backend, "cpu")
