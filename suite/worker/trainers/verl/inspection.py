"""What verl's workers really built, asked of each one in its own process."""

from typing import Any, Dict, Iterator, List, Optional, Tuple

#: by name of a model: its parameters, those that train, the class of its wrapper, ranks, device and optimizer
Found = Dict[str, Dict[str, Any]]


def engines_of(worker: Any) -> Dict[str, Any]:
    """Runs in a worker of verl: its engines by ``actor``, ``ref`` and ``critic``, those that it has."""
    engines: Dict[str, Any] = {}
    for role in dict(worker.worker_dict).values():
        for name in ("actor", "ref"):
            if getattr(role, name, None) is not None:
                engines[name] = getattr(role, name).engine
        if hasattr(role, "engine"):
            engines["critic"] = role.engine
    return engines


def describe(worker: Any) -> Found:
    """Runs in a worker of verl. Sizes are whole, also where a rank holds its part."""
    import torch
    from torch.distributed.fsdp import FSDPModule

    found: Found = {}
    for name, engine in engines_of(worker).items():
        parameters = list(engine.module.parameters())
        found[name] = {
            "parameters": sum(each.numel() for each in parameters),
            "trainable": sum(each.numel() for each in parameters if each.requires_grad),
            "is_fsdp2": isinstance(engine.module, FSDPModule),
            "ranks": torch.distributed.get_world_size(),
            "devices": sorted({each.device.type for each in parameters}),
            "optimizer": type(engine.optimizer).__name__,
            "attention": getattr(engine.module.config, "_attn_implementation", None),
        }
    return found


def facts(
    found: List[Found], ranks: int, device: str, drawn: Dict[str, Optional[int]]
) -> Iterator[Tuple[str, Any, Any]]:
    """For ``check_found``: every rank has these models in FSDP2, over all ranks, on this device, all of them training.

    ``drawn``: parameters by name of a model; None: of the reference.
    """
    yield "workers", ranks, len(found)
    for models in found:
        yield "models", sorted(drawn), sorted(models)
        for name, model in models.items():
            yield "{} in FSDP2".format(name), (True, ranks), (model["is_fsdp2"], model["ranks"])
            if drawn.get(name) is not None:  # the reference's weights may rest on the host
                yield "{} on".format(name), [device], model["devices"]
                yield "parameters of the {}".format(name), drawn[name], model["parameters"]
                yield "of these trained", drawn[name], model["trainable"]
