"""Published figures against each other: what was made under a convention is recognised, what was spoilt is flagged."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.claims.check import check_claims
from suite.claims.columns import meaning_of
from suite.claims.table import parse_table
from tests.command import suite

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


@settings(max_examples=25)
@given(COUNTS, st.floats(1, 500).map(lambda value: round(value, 3)), st.integers(1, 4096))
def test_tokens_per_second_from_batch_and_step_time_is_recognised(devices, step, batch):
    claims = checked(f"{HEADER}\n{row(devices, 0.0001, step, batch)}")
    assert finding(claims, "tokens").conventions == {"from step time": 1}


@settings(max_examples=25)
@given(st.sampled_from([("6N", 0.0), ("6N + full attention", 12 * 40 * 5120 * 2048)]), st.floats(0.2, 0.6))
def test_the_flops_that_a_utilisation_counts_are_recognised(convention, share):
    name, attention = convention
    step = round((6 * 13e9 + attention) * 64 * 2048 / (8 * PEAK * share), 6)
    claims = checked(f"{HEADER}\n{row(8, 13, step, 64, attention)}")
    assert not claims.flags
    assert list(finding(claims, "mfu").conventions) == [f"{name} (from tokens/s) / dense 16-bit peak"]


@pytest.mark.parametrize("spoilt", [0.3, 1.15, 3.0])
def test_a_spoilt_cell_is_flagged_with_its_line(spoilt):
    lines = [HEADER, row(8, 1, 5, 64), row(8, 1, 5, 64, spoilt=spoilt), row(8, 1, 5, 64)]
    flags = checked("\n".join(lines)).flags
    assert {flag.line for flag in flags} == {3}
    assert "Tokens/s" in {flag.column for flag in flags}


@settings(max_examples=25)
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
        ("TFLOP/s/GPU", "tflops_per_device"),
        ("Weak scaling efficiency", "efficiency"),
        ("\u03b7", "efficiency"),
        ("Number of parameters (billion)", "params"),
        ("Batch size (tokens)", "batch_tokens"),
        ("colour", None),
    ],
)
def test_headers_are_known_by_their_words(header, meaning):
    assert meaning_of(header) == meaning


#: Touvron et al., arXiv 2302.13971: 65.2B parameters, 1.4T tokens, 1,022,362 GPU-hours (table 15), about 380 tokens per
#: second and GPU on 2,048 A100, approximately 21 days (section 2.4).
LLAMA = "Params,GPU,GPUs,Total tokens,GPU-hours,Tokens/sec/GPU,Training time (days)\n65.2B,A100-80GB,2048,1.4T,{}\n"
#: Narayanan et al., arXiv 2104.04473, table 1, the model of a trillion parameters.
SC21 = (
    "Number of GPUs,GPU,Achieved teraFLOP/s per GPU,Percentage of theoretical peak FLOP/s,"
    "Achieved aggregate petaFLOP/s\n3072,A100-80GB,163,{}\n"
)
#: OpenRLHF's README at b66d8fe1, "Performance": seconds for 1,024 prompts.
OPENRLHF = """Size,NVIDIA A800-80GB GPUs,Optimized DSChat,OpenRLHF,Speedup
7B,16,855.09,471.11,{}
13B,32,1528.93,608.93,2.5x
34B,32,3634.98,1526.4,2.4x
70B,32,10407.0,4488.53,2.3x
"""
SAMPLES = "GPUs,samples/s,samples/s/GPU,batch,step time\n8,35.8,{},512,14.3 s\n"
TOTAL = "GPUs,Seq length,Global batch,Step time (s),Tokens/s\n8,2048,64,2,{}\n"
TOTALS = "tokens/s,batch,seq,step time\n{},128,4096,14.3 s\n"
BATCH = "GPUs,seq,batch,step time,tokens/s\n64,4k,{},20,{}\n"
PROMPTS = "GPUs,batch,prompt length,mean response length,step time (s),tokens/s\n8,512,200,300,20,{}\n"
UNITS = "tokens/s/GPU,params (B),GPU,MFU\n1000,7,A100-80GB,13.5\n2000,7,A100-80GB,0.269\n3000,7,A100-80GB,{}\n"
ETA = "GPUs,tokens/s/GPU,scaling efficiency (%)\n8,1000,100\n64,900,{}\n512,850,{}\n1024,800,{}\n"
NODES = "Number of nodes,Step time (s),Scaling efficiency\n12,366.7,1\n24,190,0.965\n48,108,{}\n"
SYSTEMS = "framework,GPUs,tokens/s,speedup\na,8,100,1\nb,8,150,1.5\na,16,190,1\nb,16,290,{}\n"
BASELINE = "GPUs,tokens/s,baseline tokens/s,speedup\n8,150,100,1.5\n16,290,190,1.53\n32,560,370,{}\n"
OUTSIDE = "GPUs,tokens/s,speedup\n16,1900,1.9\n32,3700,3.7\n64,7000,7.0\n96,9900,{}\n"
SPARSE = "GPU,TFLOP/s per GPU,MFU (%)\nH100,400,{}\nA100-SXM-80GB,156,{}\nH100,445,{}\n"
FP8 = "GPU,precision,TFLOP/s per GPU,MFU (%)\nH100,{},800,{}\n"
STATED = "GPU,peak TFLOP/s,tokens/s/GPU,params (B),MFU (%)\nH100,{},9000,7,{}\n"
IMPLIED = "TFLOP/s per GPU,MFU (%)\n400,40.44\n450,45.55\n420,{}\n"
OF_DEVICE = "GPU,TFLOP/s per GPU,MFU (%)\nX9,400,40.44\nX9,450,45.55\nX9,420,48.89\n"
PEAKS = "GPU,peak TFLOP/s,MFU (%)\nX9,400,40\nX9,401,41\nX9,{},42\nY2,700,20\n"
TUNED = "method,params (B),tokens/s/GPU,TFLOP/s per GPU\n{},8,5000,{}\n"
ADAPTERS = "LoRA,params (B),tokens/s/GPU,TFLOP/s per GPU\nyes,8,5000,{}\nno,8,5000,240\n"
RECOMPUTED = "method,GPU,params (B),tokens/s/GPU,{}\nLoRA,A100-SXM-80GB,8,3000,46.2\n"
EXPERTS = "model,params (B),active params (B),tokens/s/GPU,TFLOP/s per GPU\nMixtral-8x7B,46.7,12.9,4000,309\n"
LORA, FULL = f"{4 * 8e9 * 5000 / 1e12:.1f}", f"{6 * 8e9 * 5000 / 1e12:.1f}"
FITS = {
    "a whole training is recomputed from its tokens and device hours": LLAMA.format('"1,022,362",380,20.8'),
    "a total of petaFLOP/s is that of all devices": SC21.format("52%,502.0"),
    "samples need no sequence to be compared": SAMPLES.format(4.475),
    "totals need no devices to be compared": TOTALS.format(36664),
    "a batch may be of tokens": BATCH.format("4M", 200000),
    "a batch may say that it is of tokens": BATCH.format("4M tokens", 200000),
    "a prompt length in the table may be counted": PROMPTS.format(12800),
    "or left out": PROMPTS.format(7680),
    "a share in another unit than its column is read in its own": UNITS.format("40.4%"),
    "all efficiencies of a series have one reference": ETA.format(90, 85, 80),
    "each efficiency may be against the one before": ETA.format(90, 94.4, 94.1),
    "nodes stand for devices in a series": NODES.format(0.849),
    "a speed-up may be over another system on as many devices": SYSTEMS.format(1.53),
    "a speed-up may be the ratio of two columns that systems give their names": OPENRLHF.format("1.82x"),
    "a speed-up may be over a baseline column": BASELINE.format(1.51),
    "a series may have its reference outside the table": OUTSIDE.format(9.9),
    "a utilisation is of the dense peak": SPARSE.format(40.4, 50, 45),
    "a peak of fp8 is no sparse one where a row says so": FP8.format("fp8", 40.4),
    "a peak may be stated": STATED.format(989, 38.22),
    "a stated peak may be rounded": STATED.format(1000, 37.8),
    "a device may be run below its data sheet": STATED.format(800, 47.25),
    "peaks that a table implies are one": IMPLIED.format(42.51),
    "peaks in a column are one for a device": PEAKS.format(400),
    "low-rank adapters have a count of their own": TUNED.format("LoRA", LORA),
    "full training has another": TUNED.format("full SFT", FULL),
    "SFT without LoRA is full training": TUNED.format("SFT (no LoRA)", FULL),
    "a method that is not told may be adapters": TUNED.format("", LORA),
    "adapters may be told by a column of their own": ADAPTERS.format(160),
    "hardware FLOPs of recomputed adapters are those of full training": RECOMPUTED.format("HFU (%)"),
    "a mixture of experts counts its active parameters": EXPERTS,
}
#: With the lines that are flagged, and what is said of one of them.
DOES_NOT_FIT = {
    "half the device hours": (LLAMA.format('"511,181",380,20.8'), {2}, ""),
    "twice the rate": (LLAMA.format('"1,022,362",760,20.8'), {2}, ""),
    "twice the days": (LLAMA.format('"1,022,362",380,41.6'), {2}, ""),
    "another share of the peak": (SC21.format("62%,502.0"), {2}, ""),
    "another total": (SC21.format("52%,402.0"), {2}, ""),
    "a total per device": (SAMPLES.format(35.8), {2}, "a total, not per device"),
    "a rate of one device for a total": (TOTAL.format(8192), {2}, "per device, not a total"),
    "half the total": (TOTALS.format(18332), {2}, ""),
    "half a batch of tokens": (BATCH.format("4M", 100000), {2}, ""),
    "a rate between those with and without prompts": (PROMPTS.format(10240), {2}, ""),
    "a share of another unit": (UNITS.format("40.4%") + "3000,7,A100-80GB,0.8\n", {5}, ""),
    "one efficiency astray": (ETA.format(90, 85, 95), {5}, "+18.8 % off"),
    "a second reference": (ETA.format(100, 85, 80), {3}, ""),
    "a speed-up for an efficiency": (NODES.format("3.40"), {4}, "speed-up"),
    "a speed-up over no system": (SYSTEMS.format(2.1), {5}, ""),
    "a speed-up that the columns do not give": (OPENRLHF.format("2.2x"), {2}, "+21.2 %"),
    "a speed-up over no baseline": (BASELINE.format(2.51), {4}, ""),
    "another reference outside the table": (OUTSIDE.format(12.1), {5}, "outside the table"),
    "the sparse peak in all rows": (SPARSE.format(20.2, 25, 22.5), {2, 3, 4}, "sparse 16-bit peak"),
    "the sparse peak in one row": (SPARSE.format(40.4, 50, 45) + "H100,420,21.2\n", {5}, ""),
    "the peak of fp8 for bf16": (FP8.format("bf16", 40.4), {2}, "sparse"),
    "the sparse peak of fp8": (FP8.format("fp8", 20.2), {2}, "sparse fp8"),
    "a stated peak that is the sparse one": (STATED.format(1979, 19.1), {2}, ""),
    "another implied peak": (IMPLIED.format(48.89), {4}, "a peak of 859 TFLOP/s, the rest 98"),
    "another implied peak of a device": (OF_DEVICE, {4}, "a peak of 859 TFLOP/s, the rest 98"),
    "another peak of a device": (PEAKS.format(500), {4}, ""),
    "full training for adapters": (TUNED.format("LoRA", FULL), {2}, "low-rank adapters"),
    "full training for quantised adapters": (TUNED.format("QLoRA r=16", FULL), {2}, "low-rank adapters"),
    "adapters for full training": (TUNED.format("full SFT", LORA), {2}, "low-rank adapters"),
    "full training where a column says adapters": (ADAPTERS.format(240), {2}, ""),
    "a model's FLOPs for those of hardware": (RECOMPUTED.format("MFU (%)"), {2}, ""),
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_together_is_not_flagged(name):
    assert not checked(FITS[name]).flags


@pytest.mark.parametrize("name", DOES_NOT_FIT)
def test_what_does_not_fit_is_flagged_in_its_line_with_a_reason(name):
    table, lines, reason = DOES_NOT_FIT[name]
    flags = checked(table).flags
    assert {flag.line for flag in flags} == lines
    assert any(reason in flag.reason for flag in flags)


@pytest.mark.parametrize("name", ["GPU", "Accelerator", "Device", "Hardware"])
def test_a_column_of_device_names_is_no_count_and_one_of_counts_no_name(name):
    flagged = checked(f"{name},TFLOP/s per GPU,MFU (%)\nA100-SXM-80GB,156,50\nH100-SXM-80GB,495,80\n").flags
    assert [flag.line for flag in flagged] == [3]
    assert not checked(f"{name},tokens/s,tokens/s/GPU\n8x A100-80GB,800,100\n").flags
    assert checked(f"{name},tokens/s,tokens/s/GPU\n8,800,110\n").flags


def test_one_row_that_counts_attention_among_rows_that_do_not_is_flagged():
    attention = 12 * 40 * 5120 * 2048

    def flags(*of_rows):
        rows = [row(8, 13, step, 64, extra) for step, extra in zip((20, 30, 25), of_rows, strict=True)]
        return checked("\n".join([HEADER, *rows])).flags

    (flag,) = flags(0.0, 0.0, attention)
    assert flag.line == 4 and "as the rest is counted; fits 6N + full attention" in flag.reason
    assert not flags(0.0, 0.0, 0.0) and not flags(attention, attention, attention)


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


def test_one_rate_that_counts_unknown_prompts_is_underivable_and_fewer_tokens_than_answers_are_wrong():
    (entry,) = [each for each in checked(rl((1060, 132, 1))).findings if each.meaning == "tokens_per_device"]
    assert (entry.flagged, entry.not_derivable) == (0, 1)
    assert entry.would_help == {"mean prompt length (about 132 tokens would explain it)": 1}
    assert checked(rl((1060, 0, 0.5))).flags
    assert checked(rl((1060, 0, 5.0))).flags, "more tokens than the longest sequence has"


@pytest.mark.parametrize(
    ("table", "meaning", "rows", "would_help"),
    [
        ("a,b,speedup\n3,2,1.5\n5,4,3\n", "speedup", 2, None),
        ("GPUs,tokens/s,speedup\n16,1900,1.9\n32,3700,3.7\n", "speedup", 2, "the row that it is against"),
        ("GPUs,tokens/s/GPU,efficiency\n16,950,0.95\n64,900,0.90\n", "efficiency", 2, "the row that it is against"),
        ("nodes,step time,speedup\n48,190,1.9\n96,108,3.1\n", "speedup", 2, "the row that it is against"),
        (
            "model,params (B),tokens/s/GPU,TFLOP/s per GPU\nMixtral-8x7B,46.7,4000,309\n",
            *("tflops_per_device", 1, "active parameters of the mixture of experts"),
        ),
    ],
)
def test_what_cannot_be_derived_is_not_flagged_and_says_what_would_help(table, meaning, rows, would_help):
    claims = checked(table)
    found = finding(claims, meaning)
    assert not claims.flags and found.not_derivable == rows
    assert would_help is None or found.would_help == {would_help: rows}


def invoke(*arguments):
    return suite("claims", "check", *arguments)


def test_the_command_ends_with_zero_three_or_two(tmp_path):
    good, bad, unknown = tmp_path / "good.csv", tmp_path / "bad.csv", tmp_path / "unknown.csv"
    good.write_text(f"{HEADER}\n{row(8, 1, 5, 64)}\n")
    bad.write_text("MFU (%)\n130\n\x1b[31m9\n")
    unknown.write_text("colour\nred\n")
    assert invoke(good).exit_code == 0
    assert invoke(bad).exit_code == 3
    assert "\x1b" not in invoke(bad).output
    assert json.loads(invoke(bad, "--json").stdout)["flags"][0]["line"] == 2
    for arguments in ((unknown,), (tmp_path / "none.csv",), (good, "--column", "x=mfu"), (good, "--tolerance", "nan")):
        assert invoke(*arguments).exit_code == 2
    assert invoke(unknown, "--column", "colour=mfu").exit_code == 0


@pytest.mark.slow
def test_the_view_of_the_published_table(snapshot):
    assert invoke(ROOT / "docs/claims/published.csv").stdout == snapshot
