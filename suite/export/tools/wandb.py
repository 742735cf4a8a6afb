"""W&B in its offline mode: a folder of runs that `wandb sync` sends later, if somebody wants that."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from suite.export.tools.given import Given, handing
from suite.spec.optional import required

EXTRA = "wandb"
PROJECT = "suite"


def write(folder: Path, runs: Iterable[Given]) -> None:
    """No account is asked for and no network used. Raises OSError, and UsageError for what W&B refuses."""
    wandb = required("wandb", EXTRA)
    # its own logs would go to the user's home
    with tempfile.TemporaryDirectory() as cache, handing(EXTRA, wandb.Error, WANDB_CACHE_DIR=cache):
        try:
            for run in runs:
                _log(wandb, folder, run)
        finally:
            wandb.teardown()  # a process of its own


def _log(wandb: Any, folder: Path, run: Given) -> None:
    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        save_code=False,
    )
    with wandb.init(
        project=PROJECT,
        id=run.name[:128],
        name=run.name,
        group=run.row["manifest_hash"][:12],
        config=dict(run.settings),
        tags=[*run.row["tags"], run.row["status"]],
        notes="\n".join(f"{name}: {text}" for name, text in run.texts.items()) or None,
        dir=str(folder),
        mode="offline",
        settings=settings,
    ) as made:
        for step, seconds in enumerate(run.iterations):
            made.log({"iteration/seconds": seconds}, step=step)
        made.summary.update({**run.figures, "status": run.row["status"]})
        made.finish(exit_code=0 if run.row["status"] == "ok" else 1)
