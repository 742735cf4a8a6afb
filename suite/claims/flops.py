"""FLOPs of a trained token as publications count them, and the peaks that they divide by."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from suite.claims.devices import published_device
from suite.claims.labels import EXPERTS, FORMAT, FULL, LORA, TRAINING
from suite.spec.device import Device

Values = Mapping[str, float]
#: How far a stated peak may be from one of a data sheet that it is taken for: 989 and 1,000, 2,450 and 2,500.
_ALIKE = 0.03
#: Cost of taking a row for one of low-rank adapters that does not say so; a sparse peak is believed sooner.
_UNSAID_LORA, _SPARSE = 3, 2
_SIXTEEN = "16-bit"


@dataclass(frozen=True)
class Count:
    """FLOPs by one convention. ``family``: what it does about attention, grouped queries, recompute and adapters, which
    a table should do alike in all rows. ``cost``: how far-fetched it is. ``wrong``: why this row should not use it."""

    name: str
    flops: float
    family: str
    cost: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Peak:
    """FLOP/s of a device by what it is called; the rest as in ``Count``."""

    name: str
    flops: float
    cost: int = 0
    wrong: str = ""


def per_token(values: Values, words: Mapping[str, str], hardware_flops: bool = False) -> list[Count]:
    """Model FLOPs per token by convention, from a row's parameters and shape (base units); empty if it has neither.

    6N, and with 12 l h s for attention: Chowdhery et al., arXiv 2204.02311, appendix B. Matrices by shape, the head
    counted: Korthikanti et al., arXiv 2205.05198, equation 7. Causal attention is half of full. Recomputed attention is
    counted twice (equation 8 of the latter). Full recompute adds a forward pass of the layers: a third of theirs.
    Low-rank adapters spare the weight gradients: two thirds; recomputed, which hardware FLOPs count, they are 6N again.
    A mixture of experts has a count where its active parameters are told.
    """
    if words.get(EXPERTS):
        active = values.get("active_params", 0.0)
        model = list(_by_parameters({**values, "params": active}))
    else:
        model = [*_by_parameters(values), *_by_shape(values)]
    plain = [count for count in model if "recompute" not in count.family]
    repeated = [
        replace(
            count,
            name=f"{count.name}, x 4/3 for recompute",
            flops=4 / 3 * count.flops,
            family=f"{count.family}, recompute",
            cost=count.cost + 1,
        )
        for count in plain
    ]
    spared = [
        replace(count, name=f"{count.name}, x 2/3 for LoRA", flops=2 / 3 * count.flops, family=f"{count.family}, LoRA")
        for count in plain
    ]
    training = words.get(TRAINING, "")
    full = [*model, *repeated]
    if training == LORA:
        wrong = "" if hardware_flops else "the count of full training, of a row of low-rank adapters"
        full = [replace(count, wrong=wrong) for count in full]
    elif training == FULL:
        spared = [replace(count, wrong="the count of low-rank adapters, of a row of full training") for count in spared]
    else:
        spared = [replace(count, cost=count.cost + _UNSAID_LORA) for count in spared]
    return [*full, *spared]


def _by_parameters(values: Values) -> Iterator[Count]:
    params = values.get("params")
    if not params:
        return
    yield Count("6N", 6 * params, "no attention")
    attention = _attention(values)
    if attention:
        yield Count("6N + full attention", 6 * params + attention, "full attention")
        yield Count("6N + causal attention", 6 * params + attention / 2, "causal attention")


def _attention(values: Values) -> float:
    return 12 * math.prod(values.get(name, 0.0) for name in ("layers", "hidden", "sequence"))


def _by_shape(values: Values) -> Iterator[Count]:
    attention = _attention(values)
    if not attention:
        return
    layers, hidden = values["layers"], values["hidden"]
    heads, vocab = values.get("heads"), values.get("vocab")
    ffn = values.get("ffn") or 4 * hidden
    head = 6 * hidden * vocab if vocab else 0.0
    shares = {"": (values.get("kv_heads") or heads or 1) / (heads or values.get("kv_heads") or 1)}
    if shares[""] != 1:
        shares[", as if without grouped queries"] = 1.0
    for suffix, kv_share in shares.items():
        for mlp, matrices in (("", 2), (", gated MLP", 3)):
            blocks = 6 * layers * ((2 + 2 * kv_share) * hidden**2 + matrices * hidden * ffn)
            # A gated MLP is narrower than four times the hidden size, or wider for its grouped queries.
            cost = ((ffn == 4 * hidden) == (matrices == 3)) + bool(suffix)
            name = f"matrices{mlp}"
            for kind, share in (("full", 1.0), ("causal", 0.5), ("no", 0.0)):
                flops = blocks + share * attention + head
                yield Count(f"{name} + {kind} attention{suffix}", flops, f"{kind} attention{suffix}", cost)
            for text, flops in (
                ("attention x 2", blocks + 2 * attention + head),
                ("layers x 4/3", 4 / 3 * (blocks + attention) + head),
            ):
                family = f"full attention{suffix}, recompute"
                yield Count(f"{name} + full attention{suffix}, {text} for recompute", flops, family, cost + 1)


def peaks(words: Mapping[str, str], values: Values) -> list[Peak]:
    """The peaks that a utilisation may be of: as stated, dense by data sheet, and sparse, which none should be of.

    A dense peak of fp8 or fp4 counts where a row says that it computes in it: that of fp8 is the sparse one of 16 bits.
    """
    known = _known(words, values)
    stated = values.get("peak_flops")
    wrong = next((peak.wrong for peak in known if peak.wrong and stated and _alike(stated, peak.flops)), "")
    if any(not peak.wrong and stated and _alike(stated, peak.flops) for peak in known):
        wrong = ""
    return [*([Peak("stated peak", stated, 0, wrong)] if stated else []), *known]


def stated_peak(words: Mapping[str, str], values: Values) -> list[Peak]:
    """Which peaks of the device's data sheet the stated one is; empty where it is none or the device is not known.

    Devices are also run below their sheet, so that another peak is no mistake.
    """
    stated = values.get("peak_flops", 0.0)
    return [peak for peak in _known(words, values) if stated and _alike(stated, peak.flops)]


def _known(words: Mapping[str, str], values: Values) -> list[Peak]:
    device = words.get("device", "")
    known = published_device(device, values.get("device_gib")) if device else None
    if known is None:
        return []
    sixteen = known.peak_flops.get("bf16", known.peak_flops.get("fp16"))
    if sixteen is None:
        return []
    said = words.get(FORMAT, "")
    dense = {_SIXTEEN: sixteen}
    for name in ("fp8", "fp4", "tf32", "fp32"):
        if name in said and name in known.peak_flops:
            dense[name] = known.peak_flops[name]
    found = [Peak(f"dense {name} peak", flops) for name, flops in dense.items()]
    for name in (_SIXTEEN, "fp8"):
        if name in dense and not any(_alike(2 * dense[name], flops) for flops in dense.values()):
            sparse, reason = _sparse(name, 2 * dense[name], known)
            found.append(Peak(sparse, 2 * dense[name], _SPARSE, reason))
    return found


def _sparse(name: str, flops: float, device: Device) -> tuple[str, str]:
    """What twice a dense peak is called, and why no utilisation should be of it."""
    amount = f"{flops / 1e12:.0f} TFLOP/s"
    fp8 = device.peak_flops.get("fp8", 0.0)
    if name == _SIXTEEN and _alike(flops, fp8):
        return (
            "sparse 16-bit peak",
            f"of the sparse 16-bit peak, {amount} (or the dense fp8 one, which no cell says)",
        )
    # Structured sparsity came with Ampere and with MI300.
    if device.name.startswith(("V1", "MI2")):
        return (
            f"twice the dense {name} peak",
            f"of twice the dense {name} peak, {amount}, which the device does not have",
        )
    return f"sparse {name} peak", f"of the sparse {name} peak, {amount}"


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _ALIKE * max(one, other)
