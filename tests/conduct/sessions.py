"""Sessions without a terminal: a view that remembers, and a launcher whose ranks have always just ended well."""

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.bundle.record import Record
from suite.conduct.planning.plan import Plan
from suite.conduct.running.session import Settings, Summary, run_plan
from suite.launch.job import Job, Site
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Outcome
from suite.spec.manifest import Manifest
from tests.synthetic import as_lines, rank_events


class Remembering:
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.notices: list[str] = []
        self.events: list[dict[str, Any]] = []

    def begin(self, total: int, done: int) -> None:
        self.total, self.done = total, done

    def planned(self, total: int) -> None:
        self.estimate = total

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        self.left = seconds_left

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self.ended.append(manifest.run.id)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def end(self) -> None:
        self.total = 0


class Instantly:
    """A launcher whose ranks have always just ended well, after iterations of so many seconds."""

    name = "local"

    def __init__(self, seconds: Callable[[Manifest], float] = lambda manifest: 1.0) -> None:
        self._seconds = seconds
        self._manifest: Manifest | None = None

    def site(self, manifest: Manifest, bundle: Path, python: str) -> Site:
        self._manifest = manifest
        return Site(python=python, bundle=str(bundle), python_path="/suite")

    def facts(self, job: Job) -> dict[str, Any]:
        return {}

    def run(self, job: Job, folder: Path, on_event: object) -> Outcome:
        assert self._manifest is not None
        seconds = self._seconds(self._manifest)
        for rank in range(job.ranks):
            lines = as_lines(rank_events(self._manifest, rank, lambda iteration, rank: seconds))
            (folder / "events" / f"rank-{rank}.jsonl").write_text(lines)
        return Outcome(status="ok", exit_codes=dict.fromkeys(range(job.ranks), 0), elapsed_seconds=1.0)


def work(
    plan: Plan, root: Path, launcher: Any = None, view: Any = None, clock: Any = None, further: Any = None, **how: Any
) -> tuple[Summary, Any]:
    """Run a plan, with this process's interpreter unless a launcher is given; what came of it, and the view."""
    seen = view or Remembering()
    known = {} if clock is None else {"clock": lambda: next(clock)}
    settings = Settings(root=root, python=sys.executable, **how)
    return run_plan(plan, settings, launcher or LocalLauncher(), seen, further=further, **known), seen


def raced(drivers: int, look: Callable[[], Any], do: Callable[[Any], object]) -> list[Any]:
    """What each of so many processes answers, all of which looked before the first of them did anything."""
    forked = multiprocessing.get_context("fork")
    gate, answers = forked.Barrier(drivers), forked.Queue()

    def drive() -> None:
        seen = look()
        gate.wait()
        try:
            answers.put(do(seen))
        except BaseException as error:  # noqa: BLE001 (told by the parent)
            answers.put(f"{type(error).__name__}: {error}")

    processes = [forked.Process(target=drive) for _ in range(drivers)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join()
    return told
