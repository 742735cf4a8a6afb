"""compose.yaml as Compose itself reads it: what every service gets, with GPUs and without."""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
BENCHES = tuple(re.findall(r"^  (bench-\S+):$", TEXT, flags=re.MULTILINE))


@cache
def services(profiles: str | None, **variables: str) -> dict[str, Any]:
    """The services as Compose resolves them, which needs no daemon."""
    require_compose()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUITE_", "COMPOSE_"))}
    if profiles:
        clean["COMPOSE_PROFILES"] = profiles
    done = subprocess.run(
        ("docker", "compose", "--env-file", "/dev/null", "config", "--format", "json"),
        cwd=ROOT,
        env={**clean, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["services"]


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_service_reserves_all_gpus_and_runs_on_all_of_them(name: str) -> None:
    service = services(None)[name]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", -1, ["gpu"])
    assert service["environment"]["SUITE_RANKS"] == "all"
    assert service["ulimits"] == {"memlock": -1}


@pytest.mark.parametrize("name", [*BENCHES, "ladder"])
def test_the_cpu_profile_asks_for_no_gpu_and_shows_none(name: str) -> None:
    service = services("cpu")[name]
    assert "deploy" not in service
    assert service["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("profile", [None, "cpu"])
def test_every_service_ends_on_a_signal_and_can_do_no_more_than_become_the_owner_of_runs(profile: str | None) -> None:
    for service in services(profile).values():
        assert service["init"] and service["read_only"]
        assert (service["cap_drop"], service["cap_add"]) == (["ALL"], ["SETUID", "SETGID"])
        assert service["security_opt"] == ["no-new-privileges:true", "label=disable"]
        assert service["entrypoint"][:4] == ["python", "-m", "suite.launch.as_owner", "runs"]
        assert [volume["target"] for volume in service["volumes"]] == ["/work/runs"]
        assert "privileged" not in service and "docker.sock" not in json.dumps(service)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_service_measures_one_backend(name: str) -> None:
    entrypoint = services(None)[name]["entrypoint"]
    assert entrypoint[4:7] == ["suite", "run", "--backend"]
    expected = {"bench-nemo": "trlx-nemo"}.get(name, name.removeprefix("bench-"))
    assert entrypoint[7:] == [expected]


def test_what_a_service_builds_is_the_image_that_it_runs() -> None:
    for name, service in services(None).items():
        image = find_image(service["image"].removeprefix("suite-").rpartition(":")[0])
        given = service["build"].get("args", {})
        assert service["build"]["dockerfile"] == image.dockerfile, name
        assert given.get("STACK", "trlx" if image.name == "trlx" else None) == image.stack, name
        if image.interpreter:
            asked = {"IMAGE": image.name, "BASE_IMAGE": image.base.pinned, "INTERPRETER": image.interpreter}
            assert given == asked, name


def test_every_backend_has_a_service() -> None:
    measured = {service["entrypoint"][7] for name, service in services(None).items() if name.startswith("bench-")}
    assert {name for name in backends() if not name.startswith("example")} <= measured


def test_images_are_of_this_version_and_a_pin_reaches_both_the_image_and_the_record() -> None:
    for service in services(None).values():
        assert service["image"].endswith(f":{suite_version()}")
    pinned = services(None, SUITE_ENGINES_IMAGE="sha256:" + "a" * 64)["bench-megatron"]
    assert pinned["image"] == pinned["environment"]["SUITE_IMAGE"] == "sha256:" + "a" * 64


def test_nothing_that_compose_2_26_mistakes_is_used() -> None:
    plain = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"\bgpus:", plain), "accepted by 2.26 and ignored: the service starts without a GPU"
    assert ":?" not in plain, "one variable that is not set would block every command"
