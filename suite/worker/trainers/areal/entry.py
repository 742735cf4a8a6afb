"""``python -m suite.worker.trainers.areal.entry --config FILE``: AReaL's PPO trainer, as its examples run it.

In AReaL's image. A program of the user's own is what AReaL expects (examples/math/gsm8k_rl.py): it brings the data set
and the workflow. This one also writes what the trainer commits as statistics of a step to the step log.
"""

import os
import sys
from functools import wraps
from importlib import metadata
from typing import Any, Callable, Dict, List

from suite.worker.trainers.logged.inputs import MANIFEST_VARIABLE, manifest_of_run, prompts
from suite.worker.trainers.logged.sink import StepSink, sink_from_environment

NAME = "areal"
WORKFLOW = "suite.worker.trainers.areal.workflow.NumberedWorkflow"


def told(commit: Callable[..., Any], sink: StepSink) -> Callable[..., Any]:
    """``StatsLogger.commit``, which writes the statistics to the sink first; AReaL counts its steps from 0."""

    @wraps(commit)
    def both(epoch: int, step: int, global_step: int, data: Any) -> Any:
        merged: Dict[str, Any] = {}
        for part in data if isinstance(data, list) else [data]:
            merged.update(part)
        sink.log(merged, global_step + 1)
        return commit(epoch, step, global_step, data)

    return both


def main(arguments: List[str]) -> None:
    from areal import PPOTrainer
    from areal.api.cli_args import GRPOConfig, load_expr_config
    from datasets import Dataset

    config, _ = load_expr_config(arguments, GRPOConfig)
    rows = Dataset.from_list(list(prompts(manifest_of_run())))
    sink = sink_from_environment(NAME, metadata.version("areal"))
    with PPOTrainer(config, train_dataset=rows) as trainer:
        trainer.stats_logger.commit = told(trainer.stats_logger.commit, sink)
        sink.begin()
        trainer.train(
            workflow=WORKFLOW,
            workflow_kwargs={"gconfig": config.gconfig, "manifest": os.environ[MANIFEST_VARIABLE]},
        )


if __name__ == "__main__":
    main(sys.argv[1:])
