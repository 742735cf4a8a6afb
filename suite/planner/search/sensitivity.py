"""What would change the answer to a search: the same search of longer responses and of slower links, and prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from suite.planner.hardware import Hardware
from suite.planner.option import Option
from suite.planner.search.answer import Answer, Search
from suite.planner.search.request import Wishes, answer
from suite.spec.base import Frozen
from suite.spec.workload import Workload


class Change(Frozen):
    """The answer where one thing is otherwise."""

    what: str
    best: Option | None = Field(description="the best arrangement then; null where nothing is enough")
    text: str


def sensitivity(search: Search, wishes: Wishes, found: Answer) -> list[Change]:
    """The answer to the same wishes where responses double, as they may while a policy learns; where links and network
    cards give half their rate; and at which price another kind of device would be cheaper."""
    now = found.options[0] if found.options else None
    what, longer = "responses twice as long", _with_longer_responses(search.work)
    if longer.sequence_tokens > search.questions[0].shape.positions:
        text = f"a sample would have {longer.sequence_tokens:,} tokens, more than the model has positions"
        changes = [Change(what=what, best=None, text=text)]
    else:
        changes = [_change(what, answer(replace(search, work=longer), wishes), now)]
    slower = [
        replace(asked, hardware=_slower(asked.hardware), other=asked.other and _slower(asked.other))
        for asked in search.questions
    ]
    links = answer(replace(search, questions=slower), wishes)
    changes.append(_change("links and network at half their rate", links, now))
    return [*changes, *_prices(found)]


def _slower(hardware: Hardware) -> Hardware:
    return replace(hardware, network=hardware.network / 2, link=hardware.link / 2)


def _with_longer_responses(work: Workload) -> Workload:
    """Twice the tokens of each response; of a distribution its mean and cap, of listed lengths each."""
    lengths = work.lengths
    if lengths is None:
        return work.model_copy(update={"new_tokens": 2 * work.new_tokens})
    doubled = {name: 2 * value for name in ("tokens", "mean", "cap") if (value := getattr(lengths, name))}
    doubled["listed"] = lengths.listed and tuple(2 * length for length in lengths.listed)
    return work.model_copy(update={"lengths": lengths.model_copy(update=doubled)})


def _change(what: str, then: Answer, now: Option | None) -> Change:
    if not then.options:
        return Change(what=what, best=None, text="nothing that was looked at is enough")
    best = then.options[0]
    before = "" if now is None or now.devices == best.devices else f" in place of {now.devices:,}"
    same = now is not None and (now.device, now.devices, now.label) == (best.device, best.devices, best.label)
    arrangement = "the same" if same else f"{best.devices:,} x {best.device}{before}, {best.label} ({best.backend})"
    return Change(what=what, best=best, text=f"{arrangement}, predicted {best.samples_per_second:.3g} samples/s")


def _prices(found: Answer) -> Iterator[Change]:
    """Where the cheapest is asked for, and a second kind reaches the target."""
    reached = [kind.best for kind in found.kinds if kind.reached and kind.best and kind.best.cost_per_hour]
    if found.objective != "cost" or len(reached) < 2:
        return
    first, second = reached[:2]
    ratio = (second.cost_per_hour or 0.0) / (first.cost_per_hour or 1.0)
    text = f"{second.device} is cheaper once {first.device} costs {ratio:.2f} times its price"
    yield Change(what="prices", best=second, text=text)
