"""Names and order of calls of trlx's NeMoPPOTrainer."""

import json
from types import SimpleNamespace

import torch
from apex.transformer import parallel_state
from pytorch_lightning import Trainer

from trlx.models.modeling_nemo_ppo import PPOGPT
from trlx.trainer import BaseRLTrainer, register_trainer
from trlx.utils import get_git_tag


@register_trainer("NeMoPPOTrainer")
class NeMoPPOTrainer(BaseRLTrainer):
    def __init__(self, config, metric_fn=None, megatron_cfg=None, pretrained_model=None, **kwargs):
        super().__init__(config, metric_fn=metric_fn, **kwargs)
        self.metric_fn = lambda **texts: {"reward": self.reward_fn(**texts)}
        self.ppo_config = config.method
        with open(megatron_cfg) as file:
            cfg = json.load(file)
        model = cfg["model"]
        ranks = cfg["trainer"]["num_nodes"] * cfg["trainer"]["devices"]
        replicas = ranks // (model["tensor_model_parallel_size"] * model["pipeline_model_parallel_size"])
        model["global_batch_size"] = config.train.batch_size * replicas
        model["micro_batch_size"] = config.train.minibatch_size
        self.trainer = Trainer(**cfg["trainer"])
        self.model = PPOGPT(
            ppo_config=self.ppo_config,
            cfg=model,
            trainer=self.trainer,
            num_layers_unfrozen=config.model.num_layers_unfrozen,
        )
        self.batch_size = model["global_batch_size"]
        self.tokenizer = self.model.tokenizer.tokenizer
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token_id = self.tokenizer.eos_token_id

    def add_prompt_pipeline(self, pipeline):
        self.prompt_pipeline = pipeline

    def make_experience(self, prompt_iterator, num_rollouts=1024, dp_world=1):
        rows = [next(prompt_iterator) for _ in range(num_rollouts)]
        lengths = torch.tensor([len(row) for row in rows])
        new = self.ppo_config.gen_kwargs["max_new_tokens"]
        padded = torch.nn.functional.pad(torch.tensor(rows), (0, new), value=self.tokenizer.pad_token_id)
        samples = self.model.generate((padded, lengths), {"max_length": new, "min_length": new})
        scores = torch.tensor(self.reward_fn(samples=["text"] * num_rollouts, prompts=[], outputs=[]))
        tokens = torch.tensor(samples["token_ids"])
        mask = tokens.ne(self.tokenizer.pad_token_id)
        self.model.infer_logprobs_and_values(tokens, mask)
        elements = []
        for index, row in enumerate(tokens):
            length, kept = lengths[index], mask[index]
            response = torch.nn.functional.pad(row[length:], (0, 1), value=self.tokenizer.pad_token_id)
            end = int(kept[length:].sum())
            elements.append(SimpleNamespace(query_tensor=row[:length], response_tensor=response[: end + 1]))
        return elements, {"train/unnorm_scores": scores.numpy(), "train/kl": torch.zeros(num_rollouts).numpy()}

    def learn(self):
        get_git_tag()
        replicas, replica = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
        prompts = iter(self.prompt_pipeline.rows[replica::replicas])
        self.model.configure_optimizers()
        self.model._optimizer.zero_grad()
        batch = self.batch_size // replicas
        for _ in range(self.config.train.epochs):
            rollouts, _ = self.make_experience(prompts, num_rollouts=self.ppo_config.num_rollouts, dp_world=replicas)
            self.model.offload_reference_model()
            self.model.train()
            for first in range(0, len(rollouts) - batch + 1, batch):
                some = rollouts[first : first + batch]
                tensors = [torch.stack([getattr(each, name) for each in some]) for name in _TENSORS]
                for _ in range(self.ppo_config.ppo_epochs):
                    self.model.training_step(tensors, 0)
                    self.model._optimizer.step()
        self.model.validation_step(self.eval_pipeline.rows, self.metric_fn)


_TENSORS = ("query_tensor", "response_tensor")
