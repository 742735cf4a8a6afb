"""`suite import`: another tool's step log as a row that says it was not measured here."""

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import command
from suite.cli.options.reading import checked, print_json
from suite.spec.terminal import UsageError, printable, say
from suite.spec.terminal import note as tell_note


@command
def import_log(
    log: Annotated[Path, typer.Argument(help="the log as it was published: a console's output, or a tracker's JSON")],
    tool: Annotated[str, typer.Option("--from", metavar="verl|nemo-rl|skyrl|areal", help="the tool that wrote it")],
    model: Annotated[str, typer.Option(metavar="NAME", help="what was trained")],
    devices: Annotated[int, typer.Option(min=1, metavar="N", help="how many devices the run had in all")],
    device: Annotated[str | None, typer.Option(metavar="NAME", help="what they are")] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="NAME", help="as ppo or grpo")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="of one step, where the log does not tell them")
    ] = None,
    prompt_tokens: Annotated[
        float | None, typer.Option(metavar="N", help="of one sample, mean, where the log does not tell them")
    ] = None,
    response_tokens: Annotated[
        float | None, typer.Option(metavar="N", help="of one sample, mean, where the log does not tell them")
    ] = None,
    tool_version: Annotated[str | None, typer.Option(metavar="VERSION", help="of the tool")] = None,
    source: Annotated[str | None, typer.Option(metavar="WHERE", help="where the log was published")] = None,
    note: Annotated[str | None, typer.Option(metavar="NOTE", help="what else a reader must know")] = None,
    warmup: Annotated[int, typer.Option(min=0, metavar="N", help="steps to leave out at the start")] = 0,
    runs: Annotated[Path, typer.Option("--runs", "-o", help="results folder to put it into")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="print the record as JSON")] = False,
) -> None:
    """Take over another tool's step log as a row marked "imported, not measured here".

    \b
    suite import train.log --from verl --model Qwen/Qwen3-8B --devices 8

    What the log does not tell is given by options and shown as told by the importer. Such a row is in no ranking, no
    comparison and no verdict. docs/import.md says what is read.
    """
    from typing import get_args

    from suite.bundle.imported.record import MARK, Told
    from suite.bundle.imported.store import import_log as imported
    from suite.bundle.imported.timers import Tool
    from suite.report.formatting.numbers import counted, number
    from suite.spec.names import nearest

    tools: tuple[Tool, ...] = get_args(Tool)
    chosen = next((each for each in tools if each == tool), None)
    if chosen is None:
        raise UsageError(f"--from is one of {', '.join(tools)}, not {tool!r}{nearest(tool, tools)}")
    told: Told = checked(
        lambda: Told(
            model=model,
            devices=devices,
            device=device,
            algorithm=algorithm,
            samples=samples,
            prompt_tokens=prompt_tokens,
            response_tokens=response_tokens,
            tool_version=tool_version,
            source=source,
            note=note,
        )
    )
    made = imported(log, chosen, told, warmup, runs)
    record = made.derived()
    if as_json:
        print_json(record.model_dump(mode="json", by_alias=True))
        return
    rates = record.throughput
    say(printable(f"{made.path}: {counted(record.steps.counted, 'step')} of {number(record.step_seconds)} s, {MARK}"))
    shown = ", ".join(
        f"{number(value)} {unit}"
        for value, unit in ((rates.samples_per_second, "samples/s"), (rates.tokens_per_second, "tokens/s"))
        if value is not None
    )
    missing = "the log tells no work: --samples, --prompt-tokens and --response-tokens do"
    say(f"as {chosen} told it: {shown}" if shown else missing)
    for line in record.notes:
        tell_note(printable(line))
