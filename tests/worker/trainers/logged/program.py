"""``python -m tests.worker.trainers.logged.program STEPS``: logs so many of the recorded steps, and ends.

Looks whether what a trainer is given is there: the model's folder, the manifest, no variables of the suite's ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from suite.worker.trainers.areal.entry import told
from suite.worker.trainers.logged.inputs import MANIFEST_VARIABLE, manifest_of_run, prompts
from suite.worker.trainers.logged.sink import sink_from_environment
from tests.worker.trainers.logged.made import LOGS

STEP_SECONDS = 0.3


def main(steps: int) -> None:
    folder = Path(os.environ[MANIFEST_VARIABLE]).parent
    assert "RANK" not in os.environ and "MASTER_ADDR" not in os.environ
    assert sorted(path.name for path in (folder / "model").iterdir() if path.suffix != ".jinja") == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert len(list(prompts(manifest_of_run()))) == 4 * 8
    sink = sink_from_environment("areal", "1.0.4")
    commit = told(lambda *arguments: None, sink)
    lines = [json.loads(line) for line in LOGS["areal"].read_text().splitlines()]
    sink.begin()
    for number, line in enumerate([line for line in lines if line["kind"] == "step"][:steps]):
        time.sleep(STEP_SECONDS)
        print(f"step {number}", flush=True)
        commit(0, number, number, line["values"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
