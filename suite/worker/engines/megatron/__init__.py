"""The megatron engine. Whose kernels it runs is settled before megatron-core is imported."""

import sys

#: what megatron-core takes for its optimizer, its clipping and its layers wherever it can be imported
_COMPILED_PACKAGES = ("transformer_engine", "transformer_engine_torch", "apex", "amp_C")


def choose_kernels(kernels: str) -> None:
    """With ``torch`` kernels this process finds neither Transformer Engine nor Apex, installed or not."""
    if kernels == "torch":
        for package in _COMPILED_PACKAGES:
            sys.modules[package] = None  # an import of it fails as if it were not there
