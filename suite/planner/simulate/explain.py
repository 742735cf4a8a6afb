"""A simulated arrangement: what is simulated of it, where its time goes, and how that is shown."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from suite.planner.ask import Question
from suite.planner.formulas.generation import at_once, steps_to_the_last
from suite.planner.found import Found
from suite.planner.lengths import drawn
from suite.planner.search.answer import Answer, Search, found_again
from suite.planner.simulate.generating import Pace
from suite.planner.simulate.iteration import Setting, Simulated, simulate
from suite.planner.simulate.stragglers import Stragglers
from suite.planner.work import Column
from suite.spec.width import wrapped

#: Parts of a training step that are no pass of a micro batch.
_ONCE = ("bubble", "gradient reduction", "optimizer", "stragglers", "critic")
_TALK = ("tensor parallel", "context parallel", "expert parallel", "pipeline sends", "parameter gathers")
_WIDEST = 40
_SIDES = ("training", "generation")


def best_simulated(search: Search, answer: Answer, slow: Stragglers | None) -> Simulated:
    """The best arrangement of an answer, task by task. Raises TooLarge."""
    columns, index = found_again(search, answer.options[0])
    return simulate(setting_of(columns, index, slow is not None), slow)


def setting_of(found: Found, index: int, drawn_slow: bool) -> Setting:
    """The simulation of one candidate: what is predicted of it, task by task. ``drawn_slow``: stragglers are drawn, so
    that the fitted ones are left out."""
    asked, space, told = found.asked, found.space, found.told
    t = int(found.pairs.t[index])
    jobs = space.work.jobs.take(np.array([t]))
    phases = {name: float(column[index]) for name, column in told.phases.items()}
    parts = {name: float(column[index]) for name, column in told.training.items()}
    factor = phases["train"] / sum(parts.values())
    steps, stages, epochs = int(space.work.steps[t]), int(jobs.pipeline[0]), asked.workload.ppo_epochs
    replica, micro = (int(space.choices[name][t]) for name in ("rollouts", "micro_batch"))
    tokens = float((jobs.tokens * jobs.context)[0])
    weights = np.tile(micro_weights(asked, replica, micro, tokens), (1, epochs))
    count = weights.shape[1]
    body = sum(seconds for name, seconds in parts.items() if name not in _ONCE)
    each = factor * (body + parts["critic"]) / count
    share = 1 / (4 if jobs.recompute[0] == 3 else 3)
    forward = phases["score"] / (1 + float(space.work.critic[t]))
    passes = (phases["score"] + phases["reference"]) / forward if forward else 0.0
    score = forward / (count // epochs + stages - 1)
    lengths, places, pace = _engines(found, index, phases["generate"])
    return Setting(
        stages=stages,
        chunks=int(jobs.chunks[0]),
        steps=steps,
        forward=share * each,
        backward=(1 - share) * each,
        score=score / epochs,
        passes=passes,
        weights=weights,
        talk=sum(parts[name] for name in _TALK) / body,
        in_step=bool(jobs.zero_stage[0] >= 3),
        reduction=factor * parts["gradient reduction"] / steps,
        optimizer=factor * parts["optimizer"] / steps,
        slow=0.0 if drawn_slow else factor * parts["stragglers"] / steps,
        host=phases["reward"] + phases["other"],
        sync=phases["sync"],
        lengths=lengths,
        places=places,
        pace=pace,
        split=bool(found.split[index]),
        staleness=int(found.pairs.staleness[index]),
        devices=(int(space.choices["devices"][t]), int(found.devices[index] - space.choices["devices"][t])),
    )


def micro_weights(asked: Question, replica: int, micro: int, tokens: float) -> Column:
    """Tokens of the micro batches of each replica over ``tokens``, those that are predicted: [replicas, micro batches].

    Samples are dealt in their order, or, balanced, so that replicas have nearly equal tokens.
    """
    rollouts = asked.workload.rollouts
    lengths, replicas = drawn(asked.workload, rollouts), max(1, rollouts // replica)
    whole = np.resize(lengths.prompts + lengths.responses, replicas * replica)
    if asked.manner.balance:
        order = np.sort(whole)[::-1].reshape(replica, replicas)
        order[1::2] = order[1::2, ::-1]
        dealt = order.T
    else:
        dealt = whole.reshape(replicas, replica)
    batches = dealt.reshape(replicas, replica // micro, micro)
    sizes = batches.sum(-1) if asked.manner.packing else micro * batches.max(-1)
    return np.asarray(sizes / tokens)


def _engines(found: Found, index: int, seconds: float) -> tuple[tuple[tuple[float, ...], ...], int, Pace]:
    """Lengths of each engine's samples, its places, and its pace: what is predicted of a step, and of a token."""
    workload, g = found.asked.workload, found.pairs.g[index]
    if found.gen.engine[g] == 0:  # the stack's own loop: one length of time for all
        return (((1.0,),), 1, Pace(seconds, 0.0))
    parts = {name: float(column[index]) for name, column in found.told.generation.items()}
    samples, response, longest = (
        float(column[g]) for column in (found.gen.samples / found.gen.replicas, found.gen.response, found.gen.longest)
    )
    count = max(1, round(workload.rollouts / samples))
    each = -(-workload.rollouts // count)
    dealt = np.resize(drawn(workload, workload.rollouts).responses, workload.rollouts)
    lengths = tuple(tuple(dealt[first : first + each].tolist()) for first in range(0, len(dealt), each))
    together = parts["together"]
    steps = float(steps_to_the_last(samples, response, longest, at_once(samples, together, np.inf, 1.0)))
    whole = parts["bulk"] + parts["tail"]
    per_step = parts["read"] + parts["latency"]
    scale = seconds / whole
    step = scale * per_step / steps
    sample = scale * (whole - per_step) / (samples * response)
    return lengths, max(1, round(together)), Pace(step, sample)


def lines(simulated: Simulated, predicted: float, stragglers: Stragglers | None, columns: int | None) -> Iterator[str]:
    """Seconds by cause as bars, the longest first."""
    differs = 100 * (simulated.seconds / predicted - 1)
    yield f"simulated: {simulated.seconds:.2f} s an iteration, {differs:+.1f} % of the predicted {predicted:.2f} s"
    if stragglers is not None:
        said = [
            f"{phase} {np.quantile(found, 0.9):.2f} (90th percentile), {found.max():.2f} at most"
            for phase, found in sorted(stragglers.factors.items())
        ]
        text = f"stragglers as measured in {stragglers.runs} runs, times the usual: {'; '.join(said)}"
        yield from wrapped(text, columns, rest="")
    causes = sorted(simulated.causes.items(), key=lambda each: -each[1])
    label = max(len(name) for name, _ in causes)
    bar = _WIDEST if columns is None else min(_WIDEST, columns - label - len("  123.45 s 100.0 %") - 2)
    most = causes[0][1]
    for name, seconds in causes:
        drawn_bar = "█" * max(1 if seconds > 0 else 0, round(bar * max(seconds, 0) / most))
        yield f"{name:<{label}}  {drawn_bar:<{bar}}{seconds:>8.2f} s {100 * seconds / simulated.seconds:5.1f} %"


def trace_of(simulated: Simulated) -> dict[str, Any]:
    """A trace that Perfetto and Chrome show, as JSON: complete events (`X`) with microseconds, a process for each side
    and a thread for each lane (Chrome, "Trace Event Format")."""
    sides = sorted({side for _, side in simulated.lanes})
    events = [_event("process_name", "M", side, 0, args={"name": _SIDES[side]}) for side in sides]
    for lane, (name, side) in enumerate(simulated.lanes):
        events.append(_event("thread_name", "M", side, lane, args={"name": name}))
    for task, began, ended in simulated.spans:
        times = {"ts": round(1e6 * began, 3), "dur": round(1e6 * (ended - began), 3)}
        for lane in task.lanes if ended > began else ():
            events.append(_event(task.name, "X", simulated.lanes[lane][1], lane, cat=task.cause, **times))
    return {"displayTimeUnit": "ms", "otherData": {"seconds": simulated.seconds}, "traceEvents": events}


def _event(name: str, kind: str, side: int, lane: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": kind, "pid": side, "tid": lane, **more}
