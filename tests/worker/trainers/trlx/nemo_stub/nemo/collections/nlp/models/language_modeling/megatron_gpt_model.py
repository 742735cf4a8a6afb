"""A model that is parameters of Megatron's GPT, split as apex splits them."""

import json
import os

import torch
from apex.transformer import parallel_state
from torch import nn


def parameter(shape, split=None):
    """``split``: the dimension that tensor parallel ranks share."""
    sizes = list(shape)
    if split is not None:
        sizes[split] //= parallel_state.TENSOR
    made = nn.Parameter(torch.zeros(sizes))
    made.tensor_model_parallel = split is not None
    return made


class Layer(nn.Module):
    """Of as many numbers as a layer of GPT has, in two parameters: what tensor parallel ranks share, and the rest."""

    def __init__(self, cfg, number):
        super().__init__()
        hidden, ffn = cfg["hidden_size"], cfg["ffn_hidden_size"]
        self.layer_number = number
        self.matrices = parameter([4 * hidden * hidden + 2 * hidden * ffn + 3 * hidden + ffn], 0)
        self.norms_and_biases = parameter([6 * hidden])


class LanguageModel(nn.Module):
    def __init__(self, cfg, padded_vocab):
        super().__init__()
        hidden = cfg["hidden_size"]
        self.word_embeddings = parameter([padded_vocab, hidden], 0)
        self.positions = parameter([cfg["max_position_embeddings"], hidden])
        self.layers = nn.ModuleList([Layer(cfg, index + 1) for index in range(cfg["num_layers"])])
        self.final_norm = parameter([2 * hidden])


class MegatronGPTModel(nn.Module):
    def __init__(self, cfg, trainer):
        super().__init__()
        parallel_state.TENSOR = cfg["tensor_model_parallel_size"]
        multiple = cfg["make_vocab_size_divisible_by"] * parallel_state.TENSOR
        self.tokenizer = Tokenizer(cfg["tokenizer"]["type"])
        self.padded_vocab_size = -(-self.tokenizer.vocab_size // multiple) * multiple
        self.model = Float16Module(self.model_provider_func(LanguageModel(cfg, self.padded_vocab_size)))

    def generate(self, inputs, length_params, sampling_params=None):
        """Forced lengths: every new token is an ordinary word."""
        tokens, lengths = inputs
        tokens = tokens.clone()
        tokens[:, int(lengths[0]) :] = 1
        return {"token_ids": tokens.tolist()}


class Float16Module(nn.Module):
    """Casts what is inside it when it is made, in NeMo 1.17 too: after ``model_provider_func`` has returned."""

    def __init__(self, module):
        super().__init__()
        self.module = module.bfloat16()


class Tokenizer:
    """The folder's words, without transformers."""

    def __init__(self, folder):
        with open(os.path.join(folder, "tokenizer.json")) as file:
            self.words = json.load(file)["model"]["vocab"]
        with open(os.path.join(folder, "tokenizer_config.json")) as file:
            self.eos_token_id = self.words[json.load(file)["eos_token"]]
        self.pad_token_id = None
        self.vocab_size = len(self.words)
        self.tokenizer = self

    def encode(self, text):
        return [self.words[word] for word in text.split()]
