"""A small round of ``make faults``, and that what the harness has to see is seen."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults import local, page
from tests.faults.run import Launcher, make, rounds
from tests.faults.scene import APART, MARK, Scene
from tests.faults.soak import flatness
from tests.faults.tries import Fault, Missed, Try, Verdict, Wrong, append, following, read
from tests.waiting import wait_until

FAULTS = {fault.name: fault for fault in local.FAULTS}
SLEEPING = (sys.executable, "-c", "import time; time.sleep(60)")


def toy(do: Callable[[Scene, Random], Verdict], name: str = "toy") -> Fault:
    return Fault("toy", name, "none", do, "anything")


def one_try(do: Callable[[Scene, Random], Verdict]) -> Try:
    return make(toy(do), Launcher(()), seed=1, number=0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tries that leave something, which is waited for in vain."""
    monkeypatch.setattr("tests.faults.scene.SETTLE_SECONDS", 0.8)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("half an event, and SIGKILL", marks=pytest.mark.slow),
        pytest.param("foreign bytes on a rank's output", marks=[pytest.mark.ranks, pytest.mark.ci]),
    ],
)
def test_a_fault_is_borne(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("tests.faults.scene.SETTLE_SECONDS", 100.0)
    made = make(FAULTS[name], Launcher(()), seed=1, number=0)
    assert (made.verdict, made.lost, made.left) == ("right", 0, {}), made


@pytest.mark.usefixtures("impatient")
class TestWhatIsLeft:
    def test_a_process_is_seen_also_in_a_session_of_its_own_and_ended(self) -> None:
        pids = []

        def leave(scene: Scene, random: Random) -> Verdict:
            pids.append(subprocess.Popen(SLEEPING, env=scene.environment, start_new_session=True))
            # the kernel shows it a moment after the process is there
            wait_until(lambda: MARK.encode() in Path(f"/proc/{pids[0].pid}/environ").read_bytes())
            return Verdict("")

        made = one_try(leave)
        assert [name.partition(" ")[0] for name in made.left["processes"]] == [str(pids[0].pid)]
        assert pids[0].wait(100) == -9, "what a fault leaves goes with its try"

    def test_files_drafts_and_shared_memory_are_seen_and_what_belongs_there_is_not(self, monkeypatch):
        monkeypatch.setenv(APART, "1")
        segment = Path("/dev/shm/suite-faults-test")

        def leave(scene: Scene, random: Random) -> Verdict:
            segment.touch()
            scene.ending.callback(segment.unlink)
            (scene.tmp / "socket").touch()
            (scene.runs / ".submitted" / ".hidden").mkdir(parents=True)
            (scene.runs / "a-run").mkdir()
            (scene.runs / "a-run" / ".record.json.1").touch()
            return Verdict("")

        left = one_try(leave).left
        assert left["files"] == ["runs/a-run/.record.json.1", "tmp/socket"]
        assert segment.name in left["shared memory"]


@pytest.mark.usefixtures("impatient")
class TestVerdicts:
    @pytest.mark.parametrize(
        ("error", "verdict", "said"),
        [(Wrong("no"), "wrong", "no"), (Missed("late"), "missed", "late"), (KeyError("x"), "wrong", "KeyError: 'x'")],
    )
    def test_what_is_wrong_missed_or_breaks_is_told_apart(self, error: Exception, verdict: str, said: str) -> None:
        def do(scene: Scene, random: Random) -> Verdict:
            raise error

        made = one_try(do)
        assert (made.verdict, made.said) == (verdict, said)

    def test_a_round_ends_with_1_for_a_wrong_try_a_lost_iteration_or_a_thing_that_was_left(self, tmp_path):
        def left(scene: Scene, random: Random) -> Verdict:
            (scene.tmp / "file").touch()
            return Verdict("")

        faults = (
            toy(lambda scene, random: Verdict(""), "right"),
            toy(lambda scene, random: Verdict("", lost=1), "lost"),
            toy(left, "left"),
        )
        options = argparse.Namespace(seconds=1000, tries=1, seed=1, faults=[], results=tmp_path / "tries.jsonl")
        assert rounds(options, [Launcher(faults)]) == 2
        assert [one.fault for one in read(options.results)] == ["right", "lost", "left"]
        assert rounds(options, [Launcher(faults)]) == 0, "there are enough of each"


class TestTries:
    def test_they_add_up_in_a_file_whose_last_line_may_be_cut_off(self, tmp_path: Path) -> None:
        path, fault = tmp_path / "tries.jsonl", toy(lambda scene, random: Verdict(""))
        for number, verdict in enumerate(("right", "missed")):
            append(path, Try("toy", "toy", 1, number, verdict, ""))  # type: ignore[arg-type]
        with path.open("a") as file:
            file.write('{"launcher": "to')
        assert [one.verdict for one in read(path)] == ["right", "missed"]
        assert following(fault, 2, 1, read(path)) == 2
        assert following(fault, 1, 1, read(path)) is None
        assert following(fault, 1, 2, read(path)) == 0, "another seed is another round"
        assert following(fault._replace(is_long=True), 5, 1, read(path)) is None, "a fifth of five is one"

    def test_every_fault_has_a_name_of_its_own(self) -> None:
        assert len({fault.key for fault in page.FAULTS}) == len(page.FAULTS)


def test_the_page_counts_and_names_what_was_not_right() -> None:
    fault = FAULTS["slow rank"]
    good = Try(*fault.key, 1, 0, "right", "fine", when=1.7e9, seconds=3)
    bad = Try(*fault.key, 1, 1, "wrong", "a `hang` | and\nmore", lost=2, left={"processes": ["7 python"]}, when=1.7e9)
    late = Try(*fault.key, 1, 2, "missed", "over", when=1.7e9)
    host = {"cpu": {"model": "some", "cores": 2, "threads": 2}}
    text = page.table([good, bad, late], host)
    assert "**1 of 2 tries came out right" in text and "1 more came when the run was over" in text
    assert f"| local | slow rank | {fault.work} | 2 | 1 | 2 | 1 processes | not needed | 2 |" in text
    assert "number 1 of seed 1: wrong: a 'hang' / and\\nmore; 2 iterations lost; left behind: 7 python" in text
    assert "Not tried: local: SIGKILL of the driver" in text
    assert "Nothing was tried yet" in page.table([late], host)


def test_a_leak_grows_noise_is_flat_and_few_wild_runs_cannot_tell() -> None:
    noise = Random(1)
    runs = [100 + noise.gauss(0, 1) for _ in range(1000)]
    assert flatness("x", runs).verdict == "flat"
    leaking = [value + 0.05 * index for index, value in enumerate(runs)]
    assert flatness("x", leaking).verdict == "grows"
    assert flatness("x", leaking).growth == pytest.approx(0.05 * 1000 * 19 / 21, rel=0.05)
    wild = [100 + noise.gauss(0, 60) for _ in range(42)]
    assert flatness("x", wild).verdict == "cannot tell"
