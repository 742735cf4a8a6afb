"""A stand-in for ``python -m suite.worker``: the contract's events from a script, standard library alone but for turns.

    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 SUITE_SCRIPT='{"seconds": 0.01}' \
        python tests/scripted_worker.py MANIFEST.json --bundle DIR

``SUITE_SCRIPT`` is a JSON object; all of it may be left out:

    seconds       of an iteration, or a list by iteration (the last one goes on); default 0.01
    sleep         whether that time really passes; default false: it is only claimed
    measured      with sleep: iterations are told as long as they were, on a machine that is busy too
    beat          seconds between heartbeats while time passes; default: none
    noise, seed   spread of a log-normal factor on each iteration and rank; the same seed gives the same times
    run_noise     spread of a log-normal factor on all iterations of a run, which follows from the seed and the run's id
    of            object by backend: what the script has in addition for that backend
    times         object by "PART.FIELD=JSON" of the manifest: a factor on the seconds of the runs that have that value
    skew          list by rank: share by which that rank is slower
    counts        fields of the counts to replace
    memory_bytes  peak of every phase
    facts         fields of the environment's facts to replace
    device        object for each iteration's ``device``
    setup_seconds slept before iteration 0
    at            what goes wrong: {"iteration": K, "rank": R, "phase": "train", "do": ..., ...}; without a rank
                  on all of them. The other ranks finish unless "others" is "hang".

``do``: ``signal`` (with "signal", default 9), ``raise`` (with "message" and "kind"), ``hang``, ``oom`` (prints
torch's line, fails), ``parent`` (kills what started it, and goes on), ``eat`` (takes memory until it is killed),
``fill`` (writes "mebibytes" into the folder for temporary files, then hangs), ``exit`` (status 1 without a word),
``garbage`` (a line of no JSON among the events), ``torn`` (half a line, then killed), ``flood`` (10 MB on standard
output), ``counts`` (one sample more than asked).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PHASES = {"generate": 0.5, "score": 0.1, "reference": 0.1, "reward": 0.0, "train": 0.25}
STATS = {"loss": 0.5, "policy_loss": 0.1, "value_loss": 0.4, "kl": 0.0, "reward": 0.5, "gradient_norm": None}
MIB = 1 << 20
OOM_LINE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def peaks_of(peak_bytes: int, cuda: bool) -> dict[str, int | None]:
    """What a memory event tells of a phase whose tensors took so much."""
    return {
        "peak_allocated_bytes": peak_bytes,
        "peak_reserved_bytes": peak_bytes + 64 * MIB if cuda else None,
        "peak_device_bytes": peak_bytes + 512 * MIB if cuda else None,
        "peak_resident_bytes": peak_bytes + 100 * MIB,
        "allocation_retries": 0 if cuda else None,
    }


class ScriptedError(Exception):
    """What the script asked for: a failure kind and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EventFile:
    """Events of this rank, on standard output too from rank 0, or from all where the launcher asks for it."""

    def __init__(self, bundle: str, rank: int) -> None:
        path = Path(bundle) / "events" / f"rank-{rank}.jsonl"
        path.parent.mkdir(exist_ok=True)
        self.rank = rank
        self.seq = 0
        self.claimed = 0.0  # seconds that are only said to have passed
        self.file = path.open("w")

    def emit(self, kind: str, **fields: Any) -> None:
        event = {"kind": kind, "rank": self.rank, "time": time.time() + self.claimed, "seq": self.seq, **fields}
        line = json.dumps(event)
        self.seq += 1
        if self.rank == 0 or os.environ.get("SUITE_EVENTS_ON_STDOUT") == "all":
            sys.stdout.write(f"::suite:: {line}\n")
            sys.stdout.flush()
        self.raw(line + "\n")

    def raw(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


class Worker:
    """One rank that follows a script."""

    def __init__(self, manifest: dict[str, Any], script: dict[str, Any], events: EventFile, world_size: int) -> None:
        self.manifest = manifest
        self.script = script
        self.events = events
        self.world_size = world_size
        self.random = random.Random(f"{script.get('seed', 0)}-{events.rank}")
        of_run = random.Random(f"{script.get('seed', 0)}-{manifest['run']['id']}")
        self.run_factor = of_run.lognormvariate(0, script.get("run_noise", 0))
        self.completed = self.calls = 0
        self.phase: str | None = "setup"
        self.turns: Any = None

    def run(self) -> int:
        """Exit status: what was asked, or the failure and status 1."""
        measure = self.manifest["measure"]
        try:
            self.start()
            counted = self.manifest["run"].get("iterations") or measure["iterations"]
            for iteration in range(measure["warmup"] + counted):
                if self.turns is not None:
                    if self.turns.is_over:
                        self.turns.ask()
                        self.events.emit("turn", iteration=iteration)
                    self.turns.begin_iteration()
                self.iterate(iteration)
        except ScriptedError as error:
            self.events.emit(
                "failure", failure=error.kind, phase=self.phase, iteration=self.completed, evidence=[str(error)]
            )
            self.events.emit("end", status="failed", iterations=self.completed)
            print(f"Traceback (most recent call last):\n{error}", file=sys.stderr, flush=True)
            return 1
        self.events.emit("end", status="ok", iterations=self.completed, model_seconds=0.0)
        return 0

    def start(self) -> None:
        resident = 100 * MIB
        if "SUITE_TURNS" in os.environ:
            from suite.worker.turns import open_turns

            self.turns = open_turns(os.environ, self.manifest, self.events.rank)
        self.events.emit(
            "start",
            schema="suite/events/1",
            world_size=self.world_size,
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            host="scripted",
            pid=os.getpid(),
            manifest_hash=self.manifest["hash"],
            suite_version="0",
            resident_bytes=resident,
        )
        if self.turns is not None:
            self.turns.ask()
        facts = {"device": {"type": self.manifest["measure"]["device"], "name": None, "count": 1}, "host": "scripted"}
        self.events.emit(
            "environment", facts={**facts, "resident_baseline_bytes": resident, **self.script.get("facts", {})}
        )
        time.sleep(self.script.get("setup_seconds", 0))
        self.events.emit("memory", iteration=None, phase="setup", **self.peaks())

    def iterate(self, iteration: int) -> None:
        whole = self.seconds(iteration)
        began = time.monotonic()
        for phase, share in PHASES.items():
            self.phase = phase
            self.go_wrong(iteration, phase)
            self.pass_time(share * whole, iteration)
            here = {"iteration": iteration, "phase": phase}
            self.events.emit("phase", seconds=share * whole, wait_seconds=0.0, **here)
            self.events.emit("memory", **here, **self.peaks())
        if self.script.get("sleep"):
            time.sleep(max(0.0, began + whole - time.monotonic()))
        else:
            self.events.claimed += whole * (1 - sum(PHASES.values()))
        if self.script.get("measured"):
            whole = time.monotonic() - began
        window = {"device": self.script["device"]} if "device" in self.script else {}
        self.events.emit(
            "iteration", iteration=iteration, seconds=whole, counts=self.counts(iteration), stats=STATS, **window
        )
        self.completed += 1

    def seconds(self, iteration: int) -> float:
        told = self.script.get("seconds", 0.01)
        base = told[min(iteration, len(told) - 1)] if isinstance(told, list) else told
        skew = self.script.get("skew", [])
        slower = skew[self.events.rank] if self.events.rank < len(skew) else 0.0
        return (
            base
            * (1 + slower)
            * self.run_factor
            * self.of_settings()
            * self.random.lognormvariate(0, self.script.get("noise", 0))
        )

    def of_settings(self) -> float:
        """The factor of this manifest's values."""
        product = 1.0
        for place, factor in self.script.get("times", {}).items():
            path, value = place.split("=")
            part, field = path.split(".")
            product *= factor if self.manifest[part].get(field) == json.loads(value) else 1.0
        return product

    def pass_time(self, seconds: float, iteration: int) -> None:
        if not self.script.get("sleep"):
            self.events.claimed += seconds
            return
        ends, beat = time.monotonic() + seconds, self.script.get("beat", seconds)
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(beat, left))
            if "beat" in self.script:
                self.heartbeat(iteration)

    def heartbeat(self, iteration: int) -> None:
        self.calls += 1
        self.events.emit("heartbeat", iteration=iteration, phase=self.phase, calls=self.calls)

    def counts(self, iteration: int) -> dict[str, int]:
        workload, samples = self.manifest["workload"], self.manifest["work"]["global_rollouts"]
        if self.trouble(iteration) == "counts":
            samples += 1
        sequence = workload["prompt_tokens"] + workload["new_tokens"]
        counts = {
            "samples": samples,
            "prompt_tokens": samples * workload["prompt_tokens"],
            "response_tokens": samples * workload["new_tokens"],
            "padded_tokens": 0,
            "trained_tokens": samples * sequence * workload["ppo_epochs"],
            "optimizer_steps": workload["optimizer_steps"] * workload["ppo_epochs"],
            "trainable_parameters": 1_000_000,
            "total_parameters": 1_000_000,
        }
        return {**counts, **self.script.get("counts", {})}

    def peaks(self) -> dict[str, int | None]:
        return peaks_of(self.script.get("memory_bytes", 512 * MIB), self.manifest["measure"]["device"] == "cuda")

    def trouble(self, iteration: int) -> str | None:
        """What the script does to this rank in this iteration."""
        at = self.script.get("at")
        if at is None or at["iteration"] != iteration:
            return None
        if at.get("rank") in (None, self.events.rank):
            return at["do"]
        return at.get("others")

    def go_wrong(self, iteration: int, phase: str) -> None:
        if phase == self.script.get("at", {}).get("phase", "train"):
            action = getattr(self, f"do_{self.trouble(iteration)}", None)
            if action is not None:
                action(self.script["at"])

    def do_signal(self, at: dict[str, Any]) -> None:
        os.kill(os.getpid(), at.get("signal", signal.SIGKILL))

    def do_raise(self, at: dict[str, Any]) -> None:
        raise ScriptedError(at.get("kind", "unknown"), at.get("message", "RuntimeError: as the script says"))

    def do_hang(self, at: dict[str, Any]) -> None:
        while True:
            signal.pause()

    def do_oom(self, at: dict[str, Any]) -> None:
        raise ScriptedError("oom_device", OOM_LINE)

    def do_parent(self, at: dict[str, Any]) -> None:
        os.kill(os.getppid(), signal.SIGKILL)

    def do_eat(self, at: dict[str, Any]) -> None:
        taken = []
        while True:
            taken.append(b"x" * MIB)

    def do_fill(self, at: dict[str, Any]) -> None:
        with (Path(tempfile.gettempdir()) / "filled").open("wb") as file:
            for _ in range(at["mebibytes"]):
                file.write(b"x" * MIB)
        self.do_hang(at)

    def do_exit(self, at: dict[str, Any]) -> None:
        os._exit(1)

    def do_garbage(self, at: dict[str, Any]) -> None:
        self.events.raw("\x00 this is no JSON {{{\n")

    def do_torn(self, at: dict[str, Any]) -> None:
        self.events.raw('{"kind": "phase", "rank": ')
        os.kill(os.getpid(), signal.SIGKILL)

    def do_flood(self, at: dict[str, Any]) -> None:
        line = "x" * 1023 + "\n"
        for _ in range(10 * 1024):
            sys.stdout.write(line)
        sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest")
    parser.add_argument("--bundle", required=True)
    arguments = parser.parse_args()
    manifest = json.loads(Path(arguments.manifest).read_text())
    script = json.loads(os.environ.get("SUITE_SCRIPT", "{}"))
    script.update(script.get("of", {}).get(manifest["backend"]["name"], {}))
    events = EventFile(arguments.bundle, int(os.environ.get("RANK", "0")))
    return Worker(manifest, script, events, int(os.environ.get("WORLD_SIZE", "1"))).run()


if __name__ == "__main__":
    sys.exit(main())
