"""What stands around the figures: work, stacks, machines, networks, how runs were read, how figures are made,
and how to run each row again."""

import shlex
from collections.abc import Callable, Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.network import SCOPES, NetworkLine, row_names
from suite.report.facts.variants import rerun_options
from suite.report.facts.work import model_families, work_differences, workloads
from suite.report.formatting.escape import inline, prose, visible
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import few, number
from suite.report.text.section import Block, Heading, Listing, bullets, table_of

_FACTS = (Column("fact", False), Column("value", False))
_NETWORK = (
    "Measured before each run by its own process group, in GB/s as nccl-tests counts bus bandwidth: comparable with "
    "what one device's link carries in one direction. Of the message size that reached most, median of the runs. "
    "Latency: an all-reduce of four bytes."
)
_EXPECTED = (
    "Expected: what the device's links, or its share of the node's adapters and at most what its maker's own systems "
    "have, carry in one direction."
)

_COLUMNS: tuple[tuple[Column, Callable[[NetworkLine], str]], ...] = (
    (Column("rows", False), lambda line: row_names(line.rows)),
    (Column("ranks"), lambda line: str(line.ranks)),
    (Column("where", False), lambda line: SCOPES[line.scope]),
    (Column("runs"), lambda line: str(line.runs)),
    (Column("all-reduce"), lambda line: _over(line.bus_bytes_per_second.get("all_reduce"), 1e9)),
    (Column("all-gather"), lambda line: _over(line.bus_bytes_per_second.get("all_gather"), 1e9)),
    (Column("send and receive"), lambda line: _over(line.bus_bytes_per_second.get("send_receive"), 1e9)),
    (Column("latency us"), lambda line: _over(line.latency_seconds, 1e-6)),
    (Column("expected"), lambda line: _over(line.expected_bytes_per_second, 1e9)),
)


def work(model: ReportModel) -> Iterator[Block]:
    """One iteration of each workload, and where the work of trainers differs."""
    yield bullets(f"{inline(name)}: {prose(text, 800)}." for name, text in workloads(model.rows))
    families = model_families(model.rows)
    if families.keys() - {"GPT-2"}:
        yield "The models' families and shapes:"
        yield bullets(f"{family}: {prose(text, 800)}." for family, text in families.items())
    differing = work_differences(model.rows).items()
    if differing:
        yield "Where the work of trainers differs from the suite's own iteration:"
        yield bullets(few([f"{inline(name)} ({', '.join(rows)}): {prose(text)}." for (name, text), rows in differing]))


def stacks(model: ReportModel) -> Iterator[Block]:
    """What they say of themselves, and what the records say of their figures."""
    for machine in model.machines:
        where = f" on machine {machine.letter}" if len(model.machines) > 1 else ""
        for backends, notes in machine.notes.items():
            yield f"{inline(backends)}{where}:"
            yield bullets(few([prose(note) for note in notes]))
    if model.recorded_conventions:
        yield "How the runs' own figures are made, as their records tell:"
        yield bullets(map(prose, model.recorded_conventions))


def machines(model: ReportModel) -> Iterator[Block]:
    for machine in model.machines:
        yield Heading(f"Machine {machine.letter}") if len(model.machines) > 1 else ""
        facts = machine.facts.items()
        yield Table(_FACTS, tuple((inline(name), "; ".join(map(prose, values))) for name, values in facts))


def network(model: ReportModel) -> Iterator[Block]:
    lines = model.networks
    if lines:
        is_known = any(line.expected_bytes_per_second for line in lines)
        yield f"{_NETWORK} {_EXPECTED}" if is_known else _NETWORK
        yield table_of(_COLUMNS if is_known else _COLUMNS[:-1], lines)


def _over(value: float | None, unit: float) -> str:
    return number(None if value is None else value / unit)


def commands(model: ReportModel) -> Iterator[Block]:
    """Of each row; and the command that fails where any byte of any bundle is another one."""
    yield "One command per row; it takes everything from the manifest."
    commands = []
    for row in model.rows:
        words = [
            visible(row.shown.path, 4096).rstrip("/") + "/manifest.json",
            *(visible(word, 4096) for word in rerun_options(row.manifest, row.launch, row.shown.record)),
        ]
        commands.append(f"suite rerun {shlex.join(words)} # {row.name}")
    yield Listing(tuple(commands), "sh")
    evidence = model.evidence
    if evidence.digest is not None:
        yield "This fails unless every bundle is byte for byte the one that this report was made of."
        paths = shlex.join(visible(path, 4096) for path in evidence.paths)
        yield Listing((f"suite verify {paths} --digest {evidence.digest}",), "sh")


def digests(model: ReportModel) -> Iterator[Block]:
    bundles = model.evidence.bundles.items()
    lines = [f"{digest}  {visible(path, 4096)}" for path, digest in bundles if digest]
    if lines:
        yield "Of the bundles (SHA-256 over the list of a bundle's files):"
        yield Listing(tuple(lines))
