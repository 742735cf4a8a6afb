"""What a rank tells of its environment."""

from __future__ import annotations

from suite.worker.facts import relevant_variables
from tests.spec.test_redaction import VALUES, WORD


def test_no_fact_of_a_rank_holds_a_secret() -> None:
    variables = {f"NCCL_{name}": value for name, value in VALUES.items()}
    found = relevant_variables({**variables, "NCCL_ALGO": "Tree", "VLLM_API_KEY": WORD, "DS_PASS": WORD})
    assert found == {"NCCL_ALGO": "Tree"}
