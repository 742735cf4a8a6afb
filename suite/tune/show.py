"""A study for readers: a few lines for a terminal, and sections of a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.report.formatting.escape import inline
from suite.report.formatting.numbers import UNKNOWN, counted, interval, listed, number, percent, span
from suite.stats.compare import Comparison
from suite.tune.knobs import Value, told
from suite.tune.result import SHARES, Place, Result
from suite.tune.study import Trial, best_of


def budget_text(seconds: float) -> str:
    """``30m``, as an option takes it."""
    minutes, rest = divmod(round(seconds), 60)
    return "".join((f"{minutes}m" if minutes else "", f"{rest}s" if rest else ""))


def track(result: Result) -> str:
    """The track's name: ``tuned(30m)``."""
    return f"tuned({budget_text(result.study.budget_seconds)})"


def verdict_lines(result: Result) -> Iterator[str]:
    """The two verdicts, what tuning gave, and who was held back by defaults."""
    yield f"{track(result)}: {_order_text(result.tuned)}"
    yield f"equal-config: {_order_text(result.equal_config)}"
    if result.held_back:
        yield f"the two disagree: {result.held_back} was held back by its defaults"
    for gain in result.gains:
        if not gain.turned:
            yield f"{gain.backend}: no setting was faster than its own defaults"
            continue
        again = f"{_ratio(gain.confirmed)} times its defaults" if gain.confirmed else "no rate when measured again"
        trial = f" (its trial said {number(gain.trial)})" if gain.trial else ""
        yield f"{gain.backend} with {told(gain.turned)}: {again}{trial}"
    for knob in result.knobs:
        yield f"{knob.backend}: {told({knob.knob: knob.value})} alone gave {_ratio(knob.gain)}"


def _order_text(places: Sequence[Place]) -> str:
    first = next((place for place in places if place.is_best), None)
    if first is None:
        return "no run succeeded"
    others = [place for place in places if not place.is_best]
    if not others:
        return f"{first.backend} alone, {interval(first.rate)} samples/s"
    return "; ".join(_against(first.backend, place) for place in others)


def _against(first: str, place: Place) -> str:
    found = place.against_best
    if found is None:
        return f"{place.backend} has no run that succeeded, beside {first}"
    words = "is slower than" if found.verdict == "slower" else "is not distinguishable from"
    return f"{place.backend} {words} {first}, at {interval(found.ratio)} of its rate"


def _ratio(found: Comparison | None) -> str:
    return UNKNOWN if found is None else interval(found.ratio)


def blocks(result: Result, heading: str = "##") -> list[str]:
    """Paragraphs and tables of the section, finished Markdown."""
    study, question = result.study, result.study.question
    failed = {backend: reasons for backend, reasons in result.failures.items() if reasons}
    return [
        f"{heading} {track(result)}: each stack at its best",
        "\n".join(f"- {inline(line)}" for line in verdict_lines(result)),
        inline(
            f"{question.told}, {question.size} on {counted(question.ranks, 'rank')}. Each backend had "
            f"{span(study.budget)} of device-seconds for its trials (rule: {study.rules['budget']}). The rows below "
            f"were measured again in {counted(question.starts, 'start')} of {question.iterations} iterations each, so "
            f"that who won by luck does not keep it. {counted(result.suspect, 'trial')} of {len(study.trials)} were "
            "disturbed."
        ),
        _table(_winner_rows(result)),
        "What each knob gave, taken back one at a time:" if result.knobs else "",
        _table(_knob_rows(result)) if result.knobs else "",
        "Best rate so far in samples/s, of trials of any length, by the share of the budget spent:",
        _table(_curve_rows(result)),
        "How each search went:",
        _table(_search_rows(result)),
        "\n".join(
            f"- {inline(backend)}: {inline('; '.join(f'{count} of {reason}' for reason, count in reasons.items()))}"
            for backend, reasons in failed.items()
        )
        if failed
        else "No trial failed.",
    ]


def _winner_rows(result: Result) -> list[list[str]]:
    head = ["backend", "turned", "trial samples/s", "confirmed samples/s", "trial gain", "confirmed gain [95 %]"]
    rows = [
        [
            gain.backend,
            told(gain.turned) or "nothing",
            number(gain.trial_rate),
            interval(gain.confirmed_rate),
            number(gain.trial),
            _ratio(gain.confirmed),
        ]
        for gain in result.gains
    ]
    return [head, *rows]


def _knob_rows(result: Result) -> list[list[str]]:
    rows = [[one.backend, one.knob, _word(one.default), _word(one.value), _ratio(one.gain)] for one in result.knobs]
    return [["backend", "knob", "default", "winner", "gain [95 %]"], *rows]


def _curve_rows(result: Result) -> list[list[str]]:
    rows = [[backend, *(number(rate) for rate in rates)] for backend, rates in result.curve.items()]
    return [["backend", *(f"{percent(share)} %" for share in SHARES)], *rows]


def _search_rows(result: Result) -> list[list[str]]:
    study = result.study
    head = ["backend", "rows to try", "tried", "runs", "spent", "best found after", "planner's place", "ended by"]
    planned = {winner.backend: winner.planned for winner in study.winners}
    rows = []
    for searched in study.question.searched:
        trials = study.of(searched.backend)
        stop = next((stop.why for stop in study.stops if stop.backend == searched.backend), UNKNOWN)
        rows.append(
            [
                searched.backend,
                f"{searched.candidates:,}",
                str(sum(trial.rung == 0 for trial in trials)),
                str(len(trials)),
                span(study.spent(searched.backend)),
                _named_after(trials),
                str(planned.get(searched.backend) or UNKNOWN),
                stop,
            ]
        )
    return [head, *rows]


def _named_after(trials: Sequence[Trial]) -> str:
    """When the winner was first tried: its number among the rows, and what was spent by then."""
    best = best_of(list(trials))
    spent, rows = 0.0, 0
    for trial in trials:
        spent += trial.device_seconds
        rows += trial.rung == 0
        if best is not None and trial.choice == best.choice:
            return f"row {rows}, {span(spent)}"
    return UNKNOWN


def _word(value: Value) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is its heading."""
    lines = [f"| {' | '.join(inline(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])


def page(results: Sequence[tuple[str, Result]]) -> str:
    """A whole page of one or more studies, each with its folder."""
    parts = []
    for folder, result in results:
        machine = result.study.question.machine
        cpu = machine.get("cpu")
        facts = [str(value) for value in (cpu or {}).values()] if isinstance(cpu, dict) else []
        rules = "\n".join(f"- {inline(name)}: {inline(text)}" for name, text in result.study.rules.items())
        parts += [
            *blocks(result),
            inline(f"Made on {listed([str(machine.get('device') or 'CPU'), *facts])}, from the bundles of {folder}."),
            f"Rules:\n\n{rules}",
        ]
    return "# Each stack at its best\n\n" + "\n\n".join(part for part in parts if part) + "\n"
