"""What verl's workers really built, asked of each one in its own process."""

from typing import Any, Dict, List

from suite.worker.rank import ConfigError

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


def check(found: List[Found], ranks: int, device: str, has_critic: bool, has_reference: bool) -> None:
    """Raise ConfigError unless every rank has what was asked for, in FSDP2, over all ranks, on this device."""
    wanted = {"actor"} | ({"critic"} if has_critic else set()) | ({"ref"} if has_reference else set())
    if len(found) != ranks:
        raise ConfigError("verl runs {} workers of {}".format(len(found), ranks))
    for models in found:
        if set(models) != wanted:
            raise ConfigError("verl built {}, not {}".format(sorted(models), sorted(wanted)))
        for name, facts in models.items():
            if not facts["is_fsdp2"] or facts["ranks"] != ranks:
                raise ConfigError("FSDP2 over {} ranks was asked for, but the {} is not in it".format(ranks, name))
            # the reference's weights may rest on the host
            if facts["devices"] != [device] and name != "ref":
                raise ConfigError("the {} is on {}, not {}".format(name, ", ".join(facts["devices"]), device))
