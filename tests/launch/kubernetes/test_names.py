"""Names, escapes and quantities are what Kubernetes takes, whatever goes in."""

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.launch.kubernetes.settings import NAME_LENGTH, literal, object_name, quantity_number
from tests.launch.kubernetes.read_back import expanded

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=200), st.sampled_from((NAME_LENGTH, 47)))
def test_any_run_id_becomes_a_dns_label_with_room_for_what_variants_append(run_id: str, length: int) -> None:
    name = object_name(run_id, length)
    assert DNS_1035.fullmatch(name)
    assert len(name) <= length


def test_a_readable_run_id_stays_readable_and_long_ones_that_differ_at_their_end_differ() -> None:
    assert object_name("megatron-1.3B-n32-1f3a9c2e-r1") == "suite-megatron-1-3b-n32-1f3a9c2e-r1"
    assert object_name("x" * 80 + "-r1") != object_name("x" * 80 + "-r2")
    assert object_name("1..3B") != object_name("1.3B"), "what is written alike is told apart"


@settings(max_examples=40)
@given(st.text(alphabet=st.sampled_from("$()A {}"), max_size=30))
def test_a_literal_comes_through_the_kubelets_expansion_as_it_was(text: str) -> None:
    assert expanded(literal(text), {"A": "replaced", "": "replaced"}) == text
    assert expanded("--rank=$(A) $(NONE)", {"A": "3"}) == "--rank=3 $(NONE)"


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("500m", Fraction(1, 2)), ("16Gi", 16 << 30), ("2e3", 2000), ("1.5k", 1500), (".5", Fraction(1, 2))],
)
def test_quantities_mean_what_kubernetes_means_by_them(text: str, number: Fraction) -> None:
    assert quantity_number(text) == number


@pytest.mark.parametrize("text", ["", "16 Gi", "16GB", "-1", "1e", "Gi", "0x10", "1_000", "٣"])
def test_other_texts_are_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity_number(text)
