"""From what ranks report and how they ended to one root cause."""

import signal
from typing import Any, get_args

import pytest

from suite.launch.classify import PATTERNS, RankEnd, Report, RunEnd, classify, how, strongest
from suite.launch.outcome import NEXT_STEPS, Failure, FailureKind
from suite.launch.processes import OomKills

#: what a rank ends with that cannot start; once it has started they say nothing of why it ended
STARTING = [
    ("config", "ModuleNotFoundError: No module named 'deepspeed'"),
    ("config", "ImportError: cannot import name 'x' from 'torch'"),
    ("config", "/usr/bin/python3: No module named suite.worker"),
    ("config", "python3: can't open file '/x/train.py': [Errno 2] No such file or directory"),
    ("config", "python3: error while loading shared libraries: libpython3.8.so.1.0: cannot open shared object file"),
]
#: what each pattern of the table is for, line by line as CPython, torch, gloo, NCCL and the CUDA runtime word it
REAL_LINES = [
    *STARTING,
    ("oom_device", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"),
    ("oom_device", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB."),
    ("oom_device", "RuntimeError: CUDA error: out of memory"),
    ("oom_device", "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
    ("oom_device", "RuntimeError: CUDA driver error: out of memory"),
    ("oom_device", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("oom_device", "node1:412:412 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'"),
    ("oom_device", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("oom_device", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ("config", "misc/ibvwrap.cc:222 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"),
    ("config", "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url x"),
    ("config", "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/x"),
    ("oom_host", "MemoryError"),
    ("oom_host", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1.00 TiB for an array"),
    ("oom_host", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("oom_host", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("oom_host", "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    ("oom_host", "OSError: [Errno 12] Cannot allocate memory"),
    ("oom_host", "cannot allocate memory for thread-local data: ABORT"),
    ("oom_host", "libgomp: Out of memory allocating 131072 bytes"),
    ("disk_full", "OSError: [Errno 28] No space left on device"),
    ("disk_full", "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory"),
    ("disk_full", "OSError: [Errno 122] Disk quota exceeded: 'rank-0.jsonl'"),
    ("config", "OSError: [Errno 27] File too large"),
    ("driver_mismatch", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
    ("driver_mismatch", "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"),
    ("port_taken", "RuntimeError: The server socket has failed to listen on any local network address. port: 15001"),
    ("port_taken", "torch.distributed.DistNetworkError: port: 15001, code: -98, name: EADDRINUSE"),
    ("port_taken", "OSError: [Errno 98] Address already in use"),
    ("driver_mismatch", "Error 804: forward compatibility was attempted on non supported HW"),
    ("driver_mismatch", "Error 803: system has unsupported display driver / cuda driver combination"),
    ("driver_mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("driver_mismatch", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("gpu_unavailable", "RuntimeError: Found no NVIDIA driver on your system. Please check that you have"),
    ("gpu_unavailable", "RuntimeError: No CUDA GPUs are available"),
    ("gpu_unavailable", "RuntimeError: CUDA error: no CUDA-capable device is detected"),
    ("gpu_unavailable", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("gpu_unavailable", "RuntimeError: CUDA error: invalid device ordinal"),
    ("gpu_unavailable", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu_unavailable", "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"),
    ("gpu_unavailable", "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost. Reboot the system"),
    ("gpu_unavailable", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    ("gpu_unavailable", "RuntimeError: Unexpected error from x(). Error 802: system not yet initialized"),
    ("gpu_unavailable", "AssertionError: Torch not compiled with CUDA enabled"),
    ("nccl_timeout", "[rank1]:[E1121 nccl.cpp:629] [Rank 1] Watchdog caught collective operation timeout: ..."),
    ("nccl_timeout", "[Rank 1] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA"),
    ("nccl_timeout", "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    ("nccl_timeout", "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0"),
    ("nccl_timeout", "DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (a"),
    ("nccl_timeout", "RuntimeError: Socket Timeout"),
    ("hang", "RuntimeError: [unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
    ("rank_lost", "[rank0]: RuntimeError: [gloo/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:26795."),
    ("rank_lost", "RuntimeError: [gloo/tcp/pair.cc:537] Read error [127.0.0.1]:15578: Connection reset by peer."),
    ("rank_lost", "RuntimeError: Application timeout caused pair closure"),
    ("rank_lost", "RuntimeError: [gloo/transport/tcp/pair.cc:598] writev [127.0.0.1]:2211: Broken pipe"),
    ("rank_lost", "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server"),
    ("rank_lost", "misc/socket.cc:58 NCCL WARN Net : Connection closed by remote peer node1<41234>"),
    ("rank_lost", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"),
    ("rank_lost", "RuntimeError: NCCL communicator was aborted on rank 0."),
    ("rank_lost", "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error"),
]


def a_rank(rank: int = 0, code: int | None = 1, at: float | None = 10.0, log=(), reports=(), started=True) -> RankEnd:
    return RankEnd(rank=rank, exit_code=code, ended_at=at, started=started, reports=tuple(reports), log=tuple(log))


def a_report(kind: FailureKind, time: float, *evidence: str) -> Report:
    return Report(time, Failure(kind=kind, phase="train", iteration=2, evidence=evidence))


@pytest.mark.parametrize(("kind", "line"), REAL_LINES, ids=[line[:40] for _, line in REAL_LINES])
def test_a_line_of_a_failed_rank_is_recognised_and_kept_as_proof(kind, line):
    failure = classify(RunEnd((a_rank(log=("setting up", line, "the end"), started=False),)))
    assert failure.kind == kind
    assert failure.evidence == (f"rank 0: {line}", "rank 0 ended with exit code 1")


def test_every_pattern_is_exercised_by_a_real_line():
    for pattern in PATTERNS:
        assert any(strongest([line], (pattern,), False) for _, line in REAL_LINES), pattern


TOO_OLD = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)"
CLOSED = "RuntimeError: Connection closed by peer [::1]:5"
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"


@pytest.mark.parametrize(
    ("kind", "rank"),
    [
        *(("unknown", {"log": [line]}) for _, line in STARTING),
        ("unknown", {"log": [TOO_OLD]}),
        ("unknown", {"log": ["INFO 11-21 tuner.py:3] CUDA out of memory in autotune; next", "ValueError: shapes"]}),
        ("oom_device", {"log": [CLOSED, "RuntimeError: CUDA error: out of memory", "No space left on device"]}),
        ("nccl_timeout", {"log": [WATCHDOG], "code": -signal.SIGABRT}),
        ("rank_lost", {"log": [WATCHDOG], "code": -signal.SIGTERM}),
        ("unknown", {"code": None, "at": None}),
        ("unknown", {"code": None}),
        ("unknown", {"code": 0}),
    ],
    ids=[
        *("module", "import", "no module", "no file", "library", "a warning", "got over", "cause and consequence"),
        *("abort", "lost", "nobody knows", "ended", "ended well"),
    ],
)
def test_a_rank_that_said_nothing_is_judged_by_its_log_and_its_end(kind: str, rank: dict[str, Any]) -> None:
    assert classify(RunEnd((a_rank(**rank),))).kind == kind


def told(rank: int, kind: FailureKind, time: float, word: str) -> RankEnd:
    return a_rank(rank, reports=[a_report(kind, time, word)])


KILLED = a_rank(1, code=-signal.SIGKILL, at=611.0)
FAULT = a_rank(0, code=-signal.SIGSEGV, log=("bye",))


@pytest.mark.parametrize(
    ("first", "second", "kind", "evidence"),
    [
        (told(0, "oom_device", 12.0, "late"), told(1, "oom_device", 11.0, "early"), "oom_device", ["rank 1: early"]),
        (told(0, "nccl_timeout", 610.0, "Watchdog"), KILLED, "rank_lost", ["rank 1 ended by SIGKILL"]),
        (told(0, "hang", 610.0, "silent"), KILLED, "rank_lost", ["rank 1 ended by SIGKILL"]),
        (told(0, "unknown", 10.0, CLOSED), told(1, "unknown", 10.1, "shapes"), "unknown", ["rank 1: shapes"]),
        (
            *(told(0, "rank_lost", 9.0, CLOSED), a_rank(1, code=3, log=("bye",))),
            *("unknown", ["rank 1 ended with exit code 3", "rank 1: bye"]),
        ),
        (FAULT, a_rank(1, at=None), "rank_lost", ["rank 0 ended by SIGSEGV", "rank 0: bye"]),
        (told(0, "unknown", 10.0, "shapes"), told(1, "oom_device", 11.0, "full"), "oom_device", ["rank 1: full"]),
        (told(0, "hang", 10.0, "silent"), told(1, "unknown", 11.0, "shapes"), "unknown", ["rank 1: shapes"]),
    ],
    ids=[
        *("the earlier", "before a time-out", "before silence", "an exception", "gone without a word", "a fault"),
        *("a cause after an exception", "an exception after silence"),
    ],
)
def test_of_two_ranks_the_cause_is_named_whatever_came_first(first, second, kind, evidence):
    for ranks in ((first, second), (second, first)):
        failure = classify(RunEnd(ranks, oom_kills=OomKills(0, "a counter")))
        assert (failure.kind, [*failure.evidence]) == (kind, evidence)


def test_the_kernels_out_of_memory_kill_is_told_from_another_kill():
    ranks = (a_rank(0, code=None, at=None), a_rank(1, code=-signal.SIGKILL))
    killed = classify(RunEnd(ranks, oom_kills=OomKills(1, "a counter")))
    assert killed.kind == "oom_host"
    assert killed.evidence[0] == "rank 1 ended by SIGKILL"
    assert killed.evidence[1] == "the kernel's count of out-of-memory kills (a counter) rose by 1"
    for end in (RunEnd(ranks, oom_kills=OomKills(0, "a counter")), RunEnd(ranks)):
        assert classify(end).kind == "rank_lost"
    assert classify(RunEnd((a_rank(code=-signal.SIGSEGV),), oom_kills=OomKills(1, "a"))).kind == "rank_lost"


def test_a_worker_that_could_not_name_the_kind_is_helped_by_its_own_lines():
    ranks = (a_rank(reports=[a_report("unknown", 10.0, "OSError: [Errno 28] No space left on device")]),)
    failure = classify(RunEnd(ranks, phase="score", iteration=7))
    assert (failure.kind, failure.phase, failure.iteration) == ("disk_full", "train", 2)
    named = a_rank(reports=[a_report("config", 10.0, "CUDA out of memory")])
    assert classify(RunEnd((named,))).kind == "config", "a kind that it named stands"


def test_what_ranks_say_once_the_driver_ends_them_is_its_own_doing_and_what_came_before_explains_it():
    verdict = Failure(kind="timeout", evidence=("too long",))
    killed = a_rank(1, code=-signal.SIGKILL, at=None)
    for time, told in ((21.0, "timeout"), (20.0, "oom_device")):
        ranks = (a_rank(0, at=None, reports=[a_report("oom_device", time, "CUDA out of memory")]), killed)
        assert classify(RunEnd(ranks, verdict=verdict, stopped_at=20.0)).kind == told
        assert classify(RunEnd(ranks, verdict=verdict, proven=True, stopped_at=20.0)) == verdict
    silent = a_rank(0, at=None, reports=[a_report("hang", 9.0, "silent")])
    assert classify(RunEnd((silent, killed), verdict=verdict, stopped_at=20.0)).kind == "hang"


def test_of_what_one_rank_tells_at_one_moment_the_first_word_counts_and_a_good_end_is_told_as_such():
    reports = [a_report("oom_device", 1.0, word) for word in ("first", "second")]
    assert classify(RunEnd((a_rank(reports=reports),))).evidence == ("rank 0: first",)
    assert (how(0), how(1), how(-9)) == ("with exit code 0", "with exit code 1", "by SIGKILL")
    assert how(None) == "in a way that is not known"


def test_where_a_rank_does_not_say_the_last_phase_of_rank_0_stands_and_its_last_lines_are_shown():
    lost = a_rank(code=-signal.SIGKILL, log=[f"line {number}" for number in range(20)])
    raised = a_rank(reports=[Report(1.0, Failure(kind="unknown", evidence=("shapes",)))])
    for rank in (lost, raised):
        failure = classify(RunEnd((rank,), phase="generate", iteration=5))
        assert (failure.phase, failure.iteration) == ("generate", 5)
    assert classify(RunEnd((lost,))).evidence[1:] == tuple(f"rank 0: line {number}" for number in range(8, 20))


def test_a_rank_that_the_kernel_ended_over_the_size_of_a_file_is_told_which_limit():
    failure = classify(RunEnd((a_rank(code=-signal.SIGXFSZ),)))
    assert failure.kind == "config"
    assert failure.evidence[0] == "rank 0 ended by SIGXFSZ" and "ulimit -f" in failure.evidence[1]


def test_each_failure_kind_has_one_sentence_of_advice():
    assert set(NEXT_STEPS) == set(get_args(FailureKind))
    for kind in get_args(FailureKind):
        assert NEXT_STEPS[kind].endswith(".") and "\n" not in NEXT_STEPS[kind]
