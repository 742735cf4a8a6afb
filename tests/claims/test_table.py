"""Files that tables are read from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.claims.cells import Column, amount
from suite.claims.check import check_claims
from suite.claims.table import parse_table
from suite.spec.base import UsageError


@pytest.mark.parametrize(
    ("rule", "is_one"),
    [
        ("|---|---|", True),
        ("--- | :-: ", True),
        ("| :--- | ---: |", True),
        ("---", False),
        ("| - - | --- |", False),
        ("|:::|---|", False),
    ],
)
def test_what_divides_a_header_from_its_rows(rule: str, is_one: bool) -> None:
    text = f"| a | b |\n{rule}\n| 1 | 2 |\n"
    if is_one:
        assert len(parse_table(text, "t", markdown=True).rows) == 1
    else:
        with pytest.raises(UsageError):
            parse_table(text, "t", markdown=True)


@pytest.mark.parametrize("number", ["1e308", "1e-308", "9" * 300, "-1e308"])
def test_a_number_that_no_machine_has_stops_no_check(number: str) -> None:
    header = "model,gpu,gpus,params (B),layers,hidden,ffn,seq len,heads,vocab,tokens/s/gpu,tflops/gpu,mfu,gpu hours"
    good = "x,A100-80GB,8,7,32,4096,11008,2048,32,32000,3000,140,45,100"
    columns = good.split(",")
    rows = [",".join([*columns[:at], number, *columns[at + 1 :]]) for at in range(2, len(columns))]
    table = parse_table("\n".join([header, good, *rows]), "table.csv", markdown=False)
    assert check_claims(table, {}, 0.02).findings


def test_metrics_without_end_fill_no_memory() -> None:
    lines = [f"c{number},m{number},1" for number in range(20_000)]
    with pytest.raises(UsageError, match="cells"):
        parse_table("\n".join(["config_id,metric,value", *lines]), "table.csv", markdown=False)


@pytest.mark.parametrize(
    ("meaning", "cell", "value"),
    [
        ("tokens", "1,234.5", 1234.5),
        ("tokens", "1.234,5", 1234.5),
        ("tokens", "43,2", 43.2),
        ("tokens", "29.1k tokens/s", 29100),
        ("tokens", "~7", 7),
        ("tokens", "35.7 \u00b1 0.4", 35.7),
        ("tokens", "3 apples", None),
        ("tokens", "=1+1", None),
        ("tokens", "1-2", None),
        ("tokens", "", None),
        ("mfu", "45%", 0.45),
        ("step_time", "120 ms", 0.12),
        ("step_time", "1.5 min", 90),
        ("train_time", "21 days", 21 * 86400),
        ("train_time", "21", None),
        ("sequence", "4k", 4096),
        ("params", "6.74 B", 6.74e9),
        ("training_tokens", "1.4T", 1.4e12),
        ("device_hours", "1.02M", 1.02e6 * 3600),
        ("flops_total", "1.5 PFLOP/s", 1.5e15),
        ("tflops_per_device", "3k", None),
    ],
)
def test_cells_are_read_and_never_evaluated(meaning, cell, value):
    found = amount(cell, Column("x", meaning, float("nan") if meaning == "train_time" else 1.0))
    assert (found and found.value) == (value and pytest.approx(value))


@given(st.integers(1, 10**9), st.sampled_from([",", " ", "'", "_", "\u202f"]))
def test_thousands_may_be_set_apart_in_any_way(number, mark):
    assert amount(f"{number:,}".replace(",", mark), Column("x", "tokens")).value == number


def test_an_error_that_is_stated_counts_as_rounding():
    assert amount("35.7 \u00b1 0.4", Column("x", "samples")).rounding == pytest.approx(0.4)
