"""Tiny shapes of every family, their Hugging Face models, and such a model's weights in a Megatron policy."""

from typing import Any

from suite.worker.hugging_face import shape_fields

LAYERS, HIDDEN = 2, 32
_WIDTHS = {"hidden": HIDDEN, "ffn": 48, "heads": 4, "kv_heads": 2, "vocab": 200, "positions": 40}
_FREQUENCIES = {"low_frequency_factor": 1.0, "high_frequency_factor": 3.0, "original_positions": 16}
_LLAMA3 = {"kind": "llama3", "factor": 4.0, **_FREQUENCIES}
_EXPERTS = {"count": 4, "per_token": 2}
_OWN: dict[str, dict[str, Any]] = {
    "gpt2": {"kv_heads": 4, "tied_embeddings": True},
    "llama": {"tied_embeddings": False, "rope_theta": 500.0, "rope_scaling": _LLAMA3, "norm_epsilon": 1e-5},
    "qwen2": {"tied_embeddings": True, "rope_scaling": {"kind": "linear", "factor": 2.0}},
    "qwen3": {"tied_embeddings": True, "head_width": 12, "rope_theta": 1000.0},
    "mixtral": {"tied_embeddings": False, "experts": {**_EXPERTS, "normalise": True}},
    "qwen3_moe": {"tied_embeddings": False, "head_width": 12, "experts": {**_EXPERTS, "normalise": False}},
}


def size_of(architecture: str, **changes: Any) -> dict[str, Any]:
    """A shape as a manifest has it: no two of its widths are equal by chance."""
    named = {"name": f"tiny-{architecture}", "architecture": architecture, "layers": LAYERS}
    return {**named, **_WIDTHS, **_OWN[architecture], **changes}


def hugging_face_model(size: dict[str, Any]) -> Any:
    """The family's own class in fp32, drawn wide, so that a slip shows."""
    import torch
    import transformers

    name = {"gpt2": "GPT2", "qwen3_moe": "Qwen3Moe"}.get(size["architecture"], size["architecture"].capitalize())
    config = getattr(transformers, f"{name}Config")(**_configuration(size))
    suffix = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    torch.manual_seed(2)
    model = getattr(transformers, name + suffix)(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def _configuration(size: dict[str, Any]) -> dict[str, Any]:
    experts = size.get("experts", {})
    count, normalise = experts.get("count"), experts.get("normalise")
    own = {
        "mixtral": {"num_local_experts": count},
        "qwen3_moe": {"num_experts": count, "moe_intermediate_size": size["ffn"], "norm_topk_prob": normalise},
    }
    return {
        "vocab_size": size["vocab"],
        "tie_word_embeddings": size["tied_embeddings"],
        "initializer_range": 0.2,
        **shape_fields(size),
        **({"num_experts_per_tok": experts["per_token"], **own[size["architecture"]]} if experts else {}),
    }


def checkpoint_of(model: Any, size: dict[str, Any]) -> dict[str, Any]:
    """A Hugging Face model's weights under the names of its published checkpoints, a tied output layer left out.

    In memory the experts of a layer are stacked; in checkpoints each is apart.
    """
    experts = {
        "mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
        "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    }
    found = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        layer, _, module = name.partition(".mlp.")
        if size["architecture"] not in experts or not module:
            found[name] = tensor
            continue
        where, gate, up, down = experts[size["architecture"]]
        if module == "gate.weight":
            found[f"{layer}.{where}.gate.weight"] = tensor
        for number, own in enumerate(tensor if module.startswith("experts") else ()):
            expert = f"{layer}.{where}.experts.{number}"
            if module == "experts.down_proj":
                found[f"{expert}.{down}.weight"] = own
            else:
                found[f"{expert}.{gate}.weight"], found[f"{expert}.{up}.weight"] = own.chunk(2)
    return found


def load_checkpoint(model: Any, size: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    """Weights under Hugging Face's names into this rank's part of a policy; a value head that is not there stays.

    The engine's own mapping is turned round: it says of every number of a Megatron parameter where it goes.
    """
    import torch

    from suite.worker.engines.megatron.export import hugging_face_tensors
    from suite.worker.engines.megatron.weights import global_parameters, shard, whole_shape

    with torch.no_grad():
        for name, parameter in global_parameters(model):
            if name.startswith("value_head"):
                parameter.copy_(checkpoint.get(name, parameter))
                continue
            shape = whole_shape(name, parameter, model)
            places = torch.arange(torch.Size(shape).numel(), device=parameter.device).view(shape)
            whole = torch.full((places.numel(),), torch.nan, device=parameter.device)
            for theirs, where in hugging_face_tensors(name, places, size):
                whole[where.flatten()] = checkpoint[theirs].to(whole).flatten()
            parameter.copy_(shard(whole.view(shape), parameter))


def weights_of(policy: Any) -> dict[str, Any]:
    """A DeepSpeed policy's weights as they are now, under Hugging Face's names; its value head's under their own."""
    from suite.worker.engines.deepspeed.weights import plain_weights

    head = [(name, one) for name, one in policy.named_parameters() if name.startswith("value_head")]
    named = [*plain_weights(policy), *head]
    return {name: tensor.detach().float().clone() for name, tensor in named}
