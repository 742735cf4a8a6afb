"""What a user types, read into values."""

from __future__ import annotations

import pytest

from suite.cli.app import app
from suite.cli.options.reading import rank_counts
from suite.spec.base import UsageError


def test_all_ranks_are_as_many_as_there_are_places() -> None:
    assert rank_counts(["1", "all", "4"], most=8) == (1, 8, 4)


@pytest.mark.parametrize("text", ["some", "-1", "1.5", ""])
def test_what_is_no_number_of_ranks_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(UsageError, match="a number or all"):
        rank_counts([text], most=8)


def test_threads_places_and_free_devices_of_a_clusters_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    stack = [word for package in ("torch", "megatron-core") for word in ("--stack", f"{package}=1")]
    asked = ["render", "slurm", "--backend", "megatron", "--size", "125M", "--repeats", "1", *stack]

    def rendered(*more: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app([*asked, *more], prog_name="suite")
        printed = capsys.readouterr()
        assert ended.value.code == 0, printed
        return printed.out

    usual = rendered()
    assert "OMP_NUM_THREADS=8 " in usual and '"threads_per_rank":8,"bind":"near-gpu"' in usual
    assert "SUITE_REQUIRE_IDLE" not in usual
    changed = rendered("--threads", "12", "--no-bind", "--require-idle")
    assert "OMP_NUM_THREADS=12 " in changed and '"threads_per_rank":12,"warmup"' in changed
    assert "SUITE_REQUIRE_IDLE=1 " in changed
    on_cpus = rendered("--device", "cpu", "--workload", "cpu")
    assert "OMP_NUM_THREADS=1 " in on_cpus and "bind" not in on_cpus.split("SUITE_MANIFEST=")[1].split("limits")[0]


def test_no_rank_at_all_is_refused_in_the_users_words() -> None:
    with pytest.raises(UsageError, match="--ranks is at least 1, not 0"):
        rank_counts(["2", "0"], most=8)
