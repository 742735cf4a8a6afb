"""A study for readers: a few lines for a terminal, and sections of a page in Markdown."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import prose
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, counted, interval, listed, number, percent, span
from suite.report.text.section import Block, Section, bullets
from suite.stats.compare import Comparison
from suite.tune.knobs import told
from suite.tune.study import SHARES, Answer, Gain, Place, Searched, Study, Trial, best_of


def budget_text(seconds: float) -> str:
    """``30m``, as an option takes it."""
    minutes, rest = divmod(seconds, 60)
    return "".join((f"{minutes:.0f}m" if minutes else "", f"{rest:g}s" if rest else ""))


def verdict_lines(study: Study) -> Iterator[str]:
    """The two verdicts, what tuning gave, and who was held back by defaults."""
    result = _answer(study)
    yield f"{_track(study)}: {_order_text(result.tuned)}"
    yield f"equal-config: {_order_text(result.equal_config)}"
    if result.held_back:
        yield f"the two disagree: {result.held_back} was held back by its defaults"
    for gain in result.gains:
        if not gain.turned:
            yield f"{gain.backend}: no setting was faster than its own defaults"
            continue
        again = f"{_ratio(gain.ratio)} times its defaults" if gain.ratio else "no rate when measured again"
        trial = f" (its trial said {number(gain.trial)})" if gain.trial else ""
        yield f"{gain.backend} with {told(gain.turned)}: {again}{trial}"
    for gain in result.knobs:
        yield f"{gain.backend}: {told(gain.turned)} alone gave {_ratio(gain.ratio)}"


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


def sections(studies: Sequence[Study]) -> list[Section]:
    """Of a report, in Markdown and on its page; studies of one track share a heading."""
    by_track: dict[str, list[Study]] = {}
    for study in studies:
        by_track.setdefault(_track(study), []).append(study)
    return [Section(f"{track}: each stack at its best", partial(_blocks, alike)) for track, alike in by_track.items()]


def _track(study: Study) -> str:
    return f"tuned({budget_text(study.budget_seconds)})"


def _answer(study: Study) -> Answer:
    assert study.answer is not None, "it is shown once its winners were measured again"
    return study.answer


def _blocks(studies: Sequence[Study], model: ReportModel) -> Iterator[Block]:
    return chain.from_iterable(map(_blocks_of, studies))


def _blocks_of(study: Study) -> list[Block]:
    result, question = _answer(study), study.question
    failed = [
        f"{backend}: {listed([f'{count} of {reason}' for reason, count in reasons.items()])}"
        for backend, reasons in result.failures.items()
        if reasons
    ]
    return [
        bullets(prose(line) for line in verdict_lines(study)),
        prose(
            f"{question.told}, {question.size} on {counted(question.ranks, 'rank')}. Each backend had "
            f"{span(study.budget)} of device-seconds for its trials; {result.suspect} of {len(study.trials)} were "
            f"disturbed. What follows was measured again in {counted(question.starts, 'start')} of "
            f"{question.iterations} iterations each, so that who won by luck does not keep it:"
        ),
        _table(["backend", "turned"], _WON, [*map(_won, result.gains)]),
        "What each knob gave, by taking it back alone:" if result.knobs else "",
        _table(["backend", "default", "winner"], ["gain [95 %]"], [*map(_gave, result.knobs)]) if result.knobs else "",
        "Best rate so far in samples/s, of trials of any length, when so much of the budget was spent:",
        _table(
            ["backend"],
            [f"{percent(share)} %" for share in SHARES],
            [[prose(backend), *map(number, rates)] for backend, rates in result.curve.items()],
        ),
        "How each search went:",
        _table(["backend"], _SEARCHED, [_searched(study, each) for each in question.searched]),
        bullets(map(prose, failed)) if failed else "No trial failed.",
        "The rules:",
        bullets(prose(f"{name}: {text}") for name, text in study.rules.items()),
    ]


_WON = ("trial samples/s", "confirmed samples/s [95 %]", "trial gain", "confirmed gain [95 %]")
_SEARCHED = ("rows", "tried", "runs", "device time", "winner first tried", "planner's place of it", "ended by")


def _won(gain: Gain) -> list[str]:
    figures = [number(gain.trial_rate), interval(gain.rate), number(gain.trial), _ratio(gain.ratio)]
    return [prose(gain.backend), prose(told(gain.turned)) or "nothing", *figures]


def _gave(gain: Gain) -> list[str]:
    return [*map(prose, (gain.backend, told(gain.back), told(gain.turned))), _ratio(gain.ratio)]


def _searched(study: Study, searched: Searched) -> list[str]:
    trials = study.of(searched.backend)
    return [
        prose(searched.backend),
        f"{searched.candidates:,}",
        str(sum(trial.rung == 0 for trial in trials)),
        str(len(trials)),
        span(study.spent(searched.backend)),
        _named_after(trials),
        next((str(one.planned or UNKNOWN) for one in study.winners if one.backend == searched.backend), UNKNOWN),
        next((stop.why for stop in study.stops if stop.backend == searched.backend), UNKNOWN),
    ]


def _named_after(trials: Sequence[Trial]) -> str:
    """When the winner was first tried: its number among the rows, and what was spent by then."""
    best = best_of(trials)
    spent, rows = 0.0, 0
    for trial in trials:
        spent += trial.device_seconds
        rows += trial.rung == 0
        if best is not None and trial.choice == best.choice:
            return f"row {rows}, {span(spent)}"
    return UNKNOWN


def _table(words: Sequence[str], figures: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    columns = (*(Column(title, False) for title in words), *map(Column, figures))
    return Table(columns, tuple(map(tuple, rows)))
