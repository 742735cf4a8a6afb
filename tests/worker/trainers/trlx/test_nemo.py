"""trlx's NeMo trainer under the suite's clock, on stand-ins with real names and order of calls; its configuration."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from suite.bundle.event_fields import FIELDS, wrong_field
from suite.launch.local import free_port
from suite.planner.plan import SWAP_HOST_BYTES
from suite.spec.catalogue import PresetPoint, data_file, find_preset, find_size
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count
from suite.worker.asked import expected_counts
from suite.worker.rank import ConfigError
from suite.worker.registry import backend_class
from suite.worker.trainers.trlx.nemo import trainer as nemo
from suite.worker.trainers.trlx.nemo.config import megatron_config, nemo_trlx_config
from tests.worker.tiny import Finished, rank_environment, start_rank, tiny_manifest, wait_for, write_manifest
from tests.worker.trainers.journal import Journal
from tests.worker.trainers.runs import ALONE, CUDA, as_read, trainer_manifest

STUB = Path(__file__).parent / "nemo_stub"
# Megatron pads the sequence with an end token to a multiple of eight: 24 positions here
SHAPE = {"positions": 32, "hidden": 16, "ffn": 48, "heads": 2, "kv_heads": 2, "vocab": 100, "layers": 3}


def nemo_manifest(ranks: int = 1, tensor: int = 1, **workload: Any) -> Manifest:
    parallel = {"tensor": tensor, "data": ranks // tensor, "sequence_parallel": tensor > 1}
    layout = Layout(devices_per_node=ranks, distributed_optimizer=True, **parallel)
    plain = tiny_manifest(shape=SHAPE, workload=workload, stack={}, measure={"iterations": 2})
    return trainer_manifest("trlx-nemo", plain.size, plain.workload, layout, plain.measure)


def run_ranks(folder: Path, manifest: Manifest, **variables: str) -> Finished:
    path, ranks, port = write_manifest(manifest, folder), manifest.layout.ranks, free_port()
    environments = [{**variables, **rank_environment(rank, ranks, port)} for rank in range(ranks)]
    return wait_for([start_rank(path, str(STUB / "rank.py"), **own) for own in environments], folder)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("tensor", "workload"),
    [(1, {"optimizer_steps": 2, "ppo_epochs": 2}), (2, {"trainable_layers": 2})],
    ids=["data parallel, two steps, two epochs", "tensor parallel, two of three blocks"],
)
def test_two_ranks_time_every_phase_and_do_the_manifests_work(tmp_path, tensor, workload):
    manifest = nemo_manifest(2, tensor, **workload)
    run = run_ranks(tmp_path, manifest, SLURM_NTASKS="1", SLURM_JOB_NAME="one-task-a-node")
    assert run.exit_codes == [0, 0], run.errors
    body, count, trained = as_read(manifest), parameter_count(manifest.size), manifest.workload.trainable_layers
    trainable = count.total if trained is None else trained * count.per_layer
    counts = expected_counts(body["workload"], body["work"])
    counts.update(total_parameters=count.with_value_head, trainable_parameters=trainable)
    for rank in range(2):
        events = run.events(rank)
        assert not [problem for event in events if (problem := wrong_field(event, FIELDS["rank"][event["kind"]]))]
        assert [event["counts"] for event in run.events(rank, "iteration")] == [counts] * 3
        phases = [(event["iteration"], event["phase"]) for event in run.events(rank, "phase")]
        assert phases == [(i, phase) for i in range(3) for phase in ORDER]
    details = run.events(kind="iteration")[0]["details"]
    assert set(details) == {"reference/swap", "train/forward-backward", "train/optimizer"}
    facts = run.events(kind="environment")[0]["facts"]
    assert "Lightning is kept from Slurm's variables, which count tasks and not ranks" in facts["notes"]
    assert any("value head runs but is never optimised" in line for line in facts["work_differences"])
    assert facts["configuration"]["model"]["tensor_model_parallel_size"] == tensor


ORDER = ("generate", "reward", "score", "reference", "train")


@pytest.fixture
def build(group_of_one: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the suite's trainer on the stand-ins, in this process and alone."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(STUB))
    monkeypatch.setattr("suite.worker.trainers.trlx.source.use_trlx", lambda: str(STUB))
    for name in ("SLURM_NTASKS", "SLURM_JOB_NAME", "TORCHELASTIC_RUN_ID", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in rank_environment(0, 1, 0).items():
        monkeypatch.setenv(name, value)

    def make(**workload: Any) -> Any:
        return nemo.TrlxNemoTrainer(as_read(nemo_manifest(**workload)), ALONE)

    yield make
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("trlx", "apex", "nemo", "pytorch_lightning"):
            del sys.modules[name]


def test_phases_lie_where_the_trainer_does_their_work(build: Any) -> None:
    journal = Journal()
    build(optimizer_steps=2).run(journal, 3)
    swap = ["open reference", "part reference/swap", "part over reference/swap"]
    parts = [f"part {over}train/{part}" for part in ("forward-backward", "optimizer") for over in ("", "over ")]
    one = [
        *("open generate", "close", "open reward", "close", "open score", "close"),
        *(*swap, "close more", *swap, "close"),
        *("open train", *parts, *parts, "close", "stop"),
    ]
    assert journal.lines == [line for index in range(3) for line in (f"begin {index}", *one)]
    told = [(each["stats"]["reward"], each["stats"]["loss"]) for each in journal.finished]
    assert told == [(0.5, 0.25)] * 3
    assert journal.calls >= 3 * len(("score", "reference", "train", "train")), "forward calls show that it goes on"


def test_the_reference_is_fp32_because_it_is_copied_before_nemo_casts(build: Any) -> None:
    """What docs/trainers/trlx.md says of host memory and of the swap, held on stand-ins that cast when NeMo casts."""
    trainer = build(trainable_layers=2)
    heads = trainer._trainer.model.model.module
    trained = [each for each in heads.language_model.parameters() if each.requires_grad]
    frozen = [each for each in heads.language_model.parameters() if not each.requires_grad]
    assert trained and frozen
    swap, swapped = heads.offload_policy_model, []

    def swap_and_look() -> None:
        swap()
        swapped.append({each.dtype for each in trained})

    heads.offload_policy_model = swap_and_look
    trainer.run(Journal(), 3)
    assert swapped == [{torch.float32}] * 3, "once in each iteration, in its reference pass"
    assert {each._ref_data.dtype for each in trained} == {torch.float32}
    assert {each._policy_data.dtype for each in trained} == {torch.bfloat16}
    assert {each.dtype for each in (*trained, *frozen)} == {torch.bfloat16}, "the policy is back, the rest never left"
    host_bytes = sum(each._ref_data.nbytes + each._policy_data.nbytes for each in trained)
    assert host_bytes == SWAP_HOST_BYTES * sum(each.numel() for each in trained)
    assert any("reference is in fp32" in line for line in trainer.work_differences)


def test_without_git_trlxs_question_for_the_branch_is_answered(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    trainer = build()
    assert [note for note in trainer.notes if note.startswith("shim ")] == [
        "shim no-git: trlx's get_git_tag asks git for the name of the current branch, and there is no git: replaced"
    ]
    monkeypatch.setenv("PATH", "")
    trainer.run(Journal(), 3)


def test_a_response_that_ended_early_fails_the_run(build: Any) -> None:
    trainer = build()
    generate = trainer._trainer.model.generate

    def shorter(*arguments: Any) -> Any:
        samples = generate(*arguments)
        samples["token_ids"][1][-1] = trainer._trainer.tokenizer.pad_token_id
        return samples

    trainer._trainer.model.generate = shorter
    with pytest.raises(ConfigError, match="different lengths"):
        trainer.run(Journal(), 3)


@pytest.mark.parametrize(("steps", "words"), [(3, "made 2 optimizer steps in an iteration of 3"), (1, "more than 1")])
def test_another_number_of_optimizer_steps_fails_the_run(build: Any, steps: int, words: str) -> None:
    trainer = build(optimizer_steps=2)
    trainer._trainer.steps = steps
    if steps == 1:
        trainer._state.tally.counts = lambda *parameters: {}
    with pytest.raises(ConfigError, match=words):
        trainer.run(Journal(), 3)


def test_another_layout_than_the_manifests_is_told_with_both_numbers(build: Any) -> None:
    trainer = build()
    trainer._trainer.batch_size = 64
    trainer._trainer.model.padded_vocab_size = 100
    with pytest.raises(ConfigError, match=r"global batch 4 wanted, 64 found; padded vocabulary 128 wanted, 100 found"):
        trainer._check_setup()


def test_an_import_error_of_nemo_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch, build: Any) -> None:
    monkeypatch.setattr("suite.worker.trainers.trlx.nemo.use_trlx", lambda: "")
    monkeypatch.setitem(sys.modules, "apex.transformer", None)
    with pytest.raises(ImportError, match=r"apex\.transformer"):
        backend_class("trlx-nemo", "cuda")


def test_a_sequence_that_trlx_pads_has_its_end_token_in_the_loss() -> None:
    manifest = as_read(nemo_manifest(prompt_tokens=8, new_tokens=6))
    assert any(line.endswith("takes in the end token behind its last") for line in nemo.work_differences(manifest))


@pytest.mark.parametrize("slurm", [False, True])
def test_lightning_finds_torchruns_ranks_with_and_without_slurm(monkeypatch: pytest.MonkeyPatch, slurm: bool) -> None:
    environment = {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "ladder"} if slurm else {}
    monkeypatch.setattr("os.environ", environment)
    notes = list(nemo.lead_lightning(SimpleNamespace(rank=13, local_world_size=8)))  # type: ignore[arg-type]
    assert environment["TORCHELASTIC_RUN_ID"] and environment["GROUP_RANK"] == "1"
    assert (environment.get("SLURM_JOB_NAME"), len(notes)) == (("bash", 2) if slurm else (None, 1))


def test_the_tokenizers_words_are_its_ids_and_come_back_as_text(tmp_path: Path) -> None:
    nemo.write_tokenizer(str(tmp_path), 100)
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path), use_fast=False)
    assert len(tokenizer) == 100 and tokenizer.eos_token_id == tokenizer.pad_token_id == 99
    assert tokenizer("7 0 98", add_special_tokens=False)["input_ids"] == [7, 0, 98]
    # NeMo asks in this way (nemo/collections/common/tokenizers/huggingface/auto_tokenizer.py, ids_to_text)
    assert tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens([7, 0, 98])) == "7 0 98"


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


def preset_manifest(point: PresetPoint) -> Manifest:
    asked = LayoutRequest(nodes=point.nodes, devices_per_node=point.devices_per_node)
    return trainer_manifest("trlx-nemo", find_size(point.size), PRESET.work_of(point), asked, CUDA)


@pytest.mark.parametrize("size", PUBLISHED)
def test_every_size_of_the_script_is_configured_as_the_script_does_to_the_parameter(size: str) -> None:
    row, shipped = data_file("trlx_reference.yaml")["sizes"][size], data_file("trlx_reference.yaml")["common"]
    manifest = preset_manifest(POINTS[size])
    megatron = megatron_config(as_read(manifest), "/folder", "/folder/logs")
    trlx = nemo_trlx_config(as_read(manifest), 10, "/folder/megatron.yaml", "/folder")
    model, train, method = megatron["model"], trlx["train"], trlx["method"]
    assert (megatron["trainer"]["num_nodes"], megatron["trainer"]["devices"]) == (row["nodes"], 8)
    assert (model["tensor_model_parallel_size"], model["pipeline_model_parallel_size"]) == (row["tensor"], 1)
    assert manifest.layout.data == row["data"]
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
    manifest = preset_manifest(POINTS["66B-trlx"])
    body = as_read(manifest)
    meant = json.loads(json.dumps(megatron_config(body, str(tmp_path), str(tmp_path / "logs"))))
    (tmp_path / "megatron.yaml").write_text(json.dumps(meant))
    loaded = OmegaConf.load(tmp_path / "megatron.yaml")
    assert OmegaConf.to_container(loaded, resolve=True) == meant
    # trlx assigns its own configuration and new batches to what it loaded (nemo_ppo_trainer.py, lines 67-80)
    loaded.trlx = nemo_trlx_config(body, 10, str(tmp_path / "megatron.yaml"), str(tmp_path))
    loaded.model.global_batch_size = 1
    assert loaded.trlx.method.chunk_size == manifest.work.replica_rollouts
