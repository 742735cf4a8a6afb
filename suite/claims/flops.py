"""FLOPs of a trained token as publications count them, and the peaks that they divide by."""

from __future__ import annotations

from collections.abc import Mapping

from suite.planner.hardware import published_hardware

Values = Mapping[str, float]


def per_token(values: Values) -> dict[str, float]:
    """Model FLOPs per token by convention, from a row's parameters and shape (base units); empty if it has neither.

    6N, and with 12 l h s for attention: Chowdhery et al., arXiv 2204.02311, appendix B. Matrices by shape, the head
    counted: Korthikanti et al., arXiv 2205.05198, equation 7. Causal attention is half of full. Low-rank adapters
    spare the weight gradients: two thirds. Recomputed attention is counted twice (equation 8 of the latter). Full
    recompute adds a forward pass of the layers: a third of theirs.
    """
    found: dict[str, float] = {}
    params = values.get("params")
    layers, hidden, sequence = (values.get(name) for name in ("layers", "hidden", "sequence"))
    attention = 12 * layers * hidden * sequence if layers and hidden and sequence else None
    if params:
        found["6N"] = 6 * params
        if attention:
            found["6N + full attention"] = 6 * params + attention
            found["6N + causal attention"] = 6 * params + attention / 2
    if layers and hidden and attention:
        found |= _by_shape(values, layers, hidden, attention)
    model = dict(found)
    found |= {f"{name}, x 4/3 for recompute": 4 / 3 * flops for name, flops in model.items()}
    found |= {f"{name}, x 2/3 for LoRA": 2 / 3 * flops for name, flops in model.items()}
    return found


def _by_shape(values: Values, layers: float, hidden: float, attention: float) -> dict[str, float]:
    heads, vocab = values.get("heads"), values.get("vocab")
    ffn = values.get("ffn") or 4 * hidden
    head = 6 * hidden * vocab if vocab else 0.0
    shares = {"": (values.get("kv_heads") or heads or 1) / (heads or values.get("kv_heads") or 1)}
    if shares[""] != 1:
        shares[", as if without grouped queries"] = 1.0
    found = {}
    for suffix, kv_share in shares.items():
        for mlp, matrices in (("", 2), (", gated MLP", 3)):
            blocks = 6 * layers * ((2 + 2 * kv_share) * hidden**2 + matrices * hidden * ffn)
            for kind, share in (("full", 1.0), ("causal", 0.5), ("no", 0.0)):
                found[f"matrices{mlp} + {kind} attention{suffix}"] = blocks + share * attention + head
            found[f"matrices{mlp} + full attention{suffix}, attention x 2 for recompute"] = (
                blocks + 2 * attention + head
            )
            found[f"matrices{mlp} + full attention{suffix}, layers x 4/3 for recompute"] = (
                4 / 3 * (blocks + attention) + head
            )
    return found


def peaks(device: str, precision: str, values: Values) -> dict[str, float]:
    """FLOP/s by what it is called: as stated, dense by data sheet, and sparse (twice the dense)."""
    found = {"stated peak": values["peak_flops"]} if values.get("peak_flops") else {}
    hardware = published_hardware(device, values.get("device_gib")) if device else None
    if hardware is None:
        return found
    found["dense 16-bit peak"] = hardware.peak
    fp8 = hardware.peak_by_precision.get("fp8")
    if fp8 and (not precision or "8" in precision):
        found["dense fp8 peak"] = fp8
    return found | {"sparse 16-bit peak": 2 * hardware.peak}
