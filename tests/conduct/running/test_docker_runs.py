"""`suite run --launcher docker` as a user runs it: a ladder in containers, its troubles, its end by every signal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from tests.conduct.running.test_in_turns import starts_of
from tests.container_runtime import Runtime
from tests.containers import IMAGE, scripted_suite, suite_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.daemon

#: what the scripted worker says, it says to the worker's contract: the check of devices comes with the real one
RUN = ("--device", "cpu", "--size", "1M", "--workload", "cpu", "--repeats", "1", "--warmup", "1", "--iterations", "2")
ROUNDS, TURNS = ("--turns", "rounds"), ("--turns", "iterations")
GPUS = ("--device", "auto", "--gpu-ids", "0,99")


def run(
    runtime: Runtime, runs: Path, *arguments: str, turns: tuple[str, ...] = ROUNDS, **script: object
) -> subprocess.CompletedProcess[str]:
    command = scripted_suite("run", *RUN, *turns, "--runs", str(runs), *arguments, script=script)
    return subprocess.run(command, env=suite_environment(runtime.host), capture_output=True, text=True, timeout=110)


def start(runtime: Runtime, runs: Path, *arguments: str, **script: object) -> subprocess.Popen[str]:
    command = scripted_suite("run", *RUN, *ROUNDS, "--runs", str(runs), *arguments, script=script)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=suite_environment(runtime.host), start_new_session=True, **pipes)


def containers(runtime: Runtime) -> list[str]:
    """Names of all containers of runs; other sessions on this runtime have other runs."""
    return runtime.docker("ps", "--all", "--filter", "label=suite.run", "--format", "{{.Names}}").stdout.split()


def wait_for_event(runs: Path, kind: str) -> None:
    wait_until(lambda: any(kind in path.read_text() for path in runs.glob("*/events/rank-0.jsonl")))


def test_a_ladder_in_containers_says_where_it_ran(runtime, scripted_image, tmp_path):
    done = run(runtime, tmp_path / "runs", "--ranks", "1", "--ranks", "2")
    assert done.returncode == 0, done
    assert "4 runs measured, 0 failed" in done.stdout
    bundles = find_bundles([tmp_path / "runs"])
    assert {verify(bundle).status for bundle in bundles} == {"equal"}
    image = json.loads(runtime.docker("image", "inspect", IMAGE).stdout)[0]
    for bundle in bundles:
        record = bundle.record()
        facts = record.environment.driver
        assert record.status == "ok" and record.run.launcher == "docker"
        assert facts["image"] == {"reference": IMAGE, "id": image["Id"], "digest": None, "revision": None}
        assert facts["job"]["env"]["SUITE_IMAGE"] == image["Id"]
        assert facts["engine"]["version"] and facts["engine"]["runtime"].startswith("runc")
        assert facts["engine"]["remote"] is False and facts["devices"] == {"ids": [], "count": None, "requests": []}
        assert facts["container"]["ulimits"] == {"stack": 64 << 20} and facts["container"]["ipc"] == "private"
    assert containers(runtime) == []
    again = run(runtime, tmp_path / "runs", "--ranks", "1", "--ranks", "2")
    assert again.returncode == 0 and "nothing to do" in again.stdout


def test_rows_take_turns_from_containers_of_their_own(runtime, scripted_image, tmp_path):
    done = run(runtime, tmp_path, turns=TURNS, sleep=True, measured=True, seconds=0.05)
    assert done.returncode == 0 and "2 runs measured, 0 failed" in done.stdout, done
    (start,) = starts_of(find_bundles([tmp_path])).values()
    assert len(start) == 2
    assert {bundle.record().environment.driver["runs_at_once"] for bundle in start} == {1}
    assert containers(runtime) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_driver_stops_and_removes_its_container(runtime, scripted_image, tmp_path, number):
    with start(runtime, tmp_path, at={"iteration": 1, "do": "hang"}) as driver:
        wait_for_event(tmp_path, "generate")
        assert len(containers(runtime)) == 1
        driver.send_signal(number)
        out, _ = driver.communicate()
    assert driver.returncode == 130 and "interrupted; run the same command to continue" in out
    assert containers(runtime) == []
    record = find_bundles([tmp_path])[0].record()
    assert (record.status, record.failure.evidence) == ("interrupted", (f"the driver was sent {number.name}",))


def test_what_a_killed_driver_leaves_the_next_session_removes_and_no_other(runtime, scripted_image, tmp_path):
    with start(runtime, tmp_path / "killed", at={"iteration": 1, "do": "hang"}) as driver:
        wait_for_event(tmp_path / "killed", "generate")
        os.kill(driver.pid, signal.SIGKILL)
    dead = containers(runtime)
    assert len(dead) == 1, "nobody is there to remove it"
    with start(runtime, tmp_path / "living", "--backend", "megatron", at={"iteration": 1, "do": "hang"}) as other:
        wait_for_event(tmp_path / "living", "generate")
        living = [name for name in containers(runtime) if name not in dead]
        assert containers(runtime) == living and len(living) == 1, "the second driver removed what the dead one left"
        done = run(runtime, tmp_path / "killed", "--backend", "deepspeed")
        assert done.returncode == 0 and "1 run measured" in done.stdout, done
        assert containers(runtime) == living, "a living driver keeps its own"
        other.send_signal(signal.SIGTERM)
        other.communicate()
    assert containers(runtime) == []


def test_runs_side_by_side_have_own_cores(runtime, scripted_image, tmp_path):
    assert run(runtime, tmp_path, "--parallel", "2", "--cpuset", "0-1").returncode == 0
    drivers = [bundle.record().environment.driver for bundle in find_bundles([tmp_path])]
    assert sorted(driver["container"]["cpuset"] for driver in drivers) == ["0", "1"]
    assert {driver["runs_at_once"] for driver in drivers} == {2}


def test_a_run_is_done_again_in_a_container_and_compared(runtime, scripted_image, tmp_path):
    assert run(runtime, tmp_path, "--backend", "megatron").returncode == 0
    first = find_bundles([tmp_path])[0].path
    command = scripted_suite("rerun", str(first), "--runs", str(tmp_path))
    done = subprocess.run(command, env=suite_environment(runtime.host), capture_output=True, text=True, timeout=110)
    assert done.returncode == 0 and "ratio:" in done.stdout, done
    assert Bundle(first.with_name(first.name.replace("-r1", "-r2"))).record().run.launcher == "docker"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--image", "127.0.0.1:9/suite/engines:1"), "cannot be pulled"),
        (
            ("--image", "127.0.0.1:9/suite/engines:1", "--pull", "never"),
            "on this runtime (--pull never); `suite images list`",
        ),
        (("--image", "suite-base:bookworm"), "suite-base:bookworm cannot tell the versions of its stack"),
        (("--image", "No Image"), "takes 'No Image' for no image"),
        (GPUS, "does not give GPU 0,99 to a container: nvidia-container-cli: device"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_one_line_and_exit_2_before_the_first_run(
    runtime, scripted_image, tmp_path, arguments, words
):
    done = run(runtime, tmp_path / "runs", *arguments)
    assert done.returncode == 2, done
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and words in last and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists() and containers(runtime) == []


SHORT = ("--device", "cpu", "--warmup", "1", "--iterations", "2", "--repeats", "1")
BOTH = ("--backend", "deepspeed", "--backend", "megatron")


def run_for_real(runtime: Runtime, runs: Path, *words: str) -> None:
    command = (sys.executable, "-m", "suite", "run", "--runs", str(runs), *BOTH, *SHORT, *words)
    environment = {**os.environ, "DOCKER_HOST": runtime.host}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.ranks
@pytest.mark.timeout(600)
def test_every_size_is_measured_in_the_image_that_the_record_names_beside_the_same_work_on_the_host(
    runtime, engines_image, tmp_path
):
    run_for_real(runtime, tmp_path, "--launcher", "docker", "--size", "1M", "--size", "3M")
    run_for_real(runtime, tmp_path, "--launcher", "docker", "--size", "8M", "--ranks", "2")
    run_for_real(runtime, tmp_path, "--size", "1M")
    bundles = find_bundles([tmp_path])
    assert {verify(bundle).status for bundle in bundles} == {"equal"}
    records = [bundle.record() for bundle in bundles]
    inside = [record for record in records if record.run.launcher == "docker"]
    measured = {(record.run.backend, record.run.size, record.run.ranks) for record in inside}
    sizes = (("1M", 1), ("3M", 1), ("8M", 2))
    assert measured == {(backend, *each) for backend in ("deepspeed", "megatron") for each in sizes}
    for record in inside:
        assert record.status == "ok", record.failure
        assert record.environment.driver["image"]["id"] == engines_image.id
        assert record.environment.worker["image"] is not None
        assert record.environment.worker["cpu"]["threads"] is not None
    same = [record.run for record in records if record.run.size == "1M"]
    assert {run.launcher for run in same} == {"docker", "local"} and len({run.work_hash for run in same}) == 1
