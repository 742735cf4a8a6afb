"""compose.yaml as Compose itself reads it: what every service gets, with GPUs and without."""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from suite.backends.registry import backends
from suite.spec.images import find_image
from suite.spec.version import suite_version
from tests.needs import require_compose

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
BENCHES = tuple(re.findall(r"^  (bench-\S+):$", TEXT, flags=re.MULTILINE))


@cache
def services(device: str | None, *files: str, **variables: str) -> dict[str, Any]:
    """The services as Compose resolves them, which needs no daemon."""
    require_compose()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUITE_", "COMPOSE_"))}
    if device:
        clean["SUITE_DEVICE"] = device
    named = [word for file in files for word in ("--file", file)]
    done = subprocess.run(
        ("docker", "compose", "--env-file", "/dev/null", *named, "config", "--format", "json"),
        cwd=ROOT,
        env={**clean, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["services"]


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_service_reserves_all_gpus_and_demands_that_they_are_there(name: str) -> None:
    service = services(None)[name]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", -1, ["gpu"])
    assert service["environment"]["SUITE_RANKS"] == "all"
    assert service["environment"]["SUITE_DEVICE"] == "cuda", "where the container sees none, no CPU takes their place"
    assert service["ulimits"] == {"memlock": -1}


@pytest.mark.parametrize("name", [*BENCHES, "ladder"])
def test_on_the_cpu_no_gpu_is_asked_for_and_none_is_shown(name: str) -> None:
    service = services("cpu")[name]
    assert "deploy" not in service and service["environment"]["SUITE_DEVICE"] == "cpu"
    assert service["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("device", [None, "cpu"])
def test_every_service_ends_on_a_signal_and_can_do_no_more_than_become_the_owner_of_runs(device: str | None) -> None:
    for service in services(device).values():
        assert service["init"] and service["read_only"]
        assert (service["cap_drop"], service["cap_add"]) == (["ALL"], ["SETUID", "SETGID"])
        assert service["security_opt"] == ["no-new-privileges:true", "label=disable"]
        assert service["entrypoint"][:4] == ["python", "-m", "suite.launch.as_owner", "runs"]
        assert [volume["target"] for volume in service["volumes"]] == ["/work/runs"]
        assert "privileged" not in service and "docker.sock" not in json.dumps(service)


def test_a_bench_service_measures_one_backend_and_every_backend_has_one() -> None:
    measured = {name: services(None)[name]["entrypoint"] for name in BENCHES}
    assert {tuple(entrypoint[4:7]) for entrypoint in measured.values()} == {("suite", "run", "--backend")}
    other_names = {"bench-nemo": ["trlx-nemo"]}
    for name, entrypoint in measured.items():
        assert entrypoint[7:] == other_names.get(name, [name.removeprefix("bench-")])
    named = {entrypoint[7] for entrypoint in measured.values()}
    assert {name for name in backends() if not name.startswith("example")} <= named


def test_profiles_of_other_projects_change_nothing() -> None:
    plain = services(None)
    assert services(None, COMPOSE_PROFILES="foo") == plain and services(None, COMPOSE_PROFILES="cpu") == plain
    assert services("cpu")["ladder"] == plain["ladder"], "the CPU ladder is one whatever else is measured"


def test_what_a_service_builds_when_asked_is_the_image_that_it_runs() -> None:
    for name, service in services(None, "compose.yaml", "compose/build.yaml").items():
        image = find_image(service["image"].removeprefix("suite-").rpartition(":")[0])
        given = service["build"].get("args", {})
        assert service["build"]["dockerfile"] == image.dockerfile, name
        assert given.get("STACK", "trlx" if image.name == "trlx" else None) == image.stack, name
        if image.interpreter:
            asked = {"IMAGE": image.name, "BASE_IMAGE": image.base.pinned, "INTERPRETER": image.interpreter}
            assert given == asked, name
        else:
            (usual,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", (ROOT / image.dockerfile).read_text(), flags=re.MULTILINE)
            assert given.get("BASE_IMAGE", usual) == image.base.pinned, name


def test_images_are_of_this_version_made_by_the_user_and_a_pin_reaches_both_the_image_and_the_record() -> None:
    for service in services(None).values():
        assert service["image"].endswith(f":{suite_version()}")
        assert service["pull_policy"] == "never" and "build" not in service
    pinned = services(None, SUITE_ENGINES_IMAGE="sha256:" + "a" * 64)["bench-megatron"]
    assert pinned["image"] == pinned["environment"]["SUITE_IMAGE"] == "sha256:" + "a" * 64


def test_nothing_that_compose_2_26_mistakes_is_used() -> None:
    plain = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"\bgpus:", plain), "accepted by 2.26 and ignored: the service starts without a GPU"
    assert ":?" not in plain, "one variable that is not set would block every command"
