"""`suite claims`: published figures recomputed from each other."""

from pathlib import Path

from suite.claims.check import Claims, check_claims
from suite.claims.table import read_table
from suite.cli.command import argument, command, option
from suite.cli.output import DONE, GATE_NOT_MET, answer, without_collector
from suite.spec.terminal import UsageError


@command("print as JSON")
def check(
    table: Path = argument("CSV file, or Markdown file whose first table is read"),
    column: list[str] | None = option("of a column whose name is not recognised; repeat", metavar="NAME=MEANING"),
    tolerance: float = option("relative difference allowed on top of rounding", 0.02),
    most: int = option("number of flagged cells to print; --json has all", 40),
) -> int:
    """Recompute a published table's columns from each other. Exit 3 when no convention explains a value."""
    if not 0 <= tolerance < 1 or most < 0:
        raise UsageError("--tolerance is a fraction from 0 to below 1 and --most not negative")
    mapping = {}
    for text in column or []:
        name, equals, meaning = text.rpartition("=")
        if not equals:
            raise UsageError(f"--column is NAME=MEANING, not {text!r}")
        mapping[name.strip()] = meaning.strip()
    with without_collector():
        found = check_claims(read_table(table), mapping, tolerance)
    answer(found.model_dump(mode="json"), claim_lines(found, most))
    return GATE_NOT_MET if found.flags else DONE


def claim_lines(found: Claims, most: int) -> list[str]:
    lines = [f"{'column':<34} {'rows':>5} {'explained':>9} {'flagged':>7} {'underivable':>11} {'unreadable':>10}"]
    source = ""
    for finding in found.findings:
        if finding.source != source:
            source = finding.source
            lines.append(f"-- {source}")
        lines.append(
            f"{finding.column[:34]:<34} {finding.rows:>5} {finding.explained:>9} {finding.flagged:>7} "
            f"{finding.not_derivable:>11} {finding.unreadable:>10}"
        )
        lines += [f"    {count:>5}  {name}" for name, count in finding.conventions.items()]
        lines += [f"    {count:>5}  underivable; would help: {name}" for name, count in finding.would_help.items()]
    if found.not_used:
        lines.append(f"not used: {', '.join(found.not_used)[:300]}")
    for cell in found.flags[:most]:
        where = f"line {cell.line}, {cell.source + ', ' if cell.source else ''}{cell.column}"
        lines.append(f"flagged: {where}: {cell.cell}: {cell.reason}")
    if len(found.flags) > most:
        lines.append(f"flagged: {len(found.flags) - most} more (--json has all)")
    lines.append(f"{len(found.flags)} flagged; tolerance {100 * found.tolerance:g} % and rounding")
    return lines
