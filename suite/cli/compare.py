"""`suite compare`: two sides, row by row."""

from pathlib import Path

from suite.cli.command import argument, command, flag, option
from suite.cli.output import DONE, GATE_NOT_MET, UNDECIDED, answer, is_json, without_collector
from suite.report.compare import by_environment, compare_entries, left_out, notes
from suite.report.comparing.gate import check_gate, hold_to
from suite.report.facts.suspect import takes_suspect
from suite.report.formatting.escape import visible
from suite.report.reading import read_entries
from suite.report.text.comparison import print_comparison
from suite.spec.terminal import UsageError, note


@command("print the comparison as JSON")
def compare(
    before: Path | None = argument(
        "results folder, bundle or file of suite pack to compare with; alone: of two environments", None
    ),
    after: Path | None = argument("results folder, bundle or file of suite pack that is compared", None),
    more_before: list[Path] | None = option(
        "folder or bundle of the first side; can be given several times", None, "--before", metavar="PATH"
    ),
    more_after: list[Path] | None = option(
        "folder or bundle of the second side; can be given several times", None, "--after", metavar="PATH"
    ),
    gate: float | None = option("exit 3 when a row's rate fell below this share, e.g. 0.95; 4 when it cannot be told"),
    gate_phase: str | None = option("hold the rate of this phase alone to the gate, e.g. train", metavar="PHASE"),
    same_stack: bool = flag("let a gate compare machines or settings: both sides ran the same stack"),
    allow_missing: bool = flag("let a gate pass with rows without partner, failed, damaged, ambiguous or suspect"),
    strict: bool = flag("fail a gate for rows that the runs are too few or too noisy to decide"),
    with_suspect: bool = flag("pool and judge runs that something disturbed like the others"),
    phases: bool = flag("show the phases of every row"),
) -> int:
    """Compare two sides: the second's rate over the first's, for equal backend, layout and work.

    \b
    suite compare before/ after/
    suite compare runs --gate 0.97

    One folder has two sides where two environments of a backend were measured (suite run --python NAME=PATH, twice):
    the first is the one that was named first.

    With a gate, exit 0 when it is met, 3 when a row is slower, 4 when the runs cannot tell (undecided or doubtful); 2
    when there is nothing to compare.
    """
    sides = [[*([path] if path else []), *(more or [])] for path, more in ((before, more_before), (after, more_after))]
    if not sides[0]:
        raise UsageError("compare takes two sides: suite compare BEFORE AFTER, or --before PATH ... --after PATH ...")
    if gate is None and (allow_missing or strict or same_stack or gate_phase):
        raise UsageError("--allow-missing, --strict, --same-stack and --gate-phase are of a gate: give --gate too")
    if gate is not None:
        check_gate(gate, gate_phase)
    with without_collector():
        first, second = map(read_entries, sides) if sides[1] else by_environment(read_entries(sides[0]))
        runs = (*first.entries, *second.entries)
        with_suspect = with_suspect or all(takes_suspect(entry.manifest) for entry in runs)
        result = compare_entries(first.entries, second.entries, left_out(first, second), with_suspect)
        outcome = None
        if gate is not None:
            result, outcome = hold_to(result, gate, allow_missing, strict, same_stack, gate_phase, with_suspect)
    counts = {"missed": outcome.missed if outcome else 0, "undecided": outcome.undecided if outcome else 0}
    reading = {"damaged": first.damaged + second.damaged, "caveats": first.warnings() + second.warnings()}
    facts = {**result.model_dump(mode="json"), "gate": outcome and outcome.model_dump(mode="json"), **counts, **reading}
    answer(facts, lambda: print_comparison(result, outcome, phases))
    for line in () if is_json() else notes(first, second):
        note(visible(line, 400))
    ends = {"slower": GATE_NOT_MET, "undecided": UNDECIDED, "doubtful": UNDECIDED}
    return ends.get(outcome.outcome, DONE) if outcome else DONE
