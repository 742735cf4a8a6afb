"""The local launcher: real processes to every kind of end, and none of them left."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from suite.launch import supervise
from suite.launch.job import Job, Mount
from suite.launch.local import LocalLauncher, rank_variables
from suite.launch.logs import FIRST_BYTES, LAST_BYTES, MOST_BYTES
from suite.launch.outcome import Outcome
from suite.launch.supervise import Patience
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.launch import ranks
from tests.launch.ranks import QUICK, Ran, make_folder, make_job, run
from tests.synthetic import synthetic_manifest

SCRIPTED = Path(__file__).parents[1] / "scripted_worker.py"

OK = """
event("start", world_size=int(os.environ["WORLD_SIZE"]))
print("hello from", rank)
print("and an error", file=sys.stderr)
event("end", status="ok")
"""


@pytest.fixture(autouse=True, params=[False, True], ids=["spawned", "forked"])
def forked(request, monkeypatch) -> bool:
    """Every test, with ranks that are started by themselves and with forked ones."""
    monkeypatch.setattr(ranks, "FORKED", request.param)
    return request.param


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    gc.collect()  # a launcher that is kept by a traceback keeps the process that it forks ranks from
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()


def gone(pid: int, within_seconds: float = 0.0) -> bool:
    """Whether the process has ended (a zombie has), waiting for it a while."""
    try:
        psutil.Process(pid).wait(within_seconds)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def failure_of(ran: Ran):
    assert ran.outcome.status == "failed"
    return ran.outcome.failure


def test_ranks_that_end_well_are_ok_with_events_delivered_and_logs_apart(tmp_path):
    ran = run(tmp_path, OK, ranks=2)
    assert ran.outcome.status == "ok"
    assert ran.outcome.exit_codes == {0: 0, 1: 0}
    assert ran.outcome.failure is None
    assert [event["kind"] for event in ran.events] == ["start", "end"]
    assert ran.events[0]["world_size"] == 2
    assert sorted(ran.log(0).splitlines()) == [b"and an error", b"hello from 0"]
    assert sorted(ran.log(1).splitlines()) == [b"and an error", b"hello from 1"]


def test_each_rank_has_torchruns_variables_its_own_session_and_no_terminal(tmp_path):
    ran = run(
        tmp_path,
        """
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
print(json.dumps([[os.environ[name] for name in names], os.getsid(0) == os.getpid(), os.read(0, 9) == b""]))
assert int(os.environ["MASTER_PORT"]) > 0
""",
        ranks=2,
    )
    assert ran.outcome.status == "ok"
    assert ran.log(1).strip() == b'[["1", "2", "1", "2", "0", "127.0.0.1"], true, true]'


def test_visible_devices_are_those_of_the_job(tmp_path):
    job = make_job(make_folder(tmp_path), "")
    assert "CUDA_VISIBLE_DEVICES" not in rank_variables(job, 0, 1)
    assert rank_variables(job.model_copy(update={"devices": ()}), 0, 1)["CUDA_VISIBLE_DEVICES"] == ""
    assert rank_variables(job.model_copy(update={"devices": ("3", "1")}), 0, 1)["CUDA_VISIBLE_DEVICES"] == "3,1"


def test_a_rank_that_exits_badly_ends_the_run_and_is_named_with_its_last_lines(tmp_path):
    ran = run(tmp_path, 'print("the reason", flush=True)\nsys.exit(7) if rank == 1 else time.sleep(60)', ranks=2)
    failure = failure_of(ran)
    assert failure.kind == "unknown"
    assert failure.evidence == ("rank 1 ended with exit code 7", "rank 1: the reason")
    assert ran.outcome.exit_codes == {0: -signal.SIGTERM, 1: 7}
    assert ran.outcome.elapsed_seconds < 5


@pytest.mark.alone
def test_a_killed_rank_is_lost_and_its_neighbours_complaint_is_not_the_cause(tmp_path):
    ran = run(
        tmp_path,
        """
event("start")
event("phase", phase="train", iteration=3)
other = os.path.join(os.environ["EVENTS"], "rank-%d.jsonl" % (1 - rank))
while not os.path.exists(other) or '"phase"' not in open(other).read():
    time.sleep(0.02)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.2)
fail("unknown", "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:26795.")
sys.exit(1)
""",
        ranks=2,
        patience=Patience(),
    )
    failure = failure_of(ran)
    assert (failure.kind, failure.phase, failure.iteration) == ("rank_lost", "train", 3)
    assert failure.evidence[0] == "rank 1 ended by SIGKILL"
    assert ran.outcome.exit_codes == {0: 1, 1: -9}


def test_the_word_of_the_rank_that_raised_counts_and_not_the_ranks_that_follow(tmp_path):
    ran = run(
        tmp_path,
        """
if rank == 1:
    fail("oom_device", "CUDA out of memory. Tried to allocate 2.00 GiB")
    sys.exit(1)
time.sleep(0.2)
fail("rank_lost", "Connection closed by peer [127.0.0.1]:26795")
sys.exit(1)
""",
        ranks=2,
    )
    failure = failure_of(ran)
    assert (failure.kind, failure.phase, failure.iteration) == ("oom_device", "train", 3)
    assert failure.evidence == ("rank 1: CUDA out of memory. Tried to allocate 2.00 GiB",)


def test_a_silent_run_is_a_hang_with_the_last_phase_and_the_stacks_of_all_ranks(tmp_path):
    ran = run(
        tmp_path,
        """
import faulthandler
faulthandler.register(signal.SIGUSR1, all_threads=True)
event("start")
event("phase", phase="generate", iteration=4)
def stuck_in_a_collective():
    time.sleep(60)
stuck_in_a_collective()
""",
        ranks=2,
        silence_seconds=1.2,
    )
    failure = failure_of(ran)
    assert (failure.kind, failure.phase, failure.iteration) == ("hang", "generate", 4)
    assert "the last it reported was phase generate of iteration 4" in failure.evidence[0]
    for rank in (0, 1):
        assert any(line.startswith(f"rank {rank}: ") and "stuck_in_a_collective" in line for line in failure.evidence)


def test_silent_ranks_without_a_handler_are_not_asked_and_those_that_ignore_sigterm_are_killed(tmp_path):
    ran = run(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)", silence_seconds=1.0)
    assert failure_of(ran).kind == "hang"
    assert ran.outcome.exit_codes == {0: -signal.SIGKILL}


def test_events_keep_a_run_from_being_silent(tmp_path):
    ran = run(
        tmp_path,
        'for index in range(12):\n    event("iteration", iteration=index)\n    time.sleep(0.15)',
        silence_seconds=1.2,
    )
    assert ran.outcome.status == "ok"


def scripted(root: Path, script: dict[str, Any], iterations: int) -> Outcome:
    """Two ranks of the scripted worker under a limit of a second of silence."""
    manifest = synthetic_manifest(layout=Layout(devices_per_node=2, data=2), warmup=1, iterations=iterations)
    (root / "manifest.json").write_text(manifest.model_dump_json(by_alias=True))
    folder = make_folder(root)
    job = make_job(folder, "", ranks=2, silence_seconds=1.0).model_copy(
        update={
            "argv": (sys.executable, str(SCRIPTED), str(root / "manifest.json"), "--bundle", str(root)),
            "env": {"SUITE_SCRIPT": json.dumps(script)},
        }
    )
    outcome = LocalLauncher(QUICK).run(job, folder, lambda event: None)
    assert outcome is not None
    return outcome


def test_a_phase_that_is_longer_than_the_limit_of_silence_is_no_hang_while_its_work_goes_on(tmp_path):
    slow = {"seconds": [3.0, 0.01], "sleep": True, "beat": 0.2}
    assert scripted(tmp_path, slow, iterations=1).status == "ok"


def test_a_phase_that_stops_beating_is_a_hang_in_that_phase(tmp_path):
    stuck = {"sleep": True, "beat": 0.2, "at": {"iteration": 1, "phase": "score", "do": "hang", "beats": 2}}
    failure = scripted(tmp_path, stuck, iterations=1).failure
    assert (failure.kind, failure.phase, failure.iteration) == ("hang", "score", 1)


def test_a_run_over_its_time_is_ended(tmp_path):
    ran = run(tmp_path, 'event("start")\ntime.sleep(60)', ranks=2, run_seconds=0.6)
    failure = failure_of(ran)
    assert failure.kind == "timeout"
    assert failure.evidence == ("the run took longer than its limit of 0.6 s",)
    assert ran.outcome.elapsed_seconds < 3


@pytest.mark.parametrize("detach", ["False", "True"])
def test_a_grandchild_left_behind_is_ended_also_in_a_session_of_its_own(tmp_path, detach):
    ran = run(
        tmp_path,
        f"""
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"], start_new_session={detach})
print(child.pid, flush=True)
os._exit(0)
""",
    )
    assert ran.outcome.status == "ok"
    assert gone(int(ran.log().split()[0]))


def test_a_failed_run_takes_its_grandchildren_along(tmp_path):
    ran = run(
        tmp_path,
        """
child = subprocess.Popen([sys.executable, "-I", "-S", "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
""",
        run_seconds=1.0,
    )
    assert failure_of(ran).kind == "timeout"
    assert gone(int(ran.log().split()[0]))


def test_a_hundred_megabytes_of_output_are_kept_in_little_memory(tmp_path):
    before = psutil.Process().memory_info().rss
    peak = [0]

    def watch_memory(event: dict) -> None:
        peak[0] = max(peak[0], psutil.Process().memory_info().rss)

    folder = make_folder(tmp_path)
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
    outcome = LocalLauncher(QUICK).run(make_job(folder, script), folder, watch_memory)
    assert outcome.status == "ok"
    log = (folder.logs_dir / "rank-0.log").read_bytes()
    assert FIRST_BYTES + LAST_BYTES <= len(log) + 64 <= MOST_BYTES
    assert log.startswith(b"x" * FIRST_BYTES + b"\n[suite: ") and log.endswith(b"y" * 63 + b"\n")
    assert log.count(b"bytes were cut here") == 1
    assert peak[0] - before < 20 << 20


def test_output_in_the_pipe_when_the_rank_ends_is_not_lost(tmp_path):
    script = r"""os.write(1, b"z" * 60000 + b'\n::suite:: {"kind": "end"}\nlast words')"""
    ran = run(tmp_path, script)
    assert ran.events == [{"kind": "end"}]
    assert ran.log() == b"z" * 60000 + b"\nlast words"


def test_garbage_behind_the_prefix_is_kept_in_the_log_and_disturbs_nothing(tmp_path):
    ran = run(
        tmp_path,
        """
print("::suite:: {not json", flush=True)
print('::suite:: {"kind": "phase", "phase": 5, "iteration": []}', flush=True)
print("::suite:: " + "[" * 100000, flush=True)
sys.exit(3)
""",
    )
    assert failure_of(ran).phase is None
    assert ran.log() == b"::suite:: {not json\n::suite:: " + b"[" * 100000 + b"\n"


@pytest.mark.parametrize(("ranks", "said"), [(1, "logs/rank-0.log has reached"), (2, "logs/rank-1.log has reached")])
def test_a_limit_on_the_size_of_files_is_named(tmp_path, ranks, said):
    """Rank 0 prints through the driver, others into their logs themselves, where their last words find no place."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        ran = run(tmp_path, f'if rank == {ranks - 1}: print("x" * 20000, flush=True)\ntime.sleep(20)', ranks=ranks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    failure = failure_of(ran)
    assert failure.kind == "config"
    assert failure.evidence[0].startswith(f"{said} the 8192 bytes")
    assert "ulimit -f" in failure.evidence[0]
    assert ran.outcome.elapsed_seconds < 10


def test_a_rank_that_leaves_a_pipe_in_the_place_of_its_files_keeps_nobody_waiting(tmp_path):
    ran = run(
        tmp_path,
        """
event("start")
os.remove(os.path.join(os.environ["EVENTS"], "rank-0.jsonl"))
os.mkfifo(os.path.join(os.environ["EVENTS"], "rank-0.jsonl"))
log = os.path.join(os.environ["EVENTS"], "..", "logs", "rank-0.log")
os.remove(log)
os.symlink("/dev/zero", log)
sys.exit(3)
""",
    )
    assert failure_of(ran).evidence == (
        "rank 0 ended with exit code 3",
        "rank 0: logs/rank-0.log is a symbolic link: it was not read",
        "events/rank-0.jsonl is not a regular file: it was not read",
    )


@pytest.mark.parametrize("phase", ['"\\\\ud800"', '"x" * 900000'])
def test_what_a_rank_calls_its_phase_is_cut_to_what_can_be_written_down(tmp_path, phase):
    script = f"""
phase = {phase}
print('::suite:: {{"kind": "phase", "phase": "' + phase + '", "iteration": -5}}', flush=True)
sys.exit(3)
"""
    failure = failure_of(run(tmp_path, script))
    assert failure.iteration is None
    assert failure.phase == ("?" if "ud800" in phase else "x" * 80)


def test_a_full_disk_under_the_log_ends_the_run_as_disk_full(tmp_path, monkeypatch):
    folder = make_folder(tmp_path)
    monkeypatch.setattr(supervise, "open_log", lambda path, name: os.open("/dev/full", os.O_WRONLY))
    outcome = LocalLauncher().run(
        make_job(folder, 'print("x", flush=True)\ntime.sleep(60)'), folder, lambda event: None
    )
    assert outcome.failure.kind == "disk_full"
    assert "No space left on device" in outcome.failure.evidence[0]


def test_a_rank_beyond_its_memory_limit_is_out_of_host_memory(tmp_path):
    ran = run(tmp_path, 'time.sleep(0.2)\nevent("start")\nbytearray(1 << 30)', memory_bytes=500 << 20)
    failure = failure_of(ran)
    assert failure.kind == "oom_host"
    assert failure.evidence == ("rank 0: MemoryError", "rank 0 ended with exit code 1")


def test_a_missing_module_before_the_start_is_a_matter_of_configuration(tmp_path):
    failure = failure_of(run(tmp_path, "import surely_not_there"))
    assert failure.kind == "config"
    assert failure.evidence[0] == "rank 0: ModuleNotFoundError: No module named 'surely_not_there'"


def test_an_exception_of_the_listener_leaves_no_process_and_is_raised(tmp_path):
    folder = make_folder(tmp_path)

    def broken(event: dict) -> None:
        raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        LocalLauncher().run(make_job(folder, 'event("start")\ntime.sleep(60)', ranks=2), folder, broken)


def test_a_second_request_to_stop_kills_ranks_that_do_not_listen_to_the_first(tmp_path):
    folder = make_folder(tmp_path)

    def stop_twice(event: dict) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    job = make_job(folder, 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nevent("start")\ntime.sleep(60)')
    outcome = LocalLauncher(Patience(end_seconds=30.0)).run(job, folder, stop_twice)
    assert outcome.status == "interrupted"
    assert outcome.exit_codes == {0: -signal.SIGKILL}
    assert outcome.elapsed_seconds < 20


def test_without_pidfd_the_exits_are_seen_all_the_same(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    ran = run(tmp_path, "sys.exit(4) if rank == 1 else time.sleep(60)", ranks=2)
    assert ran.outcome.exit_codes == {0: -signal.SIGTERM, 1: 4}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nodes": 2}, "one node, not 2"),
        ({"image": "suite:1"}, "not in the image suite:1"),
        ({"mounts": (Mount(source="/a", target="/b"),)}, "cannot show /a as /b"),
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
    run_folder = tmp_path / "first"
    run_folder.mkdir()
    run(run_folder, OK, ranks=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    second = tmp_path / "second"
    second.mkdir()
    run(second, "sys.exit(1)", ranks=2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
