"""An image without traces of its build, on a scripted runtime: one id for equal content."""

import io
import json
import tarfile
from typing import Any

import pytest
from docker.errors import NotFound

from suite.images.build import settle

CREATED = 1_790_000_000


class Runtime:
    """Holds images as the classic builder leaves them: each step an image, of which some have a layer."""

    def __init__(self, build: str) -> None:
        self.build = build
        self.images_: dict[str, dict[str, Any]] = {}
        self.steps: list[str] = []
        self.loaded: list[dict[str, Any]] = []
        self.takes_layers_alone = True
        self._add("base", "", ["l0", "l1"])
        self._add("copy", "base", ["l0", "l1", "l2"], "COPY dir:1 in /")
        self._add("label", "copy", ["l0", "l1", "l2"], "LABEL a=b")
        self._add("final", "label", ["l0", "l1", "l2", "l3"], "RUN |1 STACK=cpu suite --help")

    def _add(self, name: str, parent: str, layers: list[str], step: str = "") -> None:
        self.steps.insert(0, step)
        self.images_[name] = {
            "Id": name,
            "Parent": parent,
            "Architecture": "amd64",
            "Os": "linux",
            "Created": self.build,
            "Container": self.build,
            "Config": {"Hostname": self.build, "Image": parent, "Env": ["A=1"], "User": "1000:1000", "Volumes": None},
            "RootFS": {"Layers": layers},
            "RepoTags": [],
        }

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self.images_:
            raise NotFound(f"no such image: {name}")
        return self.images_[name]

    def history(self, name: str) -> list[dict[str, Any]]:
        return [{"CreatedBy": step, "Created": self.build} for step in self.steps]

    def load_image(self, data: bytes) -> list[dict[str, str]]:
        if not self.takes_layers_alone:
            return [{"error": "open layer.tar: no such file"}]
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
            configuration = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        self.loaded.append(configuration)
        identity = "sha256:" + manifest["Config"].removesuffix(".json")
        layers = configuration["rootfs"]["diff_ids"]
        assert len(manifest["Layers"]) == len(layers)
        tagged = {"Id": identity, "RepoTags": manifest["RepoTags"], "RootFS": {"Layers": layers}}
        self.images_[identity] = {**self.images_["final"], **tagged}
        return [{"stream": "Loaded image"}]


def settled(runtime: Runtime, tag: str = "suite-engines:1", created: int = CREATED) -> str | None:
    return settle(runtime, "final", tag, created)  # type: ignore[arg-type]


def test_two_builds_of_equal_layers_have_one_id_and_a_tag_without_a_version_is_latest() -> None:
    first, second = Runtime("monday"), Runtime("tuesday")
    assert settled(first) == settled(second) is not None
    assert first.images_[str(settled(first))]["RepoTags"] == ["suite-engines:1"]
    assert second.images_[str(settled(second, "host:5000/mine"))]["RepoTags"][-1] == "host:5000/mine:latest"


def test_another_layer_another_setting_and_another_commit_are_another_image() -> None:
    usual, other_layer, other_user = Runtime("monday"), Runtime("monday"), Runtime("monday")
    other_layer.images_["final"]["RootFS"]["Layers"][-1] = "l9"
    other_user.images_["final"]["Config"]["User"] = "0"
    ids = [settled(usual), settled(other_layer), settled(other_user), settled(Runtime("monday"), created=CREATED + 1)]
    assert None not in ids and len(set(ids)) == 4


def test_the_configuration_says_how_it_runs_and_what_was_done_and_nothing_of_the_builder() -> None:
    runtime = Runtime("monday")
    settled(runtime)
    (configuration,) = runtime.loaded
    assert configuration["config"] == {"Env": ["A=1"], "User": "1000:1000"}
    assert configuration["rootfs"]["diff_ids"] == ["l0", "l1", "l2", "l3"]
    assert [(entry["created_by"], entry.get("empty_layer", False)) for entry in configuration["history"]] == [
        *(("base", False), ("base", False), ("COPY dir:1 in /", False), ("LABEL a=b", True)),
        ("RUN |1 STACK=cpu suite --help", False),
    ]
    assert "monday" not in json.dumps(configuration)
    moments = {entry["created"] for entry in (configuration, *configuration["history"])}
    assert moments == {"2026-09-21T14:13:20Z"}


@pytest.mark.parametrize("trouble", ["wants the layers", "tells no parents"])
def test_a_runtime_that_cannot_do_it_leaves_the_image_as_it_was(trouble: str) -> None:
    runtime = Runtime("monday")
    if trouble == "wants the layers":
        runtime.takes_layers_alone = False
    else:
        runtime.images_["final"]["Parent"] = ""
    assert settled(runtime) is None
    assert list(runtime.images_) == ["base", "copy", "label", "final"]
