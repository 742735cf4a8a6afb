"""What verl's workers really built, asked of each one in its own process; and what they send to vLLM."""

from typing import Any, Dict, Iterable, Iterator, List, Tuple

#: by name of a model: its parameters, those that train, the class of its wrapper, ranks, devices and attention
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
            "attention": getattr(engine.module.config, "_attn_implementation", None),
        }
    return found


def facts(found: List[Found], ranks: int, device: str, drawn: Dict[str, Any]) -> Iterator[Tuple[str, Any, Any]]:
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


HEAD = "lm_head.weight"
NAME = "verl-tied-head"


def leave_out_head(worker: Any) -> bool:
    """Runs in a worker of verl, before its first weights. Whether the policy's head is tied, and therefore left out.

    verl sends weights in buckets (``bucketed_weight_transfer.py``), a tied head last, as the embedding once more. vLLM
    0.32 refuses a bucket that has it without the embedding (``models/utils.py``, ``_check_skipped_aliases``).
    """
    engine = engines_of(worker)["actor"]
    if not engine.module.config.tie_word_embeddings:
        return False
    own = engine.get_per_tensor_param

    def get_per_tensor_param(*arguments: Any, **options: Any) -> Tuple[Iterable[Tuple[str, Any]], Any]:
        weights, adapter = own(*arguments, **options)
        # The head is gathered too, on every rank: that is a collective.
        return (each for each in weights if each[0] != HEAD), adapter

    engine.get_per_tensor_param = get_per_tensor_param
    return True
