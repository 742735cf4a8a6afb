"""Tensor ranks are neighbours, as in Megatron."""

import torch.distributed as dist

TENSOR = 1


def get_tensor_model_parallel_world_size():
    return TENSOR


def get_tensor_model_parallel_rank():
    return dist.get_rank() % TENSOR


def get_data_parallel_world_size():
    return dist.get_world_size() // TENSOR


def get_data_parallel_rank():
    return dist.get_rank() // TENSOR
