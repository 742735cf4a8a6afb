"""One more iteration when all counted ones are over, under torch's profiler: what the work consists of, by phase.

Each phase has a trace of its own, in the form that chrome://tracing and Perfetto read, and a table of its operators. A
phase is traced until the model was run a few times: a whole one of a large model has millions of operators, and what
follows repeats them.
"""

import os
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch

from suite.worker.events import Progress
from suite.worker.recorder import NullRecorder
from suite.worker.world import World, barrier, synchronise

#: forward calls of a model in a phase that are traced
MOST_CALLS = 8
#: a longer trace, packed, is left out of the bundle; its table stays
MOST_BYTES = 16 << 20
_ROWS, _NAME_COLUMNS = 30, 60


class ProfilingRecorder(NullRecorder):
    """Traces phases and emits no event, so that nothing of it is counted."""

    def __init__(self, world: World, folder: str, progress: Progress) -> None:
        """``folder``: the bundle's, which gets ``profile/rank-N-PHASE.json.gz`` and ``.txt``."""
        self._world, self._progress = world, progress
        self._folder = os.path.join(folder, "profile")
        self._profiler: Optional[Any] = None
        self._calls = 0

    def watch(self, *models: torch.nn.Module) -> None:
        for model in models:
            model.register_forward_pre_hook(self._on_forward)

    def begin(self, iteration: int) -> None:
        barrier(self._world)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._progress.beat()
        profiler = torch.profiler.profile()
        self._calls, self._profiler = 0, profiler
        profiler.start()
        yield
        synchronise(self._world)
        is_cut = self._profiler is None
        self._stop()
        self._write(name, profiler, is_cut)
        self._progress.beat()

    def _on_forward(self, _module: Any, _arguments: Any) -> None:
        self._calls += 1
        if self._calls > MOST_CALLS:
            self._stop()

    def _stop(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None

    def _write(self, name: str, profiler: Any, is_cut: bool) -> None:
        """A disk that is full, or a trace that torch cannot write, ends no run whose measurement is over."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            path = os.path.join(self._folder, "rank-{}-{}".format(self._world.rank, name))
            profiler.export_chrome_trace(path + ".json.gz")
            size = os.path.getsize(path + ".json.gz")
            is_long = size > MOST_BYTES
            if is_long:
                os.remove(path + ".json.gz")
            with open(path + ".txt", "w", encoding="utf-8") as file:
                file.write(self._table(name, profiler, is_cut))
                if is_long:
                    file.write("\nthe trace had {} bytes, more than the {} that are kept\n".format(size, MOST_BYTES))
        except (OSError, RuntimeError) as error:
            print("profile: {} of rank {} is not kept: {}".format(name, self._world.rank, error), flush=True)

    def _table(self, name: str, profiler: Any, is_cut: bool) -> str:
        by = "self_device_time_total" if self._world.device.type == "cuda" else "self_cpu_time_total"
        how = "until the model had run {} times".format(MOST_CALLS) if is_cut else "whole"
        head = "{} of rank {}, {}, in an iteration that counts nowhere; times are those under the profiler\n\n"
        rows = profiler.key_averages().table(sort_by=by, row_limit=_ROWS, max_name_column_width=_NAME_COLUMNS)
        return head.format(name, self._world.rank, how) + str(rows)
