"""What a user types, read into values."""

from __future__ import annotations

import pytest

from suite.cli.options.reading import rank_counts
from suite.spec.base import UsageError
from tests.command import suite


def test_all_ranks_are_as_many_as_there_are_places() -> None:
    assert rank_counts(["1", "all", "4"], most=8) == (1, 8, 4)


@pytest.mark.parametrize(
    ("text", "words"), [*((text, "a number or all") for text in ("some", "-1", "1.5", "")), ("0", "at least 1, not 0")]
)
def test_what_is_no_number_of_ranks_is_refused_with_its_value(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rank_counts(["2", text], most=8)


def test_threads_places_and_free_devices_of_a_clusters_ranks() -> None:
    stack = [word for package in ("torch", "megatron-core") for word in ("--stack", f"{package}=1")]

    def rendered(*more: str) -> str:
        done = suite("render", "slurm", "--backend", "megatron", "--size", "125M", "--repeats", "1", *stack, *more)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    usual = rendered()
    assert "OMP_NUM_THREADS=8 " in usual and '"threads_per_rank":8,"bind":"near-gpu"' in usual
    assert "SUITE_REQUIRE_IDLE" not in usual
    changed = rendered("--threads", "12", "--no-bind", "--require-idle")
    assert "OMP_NUM_THREADS=12 " in changed and '"threads_per_rank":12,"warmup"' in changed
    assert "SUITE_REQUIRE_IDLE=1 " in changed
    on_cpus = rendered("--device", "cpu", "--workload", "cpu")
    assert "OMP_NUM_THREADS=1 " in on_cpus and "bind" not in on_cpus.split("SUITE_MANIFEST=")[1].split("limits")[0]
