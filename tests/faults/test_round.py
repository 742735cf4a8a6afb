"""A small round of ``make faults``, and that what the harness has to see is seen."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from suite.launch.cluster.torchrun import failed_ranks
from tests.faults import local, page, pods
from tests.faults.launchers import Launcher
from tests.faults.run import make, rounds
from tests.faults.scene import MARK, Scene
from tests.faults.soak import flatness, slope
from tests.faults.tries import Fault, Missed, Try, Verdict, Wrong, append, following, random_of, read
from tests.kubernetes_server.scripted_torchrun import tell
from tests.waiting import wait_until

FAULTS = {fault.name: fault for fault in local.FAULTS}
SLEEPING = (sys.executable, "-c", "import time; time.sleep(60)")


def toy(do: Callable[[Scene, Random], Verdict], name: str = "toy") -> Fault:
    return Fault("toy", name, "none", do, "anything")


def one_try(do: Callable[[Scene, Random], Verdict]) -> Try:
    fault = toy(do)
    (made,) = make(fault, Launcher((fault,)), seed=1, number=0)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tries that leave something, which is waited for in vain."""
    monkeypatch.setattr("tests.faults.scene.SETTLE_SECONDS", 0.8)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("half an event, and SIGKILL", marks=pytest.mark.slow),
        pytest.param("foreign bytes on a rank's output", marks=pytest.mark.ranks),
    ],
)
def test_a_fault_is_borne(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("tests.faults.scene.SETTLE_SECONDS", 100.0)
    (made,) = make(FAULTS[name], Launcher(()), seed=1, number=0)
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

    def test_files_and_drafts_are_seen_and_what_belongs_there_is_not(self) -> None:
        def leave(scene: Scene, random: Random) -> Verdict:
            (scene.tmp / "socket").touch()
            (scene.runs / ".submitted" / ".hidden").mkdir(parents=True)
            (scene.runs / "a-run").mkdir()
            (scene.runs / "a-run" / ".record.json.1").touch()
            return Verdict("")

        assert one_try(leave).left == {"files": ["runs/a-run/.record.json.1", "tmp/socket"]}

    def test_shared_memory_is_seen(self) -> None:
        segment = Path("/dev/shm/suite-faults-test")

        def leave(scene: Scene, random: Random) -> Verdict:
            segment.touch()
            return Verdict("")

        try:
            assert "suite-faults-test" in one_try(leave).left["shared memory"]
        finally:
            segment.unlink()


@pytest.mark.usefixtures("impatient")
class TestVerdicts:
    def test_what_is_wrong_missed_or_breaks_is_told_apart(self) -> None:
        def raising(error: Exception) -> Callable[[Scene, Random], Verdict]:
            def do(scene: Scene, random: Random) -> Verdict:
                raise error

            return do

        errors = (Wrong("no"), Missed("late"), KeyError("x"))
        made = [one_try(raising(error)) for error in errors]
        assert [one.verdict for one in made] == ["wrong", "missed", "wrong"]
        assert "KeyError" in made[2].said

    def test_a_round_ends_with_1_for_a_wrong_try_a_lost_iteration_or_a_thing_that_was_left(
        self, tmp_path: Path
    ) -> None:
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

    def test_a_try_follows_from_its_number_alone(self) -> None:
        fault = FAULTS["slow rank"]
        assert random_of(fault, 1, 5).random() == random_of(fault, 1, 5).random()
        assert random_of(fault, 1, 5).random() != random_of(fault, 1, 6).random()

    def test_every_fault_has_a_name_of_its_own(self) -> None:
        assert len({fault.key for fault in page.FAULTS}) == len(page.FAULTS)


class TestPods:
    def test_the_stand_in_for_torchrun_names_the_rank_that_failed_as_torchrun_does(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rank = subprocess.Popen(("sleep", "60"))
        rank.kill()
        tell(rank, {"RANK": "3", "LOCAL_RANK": "1"}, rank.wait())
        assert failed_ranks(capsys.readouterr().err.encode().splitlines(keepends=True)) == {3: (-9, True)}

    def test_iterations_are_counted_by_the_files_of_this_try_and_by_the_slower_rank(self, tmp_path: Path) -> None:
        node, cluster = SimpleNamespace(logs=tmp_path), SimpleNamespace(namespace="lab")
        site = pods.Site(node, cluster, tmp_path)  # type: ignore[arg-type]
        line = '2026-11-23T10:00:00Z stdout F ::suite:: {"kind": "iteration", "rank": %d}\n'
        for pod, text in (
            ("lab_a_1", line % 0 * 3),
            ("lab_b_2", line % 1 * 2 + (line % 1)[:-2]),
            ("other_c_3", line % 1),
        ):
            (tmp_path / pod / "ranks").mkdir(parents=True)
            (tmp_path / pod / "ranks" / "0.log").write_text(text)
        assert site.finished() == 2
        site.old_logs = frozenset(tmp_path.glob("lab_*"))
        assert site.finished() == 0


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


def test_a_page_keeps_the_words_around_its_table(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n[\nold\n]\nafter\n")
    page.put(path, "[", "]", "new")
    assert path.read_text() == "before\n[\nnew\n]\nafter\n"
    page.put(tmp_path / "another.md", "[", "]", "new")
    assert (tmp_path / "another.md").read_text() == "[\nnew\n]"


class TestFlatness:
    def test_a_slope_has_its_interval(self) -> None:
        assert slope([1.0, 3.0, 5.0, 7.0]) == pytest.approx((2, 2, 2))
        steep = slope([0.0, 1.2, 1.8, 3.1])
        assert steep.low < 1 < steep.high and steep.low > 0

    def test_a_leak_grows_noise_is_flat_and_few_wild_runs_cannot_tell(self) -> None:
        noise = Random(1)
        runs = [100 + noise.gauss(0, 1) for _ in range(1000)]
        assert flatness("x", runs).verdict == "flat"
        leaking = [value + 0.05 * index for index, value in enumerate(runs)]
        assert flatness("x", leaking).verdict == "grows"
        assert flatness("x", leaking).growth == pytest.approx(0.05 * 1000 * 19 / 21, rel=0.05)
        wild = [100 + noise.gauss(0, 60) for _ in range(42)]
        assert flatness("x", wild).verdict == "cannot tell"
