"""verl's own trainer, really: its workers and vLLM servers on Ray, in the environment that `make verl` makes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from suite.worker.trainers.processes import shared_memory_below
from suite.worker.trainers.verl.tied import NAME
from tests.needs import require_environment
from tests.waiting import wait_until
from tests.worker.trainers.runs import whole_run_of
from tests.worker.trainers.verl.manifests import GRPO, verl_manifest

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(560)]
ROOT = Path(__file__).resolve().parents[4]
KILL = (
    "import sys; from pathlib import Path; from suite.conduct.running.execute import execute;"
    "from suite.launch.local import LocalLauncher; from suite.spec.manifest import Manifest;"
    "execute(Manifest.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), LocalLauncher(),"
    " sys.argv[3], lambda event: None)"
)


@pytest.fixture
def python() -> str:
    return require_environment("verl")


def test_ppo_with_a_critic_on_two_workers_and_two_vllm_servers(tmp_path: Path, python: str) -> None:
    """Two optimizer steps of two micro batches each: every way to miss or double one. The critic is GPT-2.

    The policy's weights fill more than one bucket, and its output head is the embedding.
    """
    critic = {"layers": 1, "hidden": 64, "ffn": 128, "heads": 2}
    work = {"optimizer_steps": 2, "critic": critic}
    manifest = verl_manifest(2, python=python, sampler="fast", shape={"vocab": 40_000}, **work)
    run = whole_run_of(manifest, tmp_path, python)
    assert run.record.counts is not None
    assert run.record.counts.total_parameters == run.record.counts.trainable_parameters
    phases = [[(event["iteration"], event["phase"]) for event in run.events("phase", rank)] for rank in (0, 1)]
    in_order = ["generate", "reference", "score", "reward", "train", "sync"]
    assert phases[0] == phases[1] == [(step, phase) for step in range(3) for phase in in_order]
    for event in run.events("iteration"):
        assert set(event["details"]) == {"train/actor", "train/critic"}
        # vLLM's own log-probs are those of the weights that were trained: they arrive, in full precision
        assert event["rollout"]["logprob_difference_max"] < 1e-4
        assert 0 < event["own_timers"]["update_actor"] < event["own_timers"]["step"]
    notes = run.facts["notes"]
    assert any("every 0.02 s" in note for note in notes) and any(note.startswith(NAME) for note in notes)
    (bucket,) = [value for name, value in run.facts["configuration"].items() if name.endswith("bucket_megabytes")]
    assert 4 * 64 * 40_000 < bucket * 2**20 < 2 * 4 * 64 * 40_000, "the embedding and the head, which verl would send"
    assert len([note for note in notes if note.startswith("replaced on a CPU: ")]) == 6


def test_nothing_stays_behind_a_killed_rank(tmp_path: Path, python: str) -> None:
    """GRPO on one worker, with verl's own sampler, killed when vLLM has generated."""
    manifest = verl_manifest(1, python=python, iterations=100_000, **GRPO)
    path = tmp_path / "manifest.json"
    path.write_text(manifest.model_dump_json(by_alias=True))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "log", "w") as log:
        argv = [sys.executable, "-c", KILL, str(path), str(tmp_path), python]
        driver = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
    bundle = tmp_path / manifest.run.id
    started: dict[int, psutil.Process] = {}
    files: set[str] = set()
    try:
        events = bundle / "events" / "rank-0.jsonl"

        def iterates() -> bool:
            assert driver.poll() is None, (tmp_path / "log").read_text()[-3000:]
            return events.exists() and '"kind":"iteration"' in events.read_text()

        wait_until(iterates, 500)
        started = {each.pid: each for each in psutil.Process(driver.pid).children(recursive=True)}
        lines = "\n".join(" ".join(each.cmdline()) for each in started.values())
        assert "raylet" in lines and "vLLMHttpServer" in lines and "EngineCore" in lines
        files = {*shared_memory_below(driver.pid), *re.findall(r"/tmp/suite-(?:verl|ray)-\w+", lines)}
        assert len({name[:12] for name in files if name.startswith("/tmp")}) == 2, files
        (rank,) = [each for each in started.values() if "suite.worker" in each.cmdline()]
        rank.send_signal(signal.SIGKILL)
        driver.wait(120)
    finally:
        driver.kill()
        driver.wait()

    def left() -> list[object]:
        return [each for each in started.values() if each.is_running()] + list(filter(os.path.exists, files))

    wait_until(lambda: not left(), told=left)
    assert json.loads((bundle / "record.json").read_text())["status"] == "failed"
