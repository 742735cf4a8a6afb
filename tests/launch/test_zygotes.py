"""Ranks that are forked: no different from those that are started by themselves, and no reason why a run fails."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from suite.launch import zygotes
from suite.launch.job import Job
from suite.launch.local import LocalLauncher
from suite.launch.zygotes import Zygote
from tests.launch.ranks import IMPORT_VARIABLE, QUICK, make_job, no_process_is_left, toy_worker  # noqa: F401

TELL = """
import ctypes, gc, random, resource, socket, threading
from suite.worker.process import how_started
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
names = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "EVENTS", "SET_BY_IMPORT", "GONE_BY_IMPORT", "PYTHONUNBUFFERED"]
print(json.dumps({
    "how": how_started(),
    "frozen": gc.get_freeze_count() > 0,
    "environ": sorted(name for name in os.environ if name not in ("TOY_IMPORT",)),
    "c": {name: (get(name.encode()) or b"").decode() for name in names},
    "python": {name: os.environ.get(name, "") for name in names},
    "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "folder": os.getcwd(),
    "argv": [os.path.basename(sys.argv[0]), len(sys.argv)],
    "main": sys.modules["__main__"].__name__,
    "files": [os.path.basename(os.readlink("/proc/self/fd/" + fd)).split(":")[0] for fd in ("0", "1", "2")],
    "open": len(os.listdir("/proc/self/fd")),
    "threads": len(os.listdir("/proc/self/task")),
    "handlers": [str(signal.getsignal(number)) for number in range(1, 32) if number not in (9, 19)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)],
    "nice": os.nice(0),
    "cpus": sorted(os.sched_getaffinity(0)),
    "hash": hash("x"),
    "random": random.random(),
}))
event("end", status="ok")
"""


class Runs:
    """Runs of one launcher after another, each in a folder of its own, with one toy worker for all."""

    def __init__(self, root: Path) -> None:
        self.root, self.launcher, self.count = root, LocalLauncher(QUICK), 0
        self.toy = toy_worker(root)

    def job(self, script: str, ranks: int = 1, **changes: Any) -> tuple[Job, Path]:
        self.count += 1
        folder = self.root / f"run-{self.count}"
        folder.mkdir()
        (self.root / "events").mkdir(exist_ok=True)  # the environment of all
        (folder / "events").symlink_to(self.root / "events")
        job = make_job(self.root, script, ranks, forked=True)
        return job.model_copy(update={**changes, "env": {**job.env, **changes.get("env", {})}}), folder

    def __call__(self, script: str = TELL, ranks: int = 1, **changes: Any) -> list[str]:
        """The last line that each rank printed of a run that is to end well."""
        job, folder = self.job(script, ranks, **changes)
        outcome = self.launcher.run(job, folder, lambda event: None)
        logs = [(folder / "logs" / f"rank-{rank}.log").read_text() for rank in range(ranks)]
        assert outcome.status == "ok", (outcome, logs)
        return [log.splitlines()[-1] for log in logs]

    def told(self, **changes: Any) -> dict[str, Any]:
        return json.loads(self(**changes)[0])


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path)
    yield found
    found.launcher.close()


def zygote_processes() -> list[psutil.Process]:
    """Of this process; what other tests have left of theirs are zombies, which tell no command."""
    children = psutil.process_iter(("ppid", "cmdline", "status"))
    own = [child for child in children if child.info["ppid"] == os.getpid()]
    return [child for child in own if "suite.worker.zygote" in (child.info["cmdline"] or ())]


def test_a_forked_rank_finds_what_one_finds_that_was_started_by_itself(runs: Runs) -> None:
    """But for what the import of the stack set or took away, which the toy's rank does not import by itself."""
    own = ("SET_BY_IMPORT", "GONE_BY_IMPORT")
    on_import = "import os; os.environ['SET_BY_IMPORT'] = 'yes'; os.environ.pop('GONE_BY_IMPORT')"
    env = {IMPORT_VARIABLE: on_import, "GONE_BY_IMPORT": "no"}
    forked, spawned = runs.told(env=env), runs.told(env=env, stack=())
    assert (forked.pop("how"), spawned.pop("how")) == ("forked", "spawned")
    assert (forked.pop("frozen"), spawned.pop("frozen")) == (True, False), "its collector leaves the import alone"
    assert forked["python"]["RANK"] == "0"
    assert [forked["python"][name] for name in own] == ["yes", ""]
    for told in (forked, spawned):
        assert told["c"] == told["python"], "C code reads the same variables"
        assert told["parent"] == os.getpid()
        told["environ"] = [name for name in told["environ"] if name not in own]
        for name in own:
            told["python"].pop(name)
        del told["c"], told["hash"], told["random"]
    assert forked == spawned


def test_runs_share_one_zygote_and_each_rank_is_a_fresh_process(runs: Runs) -> None:
    first, second = (runs.told(ranks=2) for _ in range(2))
    assert len(zygote_processes()) == 1
    assert first["hash"] == second["hash"], "forked from the same process"
    assert first["random"] != second["random"]


def test_what_the_stack_prints_while_it_is_imported_is_in_the_log_of_each_rank(runs: Runs) -> None:
    on_import = "import sys; print('a warning of the stack', file=sys.stderr)"
    job, folder = runs.job(TELL, 2, env={IMPORT_VARIABLE: on_import})
    runs.launcher.run(job, folder, lambda event: None)
    for rank in range(2):
        assert (folder / "logs" / f"rank-{rank}.log").read_text().startswith("a warning of the stack\n")


@pytest.mark.parametrize(
    "change",
    [{"env": {"CUDA_VISIBLE_DEVICES": "1"}}, {"stack": ("other", "cpu", "torch", "gpt2")}],
    ids=["devices", "backend"],
)
def test_other_surroundings_have_a_zygote_of_their_own(runs: Runs, change: dict[str, Any]) -> None:
    runs()
    assert runs.told(**change)["how"] == "forked"
    assert len(zygote_processes()) == 2
    runs()
    assert len(zygote_processes()) == 2, "the first is still there"


def test_only_so_many_stacks_are_kept_imported(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygotes, "_MOST", 1)
    for number in "12":
        assert runs.told(env={"OMP_NUM_THREADS": number})["how"] == "forked"
    assert len(zygote_processes()) == 1


@pytest.mark.parametrize(
    "on_import",
    [
        "raise ImportError('no such stack')",
        "import os; os._exit(3)",
        "import os; os.environ.get('LOCAL_RANK')",
        "import os; 'WORLD_SIZE' in os.environ",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "import subprocess; subprocess.Popen(['sleep', '600'])",
        "import torch; torch.cuda.is_initialized = lambda: True",
    ],
    ids=["fails", "exits", "rank", "world", "threads", "process", "gpu"],
)
def test_a_stack_that_cannot_be_forked_is_imported_by_each_rank(runs: Runs, on_import: str) -> None:
    for _ in range(2):
        assert runs.told(env={IMPORT_VARIABLE: on_import})["how"] == "spawned"
    assert zygote_processes() == []


def test_a_killed_zygote_takes_no_rank_along_and_the_next_run_has_another(runs: Runs) -> None:
    job, folder = runs.job('event("start")\ntime.sleep(0.2)\nevent("end", status="ok")')

    def kill(event: dict[str, Any]) -> None:
        if event["kind"] == "start":
            zygote_processes()[0].send_signal(signal.SIGKILL)

    assert runs.launcher.run(job, folder, kill).status == "ok"
    assert runs.told()["how"] == "forked"


@pytest.mark.parametrize("trouble", ["stopped", "killed"])
def test_a_zygote_that_does_not_fork_leaves_the_ranks_to_themselves(runs, trouble, monkeypatch):
    runs()
    fork, forked = Zygote.fork, []

    def trouble_at_the_second(self: Zygote, *arguments: Any) -> Any:
        if forked:
            monkeypatch.setattr(zygotes, "_FORK_SECONDS", 0.3)
            zygote_processes()[0].send_signal(signal.SIGSTOP if trouble == "stopped" else signal.SIGKILL)
        forked.append(fork(self, *arguments))
        return forked[-1]

    monkeypatch.setattr(Zygote, "fork", trouble_at_the_second)
    waiting = f"{TELL}\nif how_started() == 'forked':\n    time.sleep(600)\n"
    assert [json.loads(line)["how"] for line in runs(waiting, ranks=2)] == ["spawned", "spawned"]
    assert len(forked) == 1 and forked[0].returncode == -signal.SIGKILL, "half of a run is not forked"
