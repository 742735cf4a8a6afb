"""The data files load whole, presets and images among them; names are found or refused with the nearest ones."""

import shutil
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from suite.backends.registry import backends
from suite.spec import catalogue
from suite.spec.base import UsageError
from suite.spec.catalogue import data_root, devices, find_ladder, find_preset, find_size, find_workload, ladders, sizes
from suite.spec.images import BaseImage, find_image, images, images_of, stack_labels, stack_versions_of
from suite.theory.parameters import parameter_count


def test_every_entry_of_every_data_file_loads_with_a_source():
    assert len(sizes()) == len(yaml.safe_load((data_root() / "sizes.yaml").read_text()))
    for entry in (*sizes().values(), *catalogue.workloads().values(), *devices().values()):
        assert entry.source, entry.name
    assert [workload.name for workload in catalogue.workloads().values() if not workload.note] == []


def test_the_ladders_name_known_sizes_rise_and_every_size_is_on_one():
    assert {size for members in ladders().values() for size in members} == set(sizes())
    for ladder, members in ladders().items():
        assert tuple(sizes(ladder)) == members == find_ladder(ladder.upper())
        held = [parameter_count(shape).total for shape in sizes(ladder).values()]
        assert held == sorted(held), ladder


@pytest.mark.parametrize(
    ("find", "name", "nearest"),
    [
        (find_size, "6.6B", "6.7B"),
        (find_workload, "smoky", "smoke"),
        (find_ladder, "gpu", "gpu-one"),
        (find_preset, "laddr", "ladder"),
        (find_image, "nemoo", "nemo"),
        (sizes, "trxl", "trlx"),
    ],
)
def test_an_unknown_name_is_refused_in_one_line_with_the_nearest(find, name, nearest):
    with pytest.raises(UsageError) as caught:
        find(name)
    message = str(caught.value)
    assert repr(name) in message and nearest in message and "\n" not in message


def test_workloads_fit_the_positions_of_their_ladders():
    fitting = [("cpu", "cpu"), ("cpu", "cpu-llama"), ("smoke", "cpu"), ("gpu-one", "gpu-one"), ("trlx-ds-chat", "true")]
    for workload, ladder in fitting:
        for shape in sizes(ladder).values():
            assert find_workload(workload).sequence_tokens <= shape.positions


@pytest.mark.parametrize("place", ["suite/manifests", "manifests"])
def test_the_data_is_found_inside_the_package_and_beside_it(tmp_path, monkeypatch, place):
    (tmp_path / "suite").mkdir()
    shutil.copytree(data_root(), tmp_path / place)
    monkeypatch.setattr(catalogue, "_PACKAGE", tmp_path / "suite")
    assert data_root.__wrapped__() == tmp_path / place
    monkeypatch.setattr(catalogue, "_PACKAGE", tmp_path / "none" / "suite")
    with pytest.raises(UsageError, match="install suite again"):
        data_root.__wrapped__()


UNKNOWN = (
    "", "NVIDIA", "H100", "NVIDIA H100", "NVIDIA H100 80GB HBM2e", "NVIDIA A100", "Tesla V100", "Intel Xeon",
    "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H20Z",
    "NVIDIA GH200 480GB",
)  # fmt: skip


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H200", "H200-141GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("nvidia  h200", "H200-141GB"),
        *((driver, None) for driver in UNKNOWN),
    ],
)
def test_a_device_is_found_by_the_name_that_its_driver_gives_and_is_never_its_sibling(driver, name):
    found = catalogue.find_device(driver)
    assert name == (None if found is None else found.name)


def test_no_two_devices_share_a_name():
    names = [catalogue._plain(name) for device in devices().values() for name in (device.name, *device.aliases)]
    assert len(names) == len(set(names))


def test_device_figures_are_in_bytes_and_flops_and_in_the_order_hardware_has_them():
    for device in devices().values():
        assert 10e9 < device.memory_bytes < 320e9, device.name
        assert 5e11 < device.memory_bytes_per_second < 1e13, device.name
        assert 1e13 < device.peak_flops["fp32"] < 2e14, device.name
        rates = [device.peak_flops[name] for name in ("fp32", "tf32", "bf16", "fp8") if name in device.peak_flops]
        assert rates == sorted(rates), device.name
        assert device.peak_flops.get("bf16", device.peak_flops["fp16"]) == device.peak_flops["fp16"]


def test_peaks_are_dense_and_a_die_is_half_of_its_module():
    peaks = {"A100-SXM-80GB": 312e12, "H100-SXM-80GB": 989.5e12, "H20-96GB": 148e12, "B200": 2250e12}
    assert {name: devices()[name].peak_flops["bf16"] for name in peaks} == peaks
    assert "bf16" not in devices()["V100-SXM2-32GB"].peak_flops
    die, module = devices()["MI250X"], devices()["MI250X-module"]
    assert 2 * die.memory_bytes == module.memory_bytes
    assert 2 * die.memory_bytes_per_second == module.memory_bytes_per_second
    assert {name: 2 * rate for name, rate in die.peak_flops.items()} == module.peak_flops


@pytest.mark.parametrize("name", catalogue.presets())
def test_every_point_names_a_size_and_work_that_fits_it(name: str) -> None:
    preset = find_preset(name)
    for point in preset.points:
        size, work = find_size(point.size), preset.work_of(point)
        assert work.sequence_tokens <= size.positions
        assert (work.trainable_layers or 0) <= size.layers
        assert point.ranks % point.layout.get("tensor", 1) == 0
    assert len({point.size for point in preset.points}) == len(preset.points)


def test_the_scripts_preset_has_its_batches_tensor_degrees_and_nodes() -> None:
    preset, reference = find_preset("trlx-ds-chat"), catalogue.data_file("trlx_reference.yaml")
    assert preset.track == "vendor-default"
    assert tuple(point.size for point in preset.points) == find_ladder("trlx")
    for point in preset.points:
        row, work = reference["sizes"][point.size], preset.work_of(point)
        assert (point.nodes, point.layout["tensor"]) == (row["nodes"], row["tensor"])
        assert point.ranks == row["tensor"] * row["data"]
        assert work.global_rollouts(point.ranks) == row["rollouts"] * row["data"]
        assert work.global_rollouts(point.ranks) == row["batch"] * row["data"] * work.optimizer_steps
        assert work.micro_batch == row["micro_batch"]
    assert preset.work_of(preset.points[-1]).trainable_layers == 33, "32 asked for, 33 trained"


def test_the_ladder_has_true_shapes_and_one_workload_for_all() -> None:
    preset = find_preset("ladder")
    assert preset.track == "equal-config"
    assert tuple(point.size for point in preset.points) == find_ladder("true")
    assert len({preset.work_of(point).model_dump_json() for point in preset.points}) == 1


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("image", images().values(), ids=lambda image: image.name)
def test_what_an_image_names_is_there_and_its_labels_answer_for_what_its_backends_check(image) -> None:
    assert (ROOT / image.dockerfile).is_file()
    assert image.lock is None or (ROOT / "requirements/images" / image.lock).is_file()
    assert image.cpu_stack is None or (ROOT / "requirements" / image.cpu_lock).is_file()
    assert (image.lock is None) == (image.interpreter is not None)
    assert set(image.backends) <= set(backends())
    assert set(image.sources) <= set(image.packages)
    checked = {package for name in image.backends for package in backends()[name].packages}
    # the base decides which build of torch it brings; the launcher asks inside where a label is missing
    from_base = {"torch"} if image.name == "nemo" else checked if image.interpreter else set()
    assert checked - from_base <= set(image.packages)


def test_every_backend_has_an_image_and_the_usual_one_is_not_upstreams_own() -> None:
    assert [name for name in backends() if not images_of(name)] == []
    assert [image.name for image in images_of("trlx-deepspeed")] == ["trlx", "trlx-upstream"]
    assert images_of("nothing") == ()


def test_a_tag_names_image_and_version_and_labels_give_back_the_versions_that_went_in() -> None:
    assert find_image("nemo").tag("0.1.0") == "suite-nemo:0.1.0"
    assert find_image("nemo").tag("0.1.0+source") == "suite-nemo:0.1.0-source", "one that engines take"
    versions = {"torch": "2.13.0+cpu", "nemo_toolkit": "1.17.0"}
    assert stack_versions_of({**stack_labels(versions), "maintainer": "x"}) == versions


def test_a_base_is_named_by_its_tag_alone_or_by_a_digest_that_is_one() -> None:
    assert BaseImage(reference="a:1", digest=None).pinned == "a:1"
    assert BaseImage(reference="a:1", digest="sha256:" + "0" * 64).pinned == "a:1@sha256:" + "0" * 64
    for digest in ("latest", "sha256:12", "sha512:" + "0" * 64, "sha256:" + "G" * 64):
        with pytest.raises(ValidationError):
            BaseImage(reference="a:1", digest=digest)
