"""Names and order of calls of trlx's PPOGPT and RefLMHeads."""

from types import SimpleNamespace

import torch
from nemo.collections.nlp.models.language_modeling.megatron_gpt_model import MegatronGPTModel, parameter
from torch import nn


class RefLMHeads(nn.Module):
    def __init__(self, language_model, hidden):
        super().__init__()
        self.language_model = language_model
        self.other_heads = nn.ParameterList([parameter([2 * hidden * (hidden + 2)], 0), parameter([1])])
        for each in self.language_model.parameters():
            if each.requires_grad:
                each._ref_data = each.data.clone().cpu()
                each._policy_data = each.data
        self.reference_model_offloaded = True

    def word_embeddings_weight(self):
        return self.language_model.word_embeddings

    def offload_reference_model(self):
        if self.reference_model_offloaded:
            return
        for each in self.language_model.parameters():
            if each.requires_grad:
                each.data = each._policy_data.to("cpu")
        self.reference_model_offloaded = True

    def offload_policy_model(self):
        if not self.reference_model_offloaded:
            return
        for each in self.language_model.parameters():
            if each.requires_grad:
                each._policy_data = each.data.to("cpu", non_blocking=True)
                each.data = each._ref_data.to("cpu", non_blocking=True)
        self.reference_model_offloaded = False

    def forward(self, run_policy_model=True, run_reference_model=False):
        if run_policy_model:
            self.offload_reference_model()
        if run_reference_model:
            self.offload_policy_model()


class PPOGPT(MegatronGPTModel):
    def __init__(self, ppo_config, cfg, trainer, num_layers_unfrozen):
        self.cfg_values = cfg
        self.num_layers_unfrozen = None if num_layers_unfrozen == -1 else num_layers_unfrozen
        super().__init__(cfg, trainer)
        self.cfg = SimpleNamespace(micro_batch_size=cfg["micro_batch_size"])

    def model_provider_func(self, language_model):
        if self.num_layers_unfrozen is not None:
            language_model.requires_grad_(False)
            for layer in language_model.layers:
                is_frozen = layer.layer_number < len(language_model.layers) - self.num_layers_unfrozen
                layer.requires_grad_(not is_frozen)
        return RefLMHeads(language_model, self.cfg_values["hidden_size"])

    def parameters(self):
        return (each for each in self.model.module.language_model.parameters() if each.requires_grad)

    def configure_optimizers(self):
        self._optimizer = SimpleNamespace(zero_grad=lambda: None, step=lambda: None)

    def _get_fwd_bwd_function(self):
        return lambda **how: self.model.module(**how)

    def infer_logprobs_and_values(self, input_ids, attention_mask):
        run = self._get_fwd_bwd_function()
        run(run_policy_model=True)
        run(run_policy_model=False, run_reference_model=True)
        zeros = torch.zeros(input_ids.shape[0], input_ids.shape[1] - 1)
        return {"logprobs": zeros, "ref_logprobs": zeros, "values": torch.zeros(input_ids.shape)}

    def offload_reference_model(self):
        self.model.module.offload_reference_model()

    def training_step(self, batch, batch_idx):
        self._optimizer.zero_grad()
        self._get_fwd_bwd_function()()
        return torch.tensor(0.25)

    def validation_step(self, rows, metric_fn):
        self.generate((torch.tensor(rows), torch.tensor([len(row) for row in rows])), {})
        metric_fn(samples=["text"] * len(rows))
