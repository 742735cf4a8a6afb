"""The command of one node, and torchrun's own word on failed ranks."""

import shlex

import pytest

from suite.launch.cluster.ending import failed_ranks, signal_of_torchrun
from suite.launch.job import Job, torchrun_argv

JOB = Job(name="run", argv=("/py", "-m", "suite.worker", "m.json", "--bundle", "."), nodes=4, ranks_per_node=8)


@pytest.mark.slow
def test_torchrun_reads_its_options_so() -> None:
    run = pytest.importorskip("torch.distributed.run")
    options = run.parse_args(list(torchrun_argv(JOB, "2", "10.0.0.1", "29500", "/here")[3:]))
    assert (options.nnodes, options.nproc_per_node, options.node_rank, options.max_restarts) == ("4", "8", 2, 0)
    assert (options.rdzv_backend, options.master_addr, options.master_port) == ("static", "10.0.0.1", 29500)
    assert (options.module, options.training_script) == (True, "suite.worker")
    assert options.log_dir == "/here"
    assert options.training_script_args == ["m.json", "--bundle", "."]


TABLE = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
suite.worker FAILED
Failures:
[1]:
  time      : 2026-11-21_13:02:00
  rank      : 2 (local_rank: 0)
  exitcode  : -15 (pid: 9322)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_13:02:00
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 9323)
"""


def test_the_table_of_failures_names_ranks_codes_and_the_first() -> None:
    failed = failed_ranks(TABLE.encode().splitlines(keepends=True))
    assert {rank: (row.exit_code, row.is_first) for rank, row in failed.items()} == {2: (-15, False), 3: (-9, True)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "exitcode  : 1 (pid: 3)", "rank: 3", shlex.join(JOB.argv)),
        f"rank : {'9' * 5000} (local_rank: 0)\nexitcode : {'9' * 5000}",
        f"rank : 1 (local_rank: 0)\nexitcode : {'9' * 5000}",
    ],
    ids=["nothing", "no rank", "no table", "a command", "no rank's number", "no code's number"],
)
def test_what_is_no_table_tells_nothing(text: str) -> None:
    assert failed_ranks(text.encode().splitlines()) == {}


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"torch.distributed.elastic.multiprocessing.api.SignalException: Process 11047 got signal: 15\n", 15),
        (b"torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 2", 2),
        (b'    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)\n', None),
        (b"rank 0 told: torch.api.SignalException: Process 7 got signal: 15\n", None),
        (b"torch.api.SignalException: Process 7 got signal: 159\n", None),
    ],
)
def test_torchrun_says_which_signal_it_was_sent(line: bytes, number: int | None) -> None:
    assert signal_of_torchrun([b"Traceback (most recent call last):\n", line]) == number
