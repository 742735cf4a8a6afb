"""Published figures against each other: what was made under a convention is recognised, what was spoilt is flagged."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from suite.claims.cells import Column, amount
from suite.claims.check import check_claims
from suite.claims.columns import meaning_of
from suite.claims.table import parse_table
from suite.cli.app import app
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
        ("Achieved teraFLOP/s per GPU", "tflops_per_device"),
        ("Achieved aggregate petaFLOP/s", "flops_total"),
        ("Percentage of theoretical peak FLOP/s", "mfu"),
        ("Number of parameters (billion)", "params"),
        ("GPU-hours", "device_hours"),
        ("Training time (days)", "train_time"),
        ("Total tokens", "training_tokens"),
        ("Batch size (tokens)", "batch_tokens"),
        ("colour", None),
    ],
)
def test_headers_are_known_by_their_words(header, meaning):
    assert meaning_of(header) == meaning


@pytest.mark.parametrize(
    ("meaning", "cell", "value"),
    [
        ("tokens", "1,234.5", 1234.5),
        ("tokens", "1 022 362", 1022362),
        ("tokens", "1'234", 1234),
        ("tokens", "1.234,5", 1234.5),
        ("tokens", "43,2", 43.2),
        ("tokens", "29.1k tokens/s", 29100),
        ("tokens", "3k", 3000),
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
        ("tflops_per_device", "312 TFLOP/s", 312e12),
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


@pytest.mark.parametrize("name", ["GPU", "Accelerator", "Device", "Hardware"])
def test_a_column_of_device_names_is_no_count_and_one_of_counts_no_name(name):
    flagged = checked(f"{name},TFLOP/s per GPU,MFU (%)\nA100-SXM-80GB,156,50\nH100-SXM-80GB,495,80\n").flags
    assert [flag.line for flag in flagged] == [3]
    assert not checked(f"{name},tokens/s,tokens/s/GPU\n8x A100-80GB,800,100\n").flags
    assert checked(f"{name},tokens/s,tokens/s/GPU\n8,800,110\n").flags


#: Touvron et al., arXiv 2302.13971: 65.2B parameters, 1.4T tokens, 1,022,362 GPU-hours (table 15), about 380 tokens per
#: second and GPU on 2,048 A100, approximately 21 days (section 2.4).
LLAMA = "Params,GPU,GPUs,Total tokens,GPU-hours,Tokens/sec/GPU,Training time (days)\n65.2B,A100-80GB,2048,1.4T,"


def test_a_whole_training_is_recomputed_from_its_tokens_and_device_hours():
    assert not checked(LLAMA + '"1,022,362",380,20.8\n').flags
    for wrong in ('"511,181",380,20.8', '"1,022,362",760,20.8', '"1,022,362",380,41.6'):
        assert checked(LLAMA + wrong + "\n").flags


#: Narayanan et al., arXiv 2104.04473, table 1, the model of a trillion parameters.
SC21 = (
    "Number of GPUs,GPU,Achieved teraFLOP/s per GPU,Percentage of theoretical peak FLOP/s,"
    "Achieved aggregate petaFLOP/s\n3072,A100-80GB,163,"
)


def test_a_total_of_petaflops_is_that_of_all_devices():
    assert not checked(SC21 + "52%,502.0\n").flags
    assert {flag.cell for flag in checked(SC21 + "62%,502.0\n").flags} == {"62%"}
    assert "402.0" in {flag.cell for flag in checked(SC21 + "52%,402.0\n").flags}


def test_samples_need_no_sequence_and_totals_no_devices_to_be_compared():
    table = "GPUs,samples/s,samples/s/GPU,batch,step time\n8,35.8,{},512,14.3 s\n"
    assert not checked(table.format(4.475)).flags
    (wrong,) = checked(table.format(35.8)).flags
    assert "a total, not per device" in wrong.reason
    totals = "tokens/s,batch,seq,step time\n{},128,4096,14.3 s\n"
    assert not checked(totals.format(36664)).flags
    assert len(checked(totals.format(18332)).flags) == 2


@pytest.mark.parametrize("batch", ["4M", "4M tokens", "4 000 000"])
def test_a_batch_may_be_of_tokens(batch):
    table = f"GPUs,seq,batch,step time,tokens/s\n64,4k,{batch},20,"
    assert not checked(table + "200000\n").flags
    assert checked(table + "100000\n").flags


RL = "GPUs,batch,seq len,Avg. generation length,step time (s),tokens/s/GPU\n"


def rl(*rows):
    """Rows of RL iterations: mean answer, prompt that the rate counts, and by how much the printed rate is off."""
    lines = []
    for index, (answer, prompt, spoilt) in enumerate(rows):
        step = 90.0 + 7 * index
        lines.append(f"16,2048,4096,{answer},{step},{spoilt * 2048 * (answer + prompt) / step / 16:.1f}\n")
    return RL + "".join(lines)


def test_generated_tokens_are_of_the_mean_length_not_the_longest():
    claims = checked(rl((1060, 0, 1)))
    assert not claims.flags
    assert list(finding(claims, "tokens_per_device").conventions) == ["from step time, mean length"]
    assert "+12.5 % off" in checked(rl((1060, 0, 1), (1010, 0, 1), (1129, 0, 1.125))).flags[1].reason


def test_rates_that_count_prompts_are_told_and_not_flagged():
    claims = checked(rl((1060, 132, 1), (1129, 130, 1), (3154, 98, 1), (745, 102, 1)))
    assert not claims.flags
    (convention,) = finding(claims, "tokens_per_device").conventions
    assert convention == "from step time, answers and prompts of about 116 tokens"
    assert finding(claims, "step_time").explained == 4


@pytest.mark.parametrize("spoilt", [0.5, 0.85, 1.3, 2.0])
def test_a_spoilt_rate_among_those_that_count_prompts_is_flagged(spoilt):
    flags = checked(rl((1060, 132, 1), (1129, 130, 1), (1010, 118, spoilt), (745, 102, 1))).flags
    assert {flag.line for flag in flags} == {4}


def test_a_prompt_length_in_the_table_is_used():
    table = "GPUs,batch,prompt length,mean response length,step time (s),tokens/s\n8,512,{},300,20,{}\n"
    assert not checked(table.format(200, 12800)).flags
    assert not checked(table.format(200, 7680)).flags
    assert checked(table.format(200, 10240)).flags


def test_one_rate_that_counts_unknown_prompts_is_underivable_and_fewer_tokens_than_answers_are_wrong():
    (entry,) = [each for each in checked(rl((1060, 132, 1))).findings if each.meaning == "tokens_per_device"]
    assert (entry.flagged, entry.not_derivable) == (0, 1)
    assert entry.would_help == {"mean prompt length (about 132 tokens would explain it)": 1}
    assert checked(rl((1060, 0, 0.5))).flags
    assert checked(rl((1060, 0, 5.0))).flags, "more tokens than the longest sequence has"


def test_a_share_in_another_unit_than_its_column_is_read_in_its_own():
    table = "tokens/s/GPU,params (B),GPU,MFU\n1000,7,A100-80GB,13.5\n2000,7,A100-80GB,0.269\n3000,7,A100-80GB,40.4%\n"
    assert not checked(table).flags
    assert len(checked(table + "3000,7,A100-80GB,0.8\n").flags) == 1


ETA = "GPUs,tokens/s/GPU,scaling efficiency (%)\n8,1000,100\n64,900,90\n"


def test_all_efficiencies_of_a_series_have_one_reference():
    assert not checked(ETA + "512,850,85\n1024,800,80\n").flags
    (stray,) = checked(ETA + "512,850,85\n1024,800,95\n").flags
    assert stray.line == 5
    assert "+18.8 % off" in stray.reason
    each_against_the_one_before = ETA + "512,850,94.4\n1024,800,94.1\n"
    assert not checked(each_against_the_one_before).flags


def test_nodes_stand_for_devices_in_a_series():
    table = "Number of nodes,Step time (s),Scaling efficiency\n12,366.7,1\n24,190,0.965\n48,108,{}\n"
    assert not checked(table.format("0.849")).flags
    assert "speed-up" in checked(table.format("3.40")).flags[0].reason


def test_a_speed_up_may_be_over_another_system_on_as_many_devices():
    table = "framework,GPUs,tokens/s,speedup\na,8,100,1\nb,8,150,1.5\na,16,190,1\nb,16,290,{}\n"
    assert not checked(table.format(1.53)).flags
    assert [flag.line for flag in checked(table.format(2.1)).flags] == [5]


#: OpenRLHF's README at b66d8fe1, "Performance": seconds for 1,024 prompts.
OPENRLHF = """| Size | NVIDIA A800-80GB GPUs | Optimized DSChat | OpenRLHF | Speedup |
|:---:|:---:|:---:|:---:|:---:|
| 7B | 16 | 855.09 | 471.11 | {} |
| 13B | 32 | 1528.93 | 608.93 | 2.5x |
| 34B | 32 | 3634.98 | 1526.4 | 2.4x |
| 70B | 32 | 10407.0 | 4488.53 | 2.3x |
"""


def test_a_speed_up_may_be_the_ratio_of_two_columns_that_systems_give_their_names():
    good = checked(OPENRLHF.format("1.82x"), markdown=True)
    assert not good.flags
    assert finding(good, "speedup").conventions == {"Optimized DSChat over OpenRLHF": 4}
    (wrong,) = checked(OPENRLHF.format("2.2x"), markdown=True).flags
    assert (wrong.cell, "+21.2 %" in wrong.reason) == ("2.2x", True)


def test_a_speed_up_over_a_baseline_column_is_none_over_fewer_devices():
    table = "GPUs,tokens/s,baseline tokens/s,speedup\n8,150,100,1.5\n16,290,190,1.53\n32,560,370,{}\n"
    assert not checked(table.format(1.51)).flags
    assert len(checked(table.format(2.51)).flags) == 1


def test_two_columns_that_give_one_row_alone_are_no_convention():
    assert finding(checked("a,b,speedup\n3,2,1.5\n5,4,3\n"), "speedup").not_derivable == 2


def test_only_the_smallest_number_of_devices_is_its_own_reference():
    spoilt = ETA.replace("64,900,90", "64,900,100") + "512,850,85\n"
    assert [flag.line for flag in checked(spoilt).flags] == [3]


def test_a_series_whose_reference_is_not_in_the_table_is_underivable():
    for table in (
        "GPUs,tokens/s,speedup\n16,1900,1.9\n32,3700,3.7\n",
        "GPUs,tokens/s/GPU,scaling efficiency\n16,950,0.95\n64,900,0.90\n",
        "nodes,step time,speedup\n48,190,1.9\n96,108,3.1\n",
    ):
        claims = checked(table)
        assert not claims.flags
        (scaled,) = [each for each in claims.findings if each.meaning in ("speedup", "efficiency")]
        assert (scaled.not_derivable, scaled.would_help) == (2, {"the row that it is against": 2})


def test_a_series_without_its_reference_still_has_one():
    table = "GPUs,tokens/s,speedup\n16,1900,1.9\n32,3700,3.7\n64,7000,7.0\n96,9900,{}\n"
    assert not checked(table.format(9.9)).flags
    (wrong,) = checked(table.format(12.1)).flags
    assert (wrong.line, "outside the table" in wrong.reason) == (5, True)


SPARSE = "GPU,TFLOP/s per GPU,MFU (%)\n"


def test_a_utilisation_of_the_sparse_peak_is_flagged_in_all_rows_and_in_one():
    dense = "H100,400,40.4\nA100-SXM-80GB,156,50\nH100,445,45\n"
    assert not checked(SPARSE + dense).flags
    flags = checked(SPARSE + "H100,400,20.2\nA100-SXM-80GB,156,25\nH100,445,22.5\n").flags
    assert [flag.line for flag in flags] == [2, 3, 4]
    assert all("sparse 16-bit peak" in flag.reason for flag in flags)
    assert [flag.line for flag in checked(SPARSE + dense + "H100,420,21.2\n").flags] == [5]


def test_a_peak_of_fp8_is_no_sparse_one_where_a_row_says_so():
    table = "GPU,precision,TFLOP/s per GPU,MFU (%)\nH100,{},800,40.4\n"
    assert not checked(table.format("fp8")).flags
    assert "sparse" in checked(table.format("bf16")).flags[0].reason
    assert "sparse fp8" in checked(table.format("fp8").replace("40.4", "20.2")).flags[0].reason


def test_a_stated_peak_that_is_the_sparse_one_is_flagged_and_one_of_rounding_is_not():
    table = "GPU,peak TFLOP/s,tokens/s/GPU,params (B),MFU (%)\nH100,{},9000,7,{:.2f}\n"
    assert not checked(table.format(989, 38.22)).flags
    assert not checked(table.format(1000, 37.8)).flags
    assert not checked(table.format(800, 47.25)).flags, "a device may be run below its data sheet"
    flags = checked(table.format(1979, 19.1)).flags
    assert {flag.column for flag in flags} == {"peak TFLOP/s", "MFU (%)"}


def test_peaks_that_a_table_implies_are_one():
    for header, names in (("", ("", "", "")), ("GPU,", ("X9,", "X9,", "X9,"))):
        figures = zip(names, (400, 450, 420), (989, 988, 859), strict=True)
        lines = [f"{name}{flops},{100 * flops / peak:.2f}" for name, flops, peak in figures]
        (flag,) = checked("\n".join([f"{header}TFLOP/s per GPU,MFU (%)", *lines])).flags
        assert flag.line == 4
        assert "a peak of 859 TFLOP/s, the rest 98" in flag.reason
        good = checked("\n".join([f"{header}TFLOP/s per GPU,MFU (%)", *lines[:2]]))
        assert finding(good, "mfu").explained == 2


def test_peaks_in_a_column_are_one_for_a_device():
    table = "GPU,peak TFLOP/s,MFU (%)\nX9,400,40\nX9,401,41\nX9,{},42\nY2,700,20\n"
    assert not checked(table.format(400)).flags
    assert [flag.line for flag in checked(table.format(500)).flags] == [4]


def test_one_row_that_counts_attention_among_rows_that_do_not_is_flagged():
    lines = [row(8, 13, step, 64) for step in (20, 30)]
    attention = 12 * 40 * 5120 * 2048
    (flag,) = checked("\n".join([HEADER, *lines, row(8, 13, 25, 64, attention)])).flags
    assert flag.line == 4
    assert "as the rest is counted; fits 6N + full attention" in flag.reason
    for all_alike in (0.0, attention):
        assert not checked("\n".join([HEADER, *(row(8, 13, step, 64, all_alike) for step in (20, 30, 25))])).flags


TUNED = "method,params (B),tokens/s/GPU,TFLOP/s per GPU\n"


@pytest.mark.parametrize(
    ("method", "flops", "flagged"),
    [
        *(("LoRA", 4, False), ("LoRA", 6, True), ("QLoRA r=16", 6, True), ("full SFT", 6, False)),
        *(("full SFT", 4, True), ("pretrain", 4, True), ("", 4, False), ("", 6, False), ("SFT (no LoRA)", 6, False)),
    ],
)
def test_low_rank_adapters_and_full_training_have_counts_of_their_own(method, flops, flagged):
    claims = checked(f"{TUNED}{method},8,5000,{flops * 8e9 * 5000 / 1e12:.1f}\n")
    assert bool(claims.flags) == flagged
    if flagged:
        assert "low-rank adapters" in claims.flags[0].reason


def test_adapters_may_be_told_by_a_column_of_their_own():
    table = "LoRA,params (B),tokens/s/GPU,TFLOP/s per GPU\nyes,8,5000,{}\nno,8,5000,240\n"
    assert not checked(table.format(160)).flags
    assert [flag.line for flag in checked(table.format(240)).flags] == [2]


def test_hardware_flops_of_recomputed_adapters_are_those_of_full_training():
    table = "method,GPU,params (B),tokens/s/GPU,{}\nLoRA,A100-SXM-80GB,8,3000,46.2\n"
    assert not checked(table.format("HFU (%)")).flags
    assert checked(table.format("MFU (%)")).flags


def test_a_mixture_of_experts_has_a_count_where_its_active_parameters_are_told():
    table = "model,params (B),{}tokens/s/GPU,TFLOP/s per GPU\nMixtral-8x7B,46.7,{}4000,309\n"
    (entry,) = [each for each in checked(table.format("", "")).findings if each.meaning == "tflops_per_device"]
    assert (entry.flagged, entry.not_derivable) == (0, 1)
    assert entry.would_help == {"active parameters of the mixture of experts": 1}
    assert not checked(table.format("active params (B),", "12.9,")).flags


@pytest.mark.parametrize(
    ("table", "help_text"),
    [
        ("GPUs,tokens/s/GPU\n8,1000\n", "tokens/s"),
        ("GPUs,seq,batch,tokens/s/GPU\n8,4096,128,1000\n", "step time"),
        ("tokens/s/GPU,TFLOP/s per GPU\n1000,400\n", "parameters"),
        ("params (B),tokens/s/GPU,MFU (%)\n7,1000,40\n", "GPU model or its peak"),
    ],
)
def test_an_underivable_column_says_what_would_help(table, help_text):
    assert help_text in [text for entry in checked(table).findings for text in entry.would_help]


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
