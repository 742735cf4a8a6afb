"""Ranks on a Ray cluster, without one: what they are told, what they print, how they end, and what of it comes home."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from suite.launch.classify import strongest
from suite.launch.cluster.ending import FailedRank, failed_ranks
from suite.launch.kubernetes.pod import PATTERNS, RANKS_VARIABLE, entry_point, pod_variables, ranks_text
from suite.worker import ray_ranks
from suite.worker.rank import LAUNCH_VARIABLES, read_rank
from suite.worker.ray_ranks import Ended, RankProcess, Wanted, order, rank_environment, read_wanted, table
from tests.launch.kubernetes.runs import job_of

WANTED = Wanted(argv=["python"], nodes=2, ranks_per_node=4, limit_seconds=10.0, variables={"A": "1"})


def node(name: str, address: str, **other: Any) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": True, "Resources": {"CPU": 1.0}, **other}


def test_what_the_pods_are_given_is_what_is_read():
    job = job_of(nodes=3, ranks_per_node=2, device_count=0, env={"CUDA_VISIBLE_DEVICES": ""})
    assert ray_ranks.RANKS_VARIABLE == RANKS_VARIABLE and entry_point(job)[1:] == ("-m", ray_ranks.__name__)
    found = read_wanted({RANKS_VARIABLE: ranks_text(job)})
    assert (found.argv, found.nodes, found.ranks_per_node) == (list(job.argv), 3, 2)
    assert (found.limit_seconds, found.variables) == (3600.0, {"CUDA_VISIBLE_DEVICES": ""})


def test_every_rank_finds_itself_as_torchrun_would_have_it():
    for rank in range(8):
        found = ray_ranks.variables(rank, WANTED, "10.0.0.1", 4000, "10.0.0.1:6379")
        assert set(LAUNCH_VARIABLES) <= found.keys()
        assert read_rank(found) == (rank, 8, rank % 4, 4)
        assert (found["GROUP_RANK"], found["RAY_ADDRESS"], found["A"]) == (str(rank // 4), "10.0.0.1:6379", "1")


def test_rank_0_is_beside_the_head_and_dead_nodes_have_no_ranks():
    head = node("c", "10.0.0.9", Resources={"node:__internal_head__": 1.0})
    nodes = [node("a", "10.0.0.2"), node("b", "10.0.0.1"), head, node("d", "10.0.0.0", Alive=False)]
    assert [each["NodeID"] for each in order(nodes)] == ["c", "b", "a"]


def test_failures_are_told_in_words_that_are_read_at_home():
    text = table([Ended(5, 1, -9), Ended(0, 0, 1), Ended(4, 0, -15)])
    assert failed_ranks(text.encode().splitlines(keepends=True)) == {
        5: FailedRank(-9, True),
        0: FailedRank(1, False),
        4: FailedRank(-15, False),
    }


class TestProcess:
    """The actor is a plain class; here without Ray around it."""

    def start(self, code: str, **variables: str) -> RankProcess:
        process = RankProcess()
        process.start([sys.executable, "-c", code], variables)
        return process

    def answers(self, process: RankProcess) -> Iterator[tuple[list[bytes], int | None]]:
        code = None
        while code is None:
            lines, code = process.output(20.0)
            yield lines, code

    def all_of(self, process: RankProcess) -> tuple[list[bytes], int | None]:
        parts = list(self.answers(process))
        return [line for lines, _ in parts for line in lines], parts[-1][1]

    def test_all_that_it_prints_comes_with_its_exit_code(self):
        code = "import os, sys; print(os.environ['A'], flush=True); print('x' * 10, file=sys.stderr); sys.exit(3)"
        assert self.all_of(self.start(code, A="1")) == ([b"1\n", b"x" * 10 + b"\n"], 3)

    def test_an_answer_is_bounded_and_nothing_is_lost(self):
        parts = list(self.answers(self.start("for n in range(3000): print(str(n) * 200)")))
        assert max(sum(map(len, lines)) for lines, _ in parts) < (1 << 20) + 2000
        assert [line for lines, _ in parts for line in lines] == [f"{n}".encode() * 200 + b"\n" for n in range(3000)]

    def test_one_that_says_nothing_is_waited_for_and_can_be_ended(self):
        process = self.start("import time; time.sleep(1000)")
        assert process.output(0.05) == ([], None)
        process.end(signal.SIGKILL)
        assert self.all_of(process) == ([], -signal.SIGKILL)

    def test_what_ray_says_of_its_workers_is_not_a_ranks(self, monkeypatch):
        monkeypatch.setenv("RAY_JOB_ID", "01000000")
        found = rank_environment({**os.environ, "B": "2"}, {"RAY_ADDRESS": "a:1"})
        assert "RAY_JOB_ID" not in found and (found["B"], found["RAY_ADDRESS"]) == ("2", "a:1")


class ScriptedRay:
    """Keeps what its actors were sent; what it is asked for are the actors, each of which answers what was scripted."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def wait(self, actors: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return [one for one in actors if one.answers], [one for one in actors if not one.answers]

    def get(self, actor: Any) -> Any:
        answer = actor.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedActor:
    def __init__(self, ray: ScriptedRay, rank: int, *answers: Any) -> None:
        self._ray, self._rank, self.answers = ray, rank, list(answers)
        self.output, self.end = SimpleNamespace(remote=lambda _seconds: self), SimpleNamespace(remote=self._end)

    def _end(self, number: int) -> None:
        self._ray.sent.append((self._rank, number))
        self.answers = [([b"ended\n"], -number)]


def follow(ray: ScriptedRay, *actors: ScriptedActor, seconds: float = 60.0) -> list[Ended]:
    return ray_ranks._follow(ray, list(actors), WANTED, time.monotonic() + seconds)


class TestFollowing:
    def test_all_lines_are_printed_as_they_are_and_whole(self, capfdbinary):
        ray = ScriptedRay()
        event = b'::suite:: {"kind":"start","rank":1}\n'
        first = ScriptedActor(ray, 0, ([b"loading\n"], None), ([], 0))
        assert follow(ray, first, ScriptedActor(ray, 1, ([event, b"half"], 0))) == [Ended(1, 1, 0), Ended(0, 0, 0)]
        assert capfdbinary.readouterr().out == b"loading\n" + event + b"half\n"

    def test_when_one_fails_the_others_are_ended(self):
        ray = ScriptedRay()
        ended = follow(ray, ScriptedActor(ray, 0), ScriptedActor(ray, 1, ([b"no\n"], 1)))
        assert ended == [Ended(1, 1, 1), Ended(0, 0, -signal.SIGTERM)]
        assert ray.sent == [(0, signal.SIGTERM)]

    def test_when_the_time_is_over_all_are_ended_and_it_is_told(self, capfdbinary):
        ray = ScriptedRay()
        ended = follow(ray, ScriptedActor(ray, 0), ScriptedActor(ray, 1), seconds=-1.0)
        assert {each.code for each in ended} == {-signal.SIGTERM}
        told = capfdbinary.readouterr().out.decode().splitlines()
        found = strongest(told, PATTERNS, started=True)
        assert found[0].kind == "timeout"

    def test_an_actor_that_is_gone_is_a_rank_that_was_killed(self, capfdbinary):
        ray = ScriptedRay()
        ended = follow(ray, ScriptedActor(ray, 0, RuntimeError("the node died")))
        assert ended == [Ended(0, 0, -signal.SIGKILL)]
        assert b"the actor of rank 0 is gone: the node died\n" in capfdbinary.readouterr().out


def test_ray_is_told_the_same_whoever_starts_it():
    from suite.worker.trainers import ray_cluster

    own = {name: value for name, value in pod_variables(job_of()).items() if name.startswith("RAY_")}
    assert own == {**ray_cluster._VARIABLES, "RAY_AUTH_MODE": "disabled"}
