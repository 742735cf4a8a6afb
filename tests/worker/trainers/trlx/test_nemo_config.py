"""The Megatron configuration: of every size of trlx's script to the parameter, and of any layout."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from suite.spec.catalogue import PresetPoint, data_file, find_preset, find_size
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count
from suite.worker.trainers.trlx.nemo.config import megatron_config, nemo_trlx_config
from tests.worker.trainers.runs import CUDA, as_read, trainer_manifest

PRESET = find_preset("trlx-ds-chat")
POINTS = {point.size: point for point in PRESET.points}
# name in the script: padded vocabulary, parameters, trained ones (billions), worked out from its shapes by hand
PUBLISHED = {
    "1.3B-trlx": (50304, 0.812, 0.812),
    "6.7B-trlx": (50304, 6.659, 6.659),
    "13B-trlx": (50432, 12.854, 12.854),
    "20B-trlx": (50688, 20.259, 20.259),
    "33B-trlx": (51200, 29.981, 29.981),
    "66B-trlx": (51200, 65.728, 33.638),
}


def nemo_manifest(point: PresetPoint, **request: Any) -> Manifest:
    asked = LayoutRequest(nodes=point.nodes, devices_per_node=point.devices_per_node, **request)
    return trainer_manifest("trlx-nemo", find_size(point.size), PRESET.work_of(point), asked, CUDA)


def configured(manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Megatron's configuration, and trlx's."""
    body = as_read(manifest)
    megatron = megatron_config(body, "/folder", "/folder/logs")
    return megatron, nemo_trlx_config(body, 10, "/folder/megatron.yaml", "/folder", "SuiteNeMoPPOTrainer")


@pytest.mark.parametrize("size", PUBLISHED)
def test_every_size_of_the_script_is_configured_as_the_script_does_to_the_parameter(size: str) -> None:
    row, shipped = data_file("trlx_reference.yaml")["sizes"][size], data_file("trlx_reference.yaml")["common"]
    manifest = nemo_manifest(POINTS[size])
    megatron, trlx = configured(manifest)
    model, train, method = megatron["model"], trlx["train"], trlx["method"]
    assert (megatron["trainer"]["num_nodes"], megatron["trainer"]["devices"]) == (row["nodes"], 8)
    assert (model["tensor_model_parallel_size"], model["pipeline_model_parallel_size"]) == (row["tensor"], 1)
    assert model["global_batch_size"] == row["batch"] * row["data"]
    assert (train["batch_size"], train["minibatch_size"]) == (row["batch"], row["micro_batch"])
    assert (method["num_rollouts"], method["chunk_size"], method["ppo_epochs"]) == (row["rollouts"], row["chunk"], 1)
    assert (train["seq_length"], model["encoder_seq_length"]) == (512, shipped["encoder_positions"])
    assert method["gen_kwargs"] == {"temperature": 1.0, "top_k": 0, "max_new_tokens": 256, "min_new_tokens": 256}
    assert trlx["model"]["num_layers_unfrozen"] == (row["unfrozen_layers"] or -1)
    assert trlx["optimizer"]["name"] == shipped["optimizer"]
    assert trlx["optimizer"]["kwargs"]["lr"] == shipped["learning_rate"]
    assert trlx["scheduler"]["kwargs"]["min_lr"] == pytest.approx(6.0e-5)
    assert (megatron["trainer"]["precision"], model["megatron_amp_O2"]) == ("bf16", True)
    # and the configured model has the parameters of the script's
    named = {"layers": "num_layers", "hidden": "hidden_size", "ffn": "ffn_hidden_size", "heads": "num_attention_heads"}
    named |= {"kv_heads": "num_attention_heads", "positions": "max_position_embeddings"}
    shape = manifest.size.model_copy(update={ours: model[theirs] for ours, theirs in named.items()})
    multiple = model["make_vocab_size_divisible_by"] * model["tensor_model_parallel_size"]
    padded = -(-shape.vocab // multiple) * multiple
    count = parameter_count(shape, padded)
    trained = manifest.workload.trainable_layers
    trained_parameters = count.total if trained is None else trained * count.per_layer
    assert (padded, round(count.total / 1e9, 3), round(trained_parameters / 1e9, 3)) == PUBLISHED[size]


def test_omegaconf_reads_the_file_as_it_was_meant(tmp_path: Path) -> None:
    manifest = nemo_manifest(POINTS["66B-trlx"])
    body = as_read(manifest)
    meant = json.loads(json.dumps(megatron_config(body, str(tmp_path), str(tmp_path / "logs"))))
    (tmp_path / "megatron.yaml").write_text(json.dumps(meant))
    loaded = OmegaConf.load(tmp_path / "megatron.yaml")
    assert OmegaConf.to_container(loaded, resolve=True) == meant
    # trlx assigns its own configuration and new batches to what it loaded (nemo_ppo_trainer.py, lines 67-80)
    loaded.trlx = nemo_trlx_config(body, 10, str(tmp_path / "megatron.yaml"), str(tmp_path), "SuiteNeMoPPOTrainer")
    loaded.model.global_batch_size = 1
    assert loaded.trlx.method.chunk_size == manifest.work.replica_rollouts
