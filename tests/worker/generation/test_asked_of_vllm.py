"""What vLLM is asked for, without vLLM."""

from suite.worker.generation.vllm import cache_blocks


def test_a_cache_holds_the_samples_of_the_heaviest_replica_whichever_asks() -> None:
    assert cache_blocks([8] * 8 + [500] * 8, rows=8) == 8 * 4 + 2
    assert cache_blocks([128, 129] + [1] * 600, rows=301) == 254 + 1 + 2 + 2, "the longest of those at one time"
