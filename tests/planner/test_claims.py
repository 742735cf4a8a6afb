"""Published figures against each other: what was made under a convention is recognised, what was spoilt is flagged."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from suite.cli.app import app
from suite.planner.claims import check_claims
from suite.planner.claims_columns import Column, amount, meaning_of
from suite.planner.claims_table import parse_table
from suite.spec.base import UsageError

ROOT = Path(__file__).resolve().parents[2]
PEAK = 312e12
COUNTS = st.integers(1, 2048)
HEADER = "GPUs,Model size (B),Layers,Hidden size,Seq length,Global batch,GPU model,Step time (s),Tokens/s,MFU (%)"


def checked(text, mapping=None, markdown=False):
    return check_claims(parse_table(text, "table", markdown), mapping or {}, 0.02)


def finding(claims, meaning):
    return next(entry for entry in claims.findings if entry.meaning == meaning)


def row(devices, params, step, batch, extra_flops=0.0, factor=1.0, spoilt=1.0):
    tokens = batch * 2048 / step
    share = factor * (6 * params * 1e9 + extra_flops) * tokens / devices / PEAK
    return f"{devices},{params},40,5120,2048,{batch},A100-SXM-80GB,{step},{tokens * spoilt:.6f},{100 * share:.6f}"


@given(COUNTS, st.floats(1, 500).map(lambda value: round(value, 3)), st.integers(1, 4096))
def test_tokens_per_second_from_batch_and_step_time_is_recognised(devices, step, batch):
    claims = checked(f"{HEADER}\n{row(devices, 0.0001, step, batch)}")
    assert finding(claims, "tokens").conventions == {"from step time": 1}


@given(st.sampled_from([("6N", 0.0), ("6N + full attention", 12 * 40 * 5120 * 2048)]), st.floats(0.2, 0.6))
def test_the_flops_that_a_utilisation_counts_are_recognised(convention, share):
    name, attention = convention
    step = round((6 * 13e9 + attention) * 64 * 2048 / (8 * PEAK * share), 6)
    claims = checked(f"{HEADER}\n{row(8, 13, step, 64, attention)}")
    assert not claims.flags
    assert list(finding(claims, "mfu").conventions) == [f"{name} (from tokens/s) / dense 16-bit peak"]


@given(st.sampled_from([0.3, 0.7, 1.15, 1.5, 3.0]))
def test_a_spoilt_cell_is_flagged_with_its_line(spoilt):
    lines = [HEADER, row(8, 1, 5, 64), row(8, 1, 5, 64, spoilt=spoilt), row(8, 1, 5, 64)]
    flags = checked("\n".join(lines)).flags
    assert {flag.line for flag in flags} == {3}
    assert "Tokens/s" in {flag.column for flag in flags}


def test_a_total_that_is_per_device_is_named():
    claims = checked("GPUs,Seq length,Global batch,Step time (s),Tokens/s\n8,2048,64,2,8192")
    assert any("per device, not a total" in flag.reason for flag in claims.flags)


def test_an_efficiency_that_is_a_speed_up_is_named():
    claims = checked("Model,GPUs,Tokens/s,Scaling efficiency\na,8,1000,1.0\na,16,1900,1.9\na,32,3700,3.7")
    assert [flag.line for flag in claims.flags] == [3, 4]
    assert all("speed-up, not an efficiency" in flag.reason for flag in claims.flags)


@given(st.lists(st.floats(0.5, 1), min_size=1, max_size=6))
def test_efficiency_and_speed_up_against_the_smallest_are_recognised(shares):
    lines = ["Model,GPUs,Tokens/s,eta,Speed-up", "a,8,1000000,1.00,1.00"]
    for power, share in enumerate(shares, start=1):
        times = 2**power
        lines.append(f"a,{8 * times},{1000000 * times * share:.3f},{share:.6f},{times * share:.6f}")
    claims = checked("\n".join(lines))
    assert not claims.flags
    assert finding(claims, "speedup").explained == finding(claims, "efficiency").explained == len(lines) - 1


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("nan", "finite"), ("inf", "finite"), ("-3", "negative"), ("0", "negative"), ("140", "over 100 %")],
)
def test_what_cannot_be_is_flagged_whatever_else_is_known(cell, reason):
    (flag,) = checked(f"MFU (%)\n{cell}").flags
    assert reason in flag.reason


def test_markdown_and_csv_say_the_same():
    lines = [line.split(",") for line in (HEADER, row(8, 1, 5, 64))]
    markdown = "\n".join(
        ["# Title", "", f"| {' | '.join(lines[0])} |", "|---" * len(lines[0]) + "|", f"| {' | '.join(lines[1])} |", ""]
    )
    assert checked(markdown, markdown=True).findings == checked("\n".join(",".join(line) for line in lines)).findings


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        ("Iteration time (ms)", "step_time"),
        ("tokens_per_sec_per_gpu", "tokens_per_device"),
        ("Tokens/s/GPU", "tokens_per_device"),
        ("tok/s", "tokens"),
        ("TFLOP/s/GPU", "tflops_per_device"),
        ("Weak scaling efficiency", "efficiency"),
        ("\u03b7", "efficiency"),
        ("# of GPUs", "devices"),
        ("colour", None),
    ],
)
def test_headers_are_known_by_their_words(header, meaning):
    assert meaning_of(header) == meaning


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,234.5", 1234.5), ("45%", 0.45), ("3k", 3000), ("~7", 7), ("=1+1", None), ("1-2", None), ("", None)],
)
def test_cells_are_read_and_never_evaluated(cell, value):
    found = amount(cell, Column("x", "tokens"))
    assert (found and found.value) == value


@given(st.text(max_size=300))
def test_no_text_makes_a_traceback(text):
    for markdown in (True, False):
        try:
            checked(text, markdown=markdown)
            checked(f"MFU (%),GPUs\n{text},8", markdown=False)
        except UsageError:
            pass


def invoke(*arguments):
    return CliRunner().invoke(app, ["claims", "check", *map(str, arguments)])


def test_the_command_ends_with_zero_three_or_two(tmp_path, capsys):
    good, bad, unknown = tmp_path / "good.csv", tmp_path / "bad.csv", tmp_path / "unknown.csv"
    good.write_text(f"{HEADER}\n{row(8, 1, 5, 64)}\n")
    bad.write_text("MFU (%)\n130\n\x1b[31m9\n")
    unknown.write_text("colour\nred\n")
    assert invoke(good).exit_code == 0
    assert invoke(bad).exit_code == 3
    assert "\x1b" not in invoke(bad).output
    for arguments in ((unknown,), (tmp_path / "none.csv",), (good, "--column", "x=mfu"), (good, "--tolerance", "nan")):
        assert invoke(*arguments).exit_code == 2
    assert invoke(unknown, "--column", "colour=mfu").exit_code == 0


def test_json_holds_the_flags(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("MFU (%)\n130\n")
    assert json.loads(invoke(table, "--json").stdout)["flags"][0]["line"] == 2


def test_the_view_of_the_published_table(snapshot):
    assert invoke(ROOT / "docs/claims/published.csv").stdout == snapshot
