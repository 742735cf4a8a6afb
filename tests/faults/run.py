"""``python -m tests.faults.run``: faults at random moments of real runs, judged by what is there afterwards.

Each try follows from its launcher, fault, seed and number. Tries are appended to a file of JSON lines, so that an
interrupted or time-boxed round is gone on with by the same command, and the page is written from all of them. As root
on Linux the round has processes, mounts and shared memory of its own: what it leaves is all its own, and ends with it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

from suite.conduct.running.provenance import git_commit
from tests.faults import compose, containers, local, page, pods, scheduler, surroundings
from tests.faults.scene import APART, ROOT, Scene
from tests.faults.tries import Fault, Missed, Try, Verdict, Wrong, append, following, random_of, read

RESULTS = ROOT / "build" / "faults" / "tries.jsonl"


@dataclass(frozen=True)
class Launcher:
    """One that is ready. ``looks``: kinds of what it may leave behind; ``restore`` brings back what a fault ended."""

    faults: tuple[Fault, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    looks: Mapping[str, Callable[[], list[str]]] = field(default_factory=dict)
    restore: Callable[[], None] = lambda: None


@contextmanager
def on_this_host() -> Iterator[Launcher]:
    lacks = surroundings.lacks()
    for name, why in lacks.items():
        print(f"local: {name} not tried here: {why}")
    yield Launcher(tuple(fault for fault in local.FAULTS if fault.name not in lacks))


@contextmanager
def at_a_site(module: ModuleType) -> Iterator[Launcher]:
    with module.started() as site:
        yield Launcher(module.faults(site), site.environment, site.looks, site.restore)


LAUNCHERS: dict[str, Callable[[], AbstractContextManager[Launcher]]] = {
    "local": on_this_host,
    "docker": partial(at_a_site, containers),
    "compose": partial(at_a_site, compose),
    "slurm": partial(at_a_site, scheduler),
    "kubernetes": partial(at_a_site, pods),
}


def make(fault: Fault, launcher: Launcher, seed: int, number: int) -> Try:
    """The fault, what came of it, and what it has left."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fault-"))  # short: the name of a socket has 107 characters at most
    what, left = "right", {}
    with closing(Scene(folder / "try", launcher.environment)) as here:
        here.looks |= launcher.looks
        here.has_made_up_times = fault.has_stand_ins
        try:
            verdict = fault.do(here, random_of(fault, seed, number))
        except Missed as error:
            what, verdict = "missed", Verdict(str(error))
        except Exception as error:  # noqa: BLE001 - a bundle that cannot be read, a command that fails: it is a finding
            said = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            what, verdict = "wrong", Verdict(said, resumes="no")
        if what != "missed":
            left = {kind: names for kind, names in here.left().items() if names}
        launcher.restore()
    shutil.rmtree(folder, ignore_errors=True)
    told = verdict._replace(said=verdict.said[:2000])._asdict()
    seconds = round(time.monotonic() - began, 2)
    return Try(
        *(*fault.key, seed, number, what), **told, left=left, seconds=seconds, when=time.time(), commit=git_commit()
    )


def rounds(options: argparse.Namespace, launchers: Sequence[Launcher]) -> int:
    """One try of each fault after the other, until all have as many as are wanted or the time is over."""
    end, wrong = time.monotonic() + options.seconds, 0
    faults = [(fault, launcher) for launcher in launchers for fault in launcher.faults if is_chosen(fault, options)]
    while True:
        made = read(options.results)
        still = [
            (fault, launcher, number)
            for fault, launcher in faults
            if (number := following(fault, options.tries, options.seed, made)) is not None
        ]
        if not still:
            return wrong
        fewest = min(number for _, _, number in still)
        for fault, launcher, number in still:
            if number > fewest:
                continue
            if time.monotonic() > end:
                return wrong
            one = make(fault, launcher, options.seed, number)
            append(options.results, one)
            wrong += page.is_bad(one)
            print(f"{page.said_of(one, 600)} ({one.seconds:.0f} s)", flush=True)


def is_chosen(fault: Fault, options: argparse.Namespace) -> bool:
    return not options.faults or any(part in fault.name for part in options.faults)


def set_apart(module: str) -> None:
    """Start the module again with processes and mounts of its own, where this machine allows it."""
    apart = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    if os.environ.get(APART) or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    if subprocess.run((*apart, "true"), capture_output=True).returncode != 0:
        return
    # a shell waits for orphans, which would stay zombies of the first process else
    script = 'mount -t tmpfs none /dev/shm && "$@"; exit $?'
    again = (sys.executable, "-m", module, *sys.argv[1:])
    os.environ[APART] = "1"
    os.execvp("unshare", (*apart, "sh", "-c", script, "sh", *again))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults")
    parser.add_argument("--tries", type=int, default=100, help="of each fault; a fifth of those that take long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no try after this long")
    parser.add_argument("--launchers", nargs="*", choices=[*LAUNCHERS], default=[*LAUNCHERS])
    parser.add_argument("--faults", nargs="*", default=[], help="only those whose names hold one of these words")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=page.PAGE)
    parser.add_argument("--only-page", action="store_true", help="write the page from the tries that there are")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where every try of this round was right, lost nothing and left nothing."""
    options = parse(arguments)
    # a shell has its background ignore it, and then all that is started from here would
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong, absent = 0, {}
    if not options.only_page:
        set_apart("tests.faults.run")
        with ExitStack() as ending:
            ready = []
            for name in options.launchers:
                try:
                    ready.append(ending.enter_context(LAUNCHERS[name]()))
                except Exception as error:  # noqa: BLE001 - whatever keeps it from starting is told in the page
                    absent[name] = str(error).strip().splitlines()[-1]
                    print(f"{name}: not tried here: {absent[name]}", file=sys.stderr)
            wrong = rounds(options, ready)
    page.write(options.page, read(options.results))
    print(f"wrote {options.page}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
