"""The manifest in the words of trlx's NeMo trainer (TP and MP as in ``hooks``) and of NeMo-Megatron.

What stands here follows trlx's ``configs/nemo_configs/megatron_1.3b.yaml`` and ``examples/nemo_vs_ds_chat.py``, which
starts every size from it.
"""

from typing import Any, Dict

from suite.worker.trainers.trlx.config import trlx_config

VOCABULARY_MULTIPLE = 128
#: NeMo asserts that its cosine falls; over this it falls as little as in trlx's script (6.001e-5 to 6e-5)
_LOWEST_RATE_SHARE = 6.0 / 6.001
_CONSTANT_STEPS = 10**12


def megatron_config(manifest: Dict[str, Any], tokenizer_folder: str, log_folder: str) -> Dict[str, Any]:
    """What ``OmegaConf.load`` reads as ``megatron_cfg``, where it differs from the defaults of NeMo and Lightning.

    TP:69-101 adds batches, optimizer, seed and steps.
    """
    layout = manifest["layout"]
    return {
        "trainer": {
            "devices": layout["devices_per_node"],
            "num_nodes": layout["nodes"],
            "accelerator": "gpu",
            "precision": manifest["measure"]["precision"],
            "logger": False,
            "enable_checkpointing": False,
            "replace_sampler_ddp": False,
            "max_epochs": -1,
            "limit_val_batches": 0.0,
            "gradient_clip_val": manifest["workload"]["optimizer"]["gradient_clip"],
        },
        "exp_manager": {
            "explicit_log_dir": log_folder,
            "create_tensorboard_logger": False,
            "create_checkpoint_callback": False,
        },
        "model": _model(manifest, tokenizer_folder),
    }


def _model(manifest: Dict[str, Any], tokenizer_folder: str) -> Dict[str, Any]:
    size, layout = manifest["size"], manifest["layout"]
    recompute = layout["recompute"] == "full"
    return {
        "tensor_model_parallel_size": layout["tensor"],
        "pipeline_model_parallel_size": 1,
        "sequence_parallel": layout["sequence_parallel"],
        "encoder_seq_length": size["positions"],
        "max_position_embeddings": size["positions"],
        "num_layers": size["layers"],
        "hidden_size": size["hidden"],
        "ffn_hidden_size": size["ffn"],
        "num_attention_heads": size["heads"],
        "init_method_std": 0.015,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "make_vocab_size_divisible_by": VOCABULARY_MULTIPLE,
        "tokenizer": {
            "library": "huggingface",
            "type": tokenizer_folder,
            "model": None,
            "vocab_file": None,
            "merge_file": None,
        },
        "megatron_amp_O2": True,
        "activations_checkpoint_granularity": "full" if recompute else None,
        "activations_checkpoint_method": "uniform" if recompute else None,
        "activations_checkpoint_num_layers": 1 if recompute else None,
        "gradient_as_bucket_view": True,
        "resume_from_checkpoint": None,
        "data": {"data_prefix": [], "seq_length": size["positions"], "dataloader_type": "single", "num_workers": 0},
    }


def nemo_trlx_config(
    manifest: Dict[str, Any], iterations: int, megatron_file: str, tokenizer_folder: str
) -> Dict[str, Any]:
    """What ``TRLConfig.from_dict`` takes. The file's absolute path stands alone where TP:61 joins it to trlx's own."""
    config = trlx_config(manifest, iterations, tokenizer_folder, [])
    workload = manifest["workload"]
    config["train"]["trainer"] = "NeMoPPOTrainer"
    config["train"]["trainer_kwargs"] = {"pretrained_model": None, "megatron_cfg": megatron_file}
    if workload["trainable_layers"] is not None:
        config["model"]["num_layers_unfrozen"] -= 1  # MP:516 counts blocks from 1 and trains one more
    config["optimizer"]["name"] = "distributed_fused_adam"
    lowest = config["optimizer"]["kwargs"]["lr"] * _LOWEST_RATE_SHARE
    schedule = {"warmup_steps": 0, "constant_steps": _CONSTANT_STEPS, "min_lr": lowest}
    config["scheduler"] = {"name": "CosineAnnealing", "kwargs": schedule}
    config["method"]["gen_kwargs"] = {
        "temperature": workload["ppo"]["temperature"],
        "top_k": 0,
        "max_new_tokens": workload["new_tokens"],
        "min_new_tokens": workload["new_tokens"],
    }
    return config
