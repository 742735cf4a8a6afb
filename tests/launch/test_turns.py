"""Who has the next turn, what becomes of turns when somebody is gone, and limits that leave waiting out."""

import selectors
import socket
import stat
import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from suite.launch import supervise, watching
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Outcome
from suite.launch.supervise import Patience
from suite.launch.turns import Arbiter, Listener, Start, balanced_orders
from suite.launch.watching import connected
from suite.worker.turns import DriverGoneError, open_turns
from tests.launch.ranks import QUICK, STERN, Clock, make_folder, make_job
from tests.waiting import wait_until


class Driver:
    """An arbiter whose selector is served when a test says so, and ranks that are sockets."""

    def __init__(self, lengths: tuple[int, int] = (1, 1), **ranks: int) -> None:
        self.selector, self.listener = selectors.DefaultSelector(), Listener(shared=False)
        self.now = 0.0
        self.arbiter = Arbiter(self.selector, self.listener, ranks, "seed", lengths, lambda: self.now)
        self.lengths: list[int] = []
        self.rows: dict[str, list[socket.socket]] = {}

    def connect(self, text: str) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX)
        channel.connect(connected(self.listener.address))
        channel.setblocking(False)
        channel.sendall(text.encode())
        self.serve()
        return channel

    def rank(self, row: str, rank: int = 0) -> None:
        self.rows.setdefault(row, []).append(self.connect(f'{{"run": "{row}", "rank": {rank}}}\n?'))

    def ask(self, row: str) -> None:
        for channel in self.rows[row]:
            channel.sendall(b"?")
        self.serve()

    def serve(self) -> None:
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def going(self) -> list[str]:
        """Rows whose ranks were all told to go on, for as many iterations."""
        going = []
        for row, channels in self.rows.items():
            heard = {told(channel) for channel in channels}
            if len(heard) == 1 and (length := heard.pop()):
                self.lengths.append(*length)
                going.append(row)
        return going

    def turns(self, count: int) -> list[str]:
        """Who has the next turns, each of which ends."""
        seen = []
        for _ in range(count):
            (row,) = self.going()
            seen.append(row)
            self.ask(row)
        return seen


def told(channel: socket.socket) -> bytes | None:
    """What was told since; null where nothing was, empty at the end."""
    try:
        return channel.recv(64)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("count", range(1, 8))
def test_in_a_block_every_row_follows_each_other_one_equally_often_and_has_every_place(count: int) -> None:
    names, block = "abcdefg"[:count], count * (1 + count % 2)
    for seed in ("one", "other"):
        rounds = [*islice(balanced_orders(names, seed), block)]
        follows = Counter(pair for order in rounds for pair in pairwise(order))
        places = Counter((place, name) for order in rounds for place, name in enumerate(order))
        assert len(follows) == count * (count - 1) and len(set(follows.values())) <= 1
        assert len(places) == count * count and len(set(places.values())) == 1
        assert rounds == [*islice(balanced_orders(names, seed), block)], "it follows from the seed"


def test_one_row_goes_at_a_time_and_each_once_in_a_round() -> None:
    driver = Driver(a=1, b=2, c=1)
    for row in "abc":
        driver.rank(row)
    assert driver.going() == [], "a rank of b is not there yet"
    driver.rank("b", 1)
    seen = driver.turns(12)
    rounds = {tuple(seen[start : start + 3]) for start in range(0, 12, 3)}
    assert {tuple(sorted(one)) for one in rounds} == {("a", "b", "c")} and len(rounds) > 1


@pytest.mark.parametrize(
    ("lengths", "seconds", "expected"),
    [
        ((1, 10), {"a": 0.045, "b": 0.4}, [0, 1, 1, 5, 5]),  # the faster one decides
        ((1, 4), {"a": 0.045, "b": 0.4}, [0, 1, 1, 4, 4]),
        ((1, 10), {"a": 0.071, "b": 0.4}, [0, 1, 1, 1, 1]),
        ((3, 3), {"a": 0.045, "b": 0.4}, [0, 3, 3, 3, 3]),
    ],
)
def test_turns_of_short_iterations_have_several_once_the_second_tells_how_short(lengths, seconds, expected):
    driver = Driver(lengths, a=1, b=1)
    driver.rank("a")
    driver.rank("b")
    for _ in range(10):
        (row,) = driver.going()
        is_first = len(driver.lengths) <= 4
        driver.now += (10 if is_first else 1) * max(1, driver.lengths[-1]) * seconds[row]
        driver.ask(row)
    assert driver.lengths == [length for length in expected for _ in "ab"]


@pytest.mark.parametrize("in_its_turn", [True, False])
def test_a_row_that_loses_a_rank_is_waited_for_until_its_run_is_over_and_then_no_more(in_its_turn: bool) -> None:
    driver = Driver(a=1, b=1)
    driver.rank("a")
    driver.rank("b")
    (going,) = driver.going()
    lost, other = (going, ({"a", "b"} - {going}).pop())
    if not in_its_turn:
        lost, other = other, lost
    driver.rows[lost][0].close()
    driver.serve()
    if not in_its_turn:
        driver.ask(other)
    assert told(driver.rows[other][0]) is None, "its processes may still be at work"
    driver.arbiter.end(lost)
    driver.rows.pop(lost)
    assert driver.turns(4) == [other] * 4


def test_a_run_that_ends_before_it_connects_is_not_waited_for() -> None:
    driver = Driver(a=1, b=2)
    driver.rank("a")
    assert driver.going() == []
    driver.arbiter.end("b")
    assert driver.turns(2) == ["a", "a"]


def test_whoever_watches_is_told_when_all_ranks_wait_and_when_they_go_on() -> None:
    driver = Driver(a=2, b=1)
    watcher = driver.connect('{"run": "a", "watches": true}\n')
    driver.rank("a", 0)
    assert told(watcher) is None
    driver.rank("a", 1)
    assert told(watcher) == b"-" == told(driver.connect('{"run": "a", "watches": true}\n'))
    driver.rows["a"].pop().close()
    driver.serve()
    assert told(watcher) == b"+", "one has ended: what the other does is up to its launcher"


@pytest.mark.parametrize(
    "text",
    [
        *('{"run": "x", "rank": 0}\n', '{"run": "a", "rank": 1}\n', '{"run": "a", "rank": true}\n', '{"run": "a"}\n'),
        *("[]\n", "\x00\n", "?\n", '{"run": "b", "watches": true}\nx', '{"run": "a", "rank": 0}\n', "x" * 5000),
    ],
)
def test_who_makes_no_sense_is_sent_away_and_disturbs_nobody(text: str) -> None:
    driver = Driver(a=1, b=1)
    driver.rank("a")
    assert told(driver.connect(text)) == b""
    driver.rank("b")
    assert len(driver.turns(4)) == 4


def test_the_socket_is_nobody_elses_and_goes_once_all_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    listener = Listener(shared=True)
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    driver = Driver(a=1)
    driver.arbiter.close()
    driver.arbiter, driver.listener = Arbiter(driver.selector, listener, {"a": 1}, "seed"), listener
    job = Start("x", ("a",), listener.address, listener.folder).admit(make_job(make_folder(tmp_path), ""))
    assert [(mount.source, mount.target) for mount in job.mounts] == [(str(folder), str(folder))]
    driver.rank("a")
    assert not folder.exists() and driver.turns(2) == ["a", "a"]


def test_a_rank_whose_driver_is_gone_fails() -> None:
    driver = Driver(a=1, b=1)
    where, manifest = {"SUITE_TURNS": driver.listener.address}, {"run": {"id": "a"}, "measure": {}}
    turns = open_turns(where, manifest, 0)
    driver.serve()
    driver.arbiter.close()
    with pytest.raises(DriverGoneError, match="the driver that gives turns is gone"):
        turns.ask()
    with pytest.raises(DriverGoneError):
        open_turns(where, manifest, 0)


class Waiting:
    """A run of the real launcher whose driver, the test, has it wait, and whose clock the test moves."""

    def __init__(self, root: Path, patience: Patience, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock({})
        for module in (supervise, watching):
            monkeypatch.setattr(module, "time", self.clock)
        self.listener = Listener(shared=False)
        folder = make_folder(root)
        job = make_job(folder, script)
        self.job = Start("x", ("test",), self.listener.address, None).admit(job)
        self.launcher, self.folder, self.events = LocalLauncher(patience), folder, threading.Event()
        self.channel: socket.socket | None = None
        self.rank: psutil.Process | None = None

    def run(self, play: Callable[[], None]) -> Outcome:
        """``play`` is called in a thread once the rank has spoken."""

        def started() -> None:
            self.channel, _ = self.listener.socket.accept()
            self.events.wait()
            play()

        def on_event(event: dict[str, Any]) -> None:
            self.rank = psutil.Process(event["pid"])
            self.events.set()

        thread = threading.Thread(target=started)
        thread.start()
        outcome = self.launcher.run(self.job, self.folder, on_event)
        thread.join()
        return outcome

    def tell(self, word: bytes) -> None:
        self.channel.sendall(word)

    def wait(self) -> None:
        """Have it wait, and know that it does."""
        self.tell(b"-")
        wait_until(lambda: self.is_stopped)

    def pass_seconds(self, seconds: float) -> None:
        """The driver looks at its limits afterwards."""
        self.clock.ahead += seconds
        self.tell(b"-" if self.is_stopped else b"+")

    @property
    def is_stopped(self) -> bool:
        return self.rank is not None and self.rank.status() == psutil.STATUS_STOPPED


SLEEPS = 'event("start", pid=os.getpid())\nsignal.pause()'
ENDS_WHEN_WOKEN = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
event("start", pid=os.getpid())
signal.sigwait([signal.SIGCONT])
"""


def test_ranks_that_wait_are_stopped_and_neither_silent_nor_late(tmp_path: Path, monkeypatch: Any) -> None:
    run = Waiting(tmp_path, QUICK, ENDS_WHEN_WOKEN, monkeypatch)

    def play() -> None:
        run.wait()
        run.pass_seconds(5000.0)
        run.pass_seconds(5000.0)
        run.tell(b"+")

    outcome = run.run(play)
    assert outcome.status == "ok", outcome.failure
    assert outcome.elapsed_seconds > 10_000


@pytest.mark.parametrize("limit", ["hang", "timeout"])
def test_what_passes_in_its_own_turn_counts(limit: str, tmp_path: Path, monkeypatch: Any) -> None:
    run = Waiting(tmp_path, STERN, SLEEPS, monkeypatch)
    limits = {"hang": {"silence_seconds": 100.0}, "timeout": {"run_seconds": 100.0, "silence_seconds": 1e6}}[limit]
    run.job = run.job.model_copy(update={"limits": run.job.limits.model_copy(update=limits)})

    def play() -> None:
        run.pass_seconds(60.0)
        run.wait()
        run.pass_seconds(5000.0)
        run.tell(b"+")
        wait_until(lambda: not run.is_stopped)
        run.pass_seconds(60.0)

    outcome = run.run(play)
    assert outcome.failure is not None and outcome.failure.kind == limit


def test_a_driver_that_is_gone_leaves_no_rank_stopped(tmp_path: Path, monkeypatch: Any) -> None:
    run = Waiting(tmp_path, QUICK, ENDS_WHEN_WOKEN, monkeypatch)

    def play() -> None:
        run.wait()
        run.channel.close()

    assert run.run(play).status == "ok"
