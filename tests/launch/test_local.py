"""The local launcher: real processes to every kind of end, and none of them left."""

import os
import resource
import signal
from pathlib import Path

import psutil
import pytest

from suite.launch import supervise, watching
from suite.launch.job import Job
from suite.launch.local import LocalLauncher
from suite.launch.supervise import Patience
from suite.launch.traces import FIRST_BYTES, LAST_BYTES, MOST_BYTES
from suite.spec.base import UsageError
from tests.launch import ranks
from tests.launch.ranks import STERN, is_gone, make_folder, make_job, no_process_is_left, run  # noqa: F401

OK = """
event("start", world_size=int(os.environ["WORLD_SIZE"]))
print("hello from", rank)
print("and an error", file=sys.stderr)
event("end", status="ok")
"""
WAIT = 'event("start")\ntime.sleep(600)'
DEAF = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAIT}"


@pytest.fixture(autouse=True, params=[False, True], ids=["spawned", "forked"])
def forked(request, monkeypatch) -> bool:
    """Every test, with ranks that are started by themselves and with forked ones."""
    monkeypatch.setattr(ranks, "FORKED", request.param)
    return request.param


def test_ranks_that_end_well_are_ok_with_events_delivered_and_logs_apart(tmp_path):
    ran = run(tmp_path, OK, ranks=2)
    assert (ran.outcome.status, ran.outcome.exit_codes, ran.outcome.failure) == ("ok", {0: 0, 1: 0}, None)
    assert [(event["kind"], event.get("world_size")) for event in ran.events] == [("start", 2), ("end", None)]
    for rank in (0, 1):
        assert sorted(ran.log(rank).splitlines()) == [b"and an error", b"hello from %d" % rank]


def test_each_rank_has_torchruns_variables_its_own_session_and_no_terminal(tmp_path):
    script = """
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
print(json.dumps([[os.environ[name] for name in names], os.getsid(0) == os.getpid(), os.read(0, 9) == b""]))
assert int(os.environ["MASTER_PORT"]) > 0
"""
    assert run(tmp_path, script, ranks=2).log(1).strip() == b'[["1", "2", "1", "2", "0", "127.0.0.1"], true, true]'


def test_a_rank_that_exits_badly_ends_the_run_and_is_named_with_its_last_lines(tmp_path):
    ran = run(tmp_path, 'print("the reason", flush=True)\nsys.exit(7) if rank == 1 else time.sleep(600)', ranks=2)
    failure = ran.failure
    assert failure.kind == "unknown"
    assert failure.evidence == ("rank 1 ended with exit code 7", "rank 1: the reason")
    assert ran.outcome.exit_codes == {0: -signal.SIGTERM, 1: 7}


def test_a_killed_rank_is_lost_and_its_neighbours_complaint_is_not_the_cause(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "oom_kills", lambda: None)  # others on this machine may run out of memory meanwhile
    script = """
meet("phase")
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.2)
fail("unknown", "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:26795.")
sys.exit(1)
"""
    ran = run(tmp_path, script, ranks=2, patience=Patience(grace_seconds=60))
    failure = ran.failure
    assert (failure.kind, failure.phase, failure.iteration) == ("rank_lost", "train", 3)
    assert failure.evidence[0] == "rank 1 ended by SIGKILL"
    assert ran.outcome.exit_codes == {0: 1, 1: -9}


def test_a_silent_run_is_a_hang_with_the_last_phase_and_the_stacks_of_all_ranks(tmp_path):
    script = """
import faulthandler
faulthandler.register(signal.SIGUSR1, all_threads=True)
def stuck_in_a_collective():
    meet("phase")
    event("iteration")
    time.sleep(600)
stuck_in_a_collective()
"""
    failure = run(tmp_path, script, ranks=2, passing={"iteration": 200}).failure
    assert (failure.kind, failure.phase, failure.iteration) == ("hang", "train", 3)
    assert "the last it reported was phase train of iteration 3" in failure.evidence[0]
    for rank in (0, 1):
        assert any(line.startswith(f"rank {rank}: ") and "stuck_in_a_collective" in line for line in failure.evidence)


def test_silent_ranks_without_a_handler_are_not_asked_and_those_that_ignore_sigterm_are_killed(tmp_path):
    ran = run(tmp_path, DEAF, patience=STERN, passing={"start": 200})
    assert ran.failure.kind == "hang"
    assert ran.outcome.exit_codes == {0: -signal.SIGKILL}


@pytest.mark.parametrize("kind", ["iteration", "progress"])
def test_events_keep_a_run_from_being_silent_for_as_long_as_they_come(tmp_path, kind):
    assert run(tmp_path, f'for _ in range(9):\n    event("{kind}")', passing={kind: 80}).outcome.status == "ok"


def test_a_run_over_its_time_is_ended_whatever_it_reports(tmp_path):
    failure = run(tmp_path, WAIT, ranks=2, run_seconds=90, passing={"start": 91}).failure
    assert failure.kind == "timeout"
    assert failure.evidence == ("the run took longer than its limit of 90 s",)


@pytest.mark.parametrize("how", ["left behind", "in a session of its own", "deaf when the run is ended"])
def test_grandchildren_end_with_the_run(tmp_path, how):
    deaf, detached = how.startswith("deaf"), "own" in how
    child = f"import signal, time; {'signal.signal(15, signal.SIG_IGN); ' * deaf}time.sleep(600)"
    script = f"""
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {child!r}], start_new_session={detached})
print(child.pid, flush=True)
event("start")
{"time.sleep(600)" if deaf else "os._exit(0)"}
"""
    ran = run(tmp_path, script, passing={"start": 2000 * deaf})
    assert ran.outcome.status == ("failed" if deaf else "ok")
    assert is_gone(int(ran.log().split()[0]))


def test_a_hundred_megabytes_of_output_are_kept_in_little_memory(tmp_path):
    before = psutil.Process().memory_info().rss
    peak: list[int] = []
    script = """
for index in range(50):
    os.write(1, b"x" * (1 << 20))
    if index == 25:
        os.write(1, b"\\n")
        event("phase", phase="train", iteration=0)
os.write(1, b"\\n")
for index in range(50):
    os.write(1, (b"y" * 63 + b"\\n") * (1 << 14))
event("end", status="ok")
"""
    ran = run(tmp_path, script, heard=lambda event: peak.append(psutil.Process().memory_info().rss))
    assert ran.outcome.status == "ok"
    log = ran.log()
    assert FIRST_BYTES + LAST_BYTES <= len(log) + 64 <= MOST_BYTES
    assert log.startswith(b"x" * FIRST_BYTES + b"\n[suite: ") and log.endswith(b"y" * 63 + b"\n")
    assert log.count(b"bytes were cut here") == 1
    assert max(peak) - before < 20 << 20


def test_output_in_the_pipe_when_the_rank_ends_is_not_lost(tmp_path):
    script = r"""os.write(1, b"z" * 60000 + b'\n::suite:: {"kind": "end"}\nlast words')"""
    ran = run(tmp_path, script)
    assert ran.events == [{"kind": "end"}]
    assert ran.log() == b"z" * 60000 + b"\nlast words"


def test_a_limit_on_the_size_of_files_is_named(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, hard))
    try:
        failure = run(tmp_path, 'print("x" * 50000, flush=True)\ntime.sleep(600)').failure
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failure.kind == "config"
    assert failure.evidence[0].endswith("logs/rank-0.log: File too large (ulimit -f)")


def test_a_full_disk_under_the_log_ends_the_run_as_disk_full(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "open_log", lambda path, name: os.open("/dev/full", os.O_WRONLY))
    failure = run(tmp_path, f'print("x", flush=True)\n{WAIT}').failure
    assert failure.kind == "disk_full" and "No space left on device" in failure.evidence[0]


def test_a_rank_beyond_its_memory_limit_is_out_of_host_memory(tmp_path):
    failure = run(tmp_path, 'event("start")\nbytearray(1 << 30)', memory_bytes=500 << 20).failure
    assert failure.kind == "oom_host"
    assert failure.evidence == ("rank 0: MemoryError", "rank 0 ended with exit code 1")


def test_an_exception_of_the_listener_leaves_no_process_and_is_raised(tmp_path):
    def broken(event: dict) -> None:
        raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        run(tmp_path, WAIT, ranks=2, heard=broken)


def test_a_second_request_to_stop_kills_ranks_that_do_not_listen_to_the_first(tmp_path):
    def stop_twice(event: dict) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    ran = run(tmp_path, DEAF, patience=Patience(end_seconds=1000.0), heard=stop_twice)
    assert (ran.outcome.status, ran.outcome.exit_codes) == ("interrupted", {0: -signal.SIGKILL})


def test_without_pidfd_the_exits_are_seen_all_the_same(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    ran = run(tmp_path, "sys.exit(4) if rank == 1 else time.sleep(600)", ranks=2)
    assert ran.outcome.exit_codes == {0: -signal.SIGTERM, 1: 4}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nodes": 2}, "one node, not 2"),
        ({"argv": ("/nowhere/python",)}, "/nowhere/python: No such file"),
        ({"working_directory": "/nowhere"}, "/nowhere: No such file"),
    ],
)
def test_a_job_that_cannot_be_run_here_is_refused_in_one_line(tmp_path, change, complaint):
    folder = make_folder(tmp_path)
    job = Job.model_validate({**make_job(folder, OK).model_dump(), **change})
    with pytest.raises(UsageError, match=complaint):
        LocalLauncher().run(job, folder, lambda event: None)


def test_signal_handlers_and_descriptors_are_as_before(tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    counts = []
    for name, script in (("first", OK), ("second", "sys.exit(1)")):
        (tmp_path / name).mkdir()
        run(tmp_path / name, script, ranks=2)
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[0] == counts[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
