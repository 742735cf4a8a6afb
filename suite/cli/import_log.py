"""`suite import`: another tool's step log as a row that says it was not measured here."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from suite.bundle.imported.record import MARK, Told
from suite.bundle.imported.store import import_log as imported
from suite.bundle.imported.timers import Tool
from suite.cli.command import argument, checked, command, option
from suite.cli.output import answer, is_json
from suite.report.formatting.numbers import counted, number
from suite.spec.names import nearest
from suite.spec.terminal import UsageError, note, printable


@dataclass(frozen=True)
class What:
    """What a log does not say of its run."""

    model: str = option("what was trained", ..., metavar="NAME")
    devices: int = option("how many devices the run had in all", ..., min=1, metavar="N")
    device: str | None = option("what they are", metavar="NAME")
    algorithm: str | None = option("as ppo or grpo", metavar="NAME")
    samples: int | None = option("of one step, where the log does not tell them", min=1, metavar="N")
    prompt_tokens: float | None = option("of one sample, mean, where the log does not tell them", metavar="N")
    response_tokens: float | None = option("of one sample, mean, where the log does not tell them", metavar="N")
    tool_version: str | None = option("of the tool", metavar="VERSION")
    source: str | None = option("where the log was published", metavar="WHERE")
    note: str | None = option("what else a reader must know", metavar="NOTE")


@command("print the record as JSON")
def import_log(
    *,
    log: Path = argument("the log as it was published: a console's output, or a tracker's JSON"),
    tool: str = option("the tool that wrote it", ..., "--from", metavar="verl|nemo-rl|skyrl|areal"),
    what: What,
    warmup: int = option("steps to leave out at the start", 0, min=0, metavar="N"),
    runs: Path = option("results folder to put it into", Path("runs"), "--runs", "-o"),
) -> None:
    """Take over another tool's step log as a row marked "imported, not measured here".

    \b
    suite import train.log --from verl --model Qwen/Qwen3-8B --devices 8

    What the log does not tell is given by options and shown as told by the importer. Such a row is in no ranking, no
    comparison and no verdict. docs/import.md says what is read.
    """
    if tool not in (tools := get_args(Tool)):
        raise UsageError(f"--from is one of {', '.join(tools)}, not {tool!r}{nearest(tool, tools)}")
    made = imported(log, cast("Tool", tool), checked(lambda: Told(**vars(what))), warmup, runs)
    record = made.derived()
    rates = {"samples/s": record.throughput.samples_per_second, "tokens/s": record.throughput.tokens_per_second}
    shown = ", ".join(f"{number(value)} {unit}" for unit, value in rates.items() if value is not None)
    steps = f"{counted(record.steps.counted, 'step')} of {number(record.step_seconds)} s"
    missing = "the log tells no work: --samples, --prompt-tokens and --response-tokens do"
    lines = (f"{made.path}: {steps}, {MARK}", f"as {tool} told it: {shown}" if shown else missing)
    answer(record.model_dump(mode="json", by_alias=True), map(printable, lines))
    for line in () if is_json() else record.notes:
        note(printable(line))
