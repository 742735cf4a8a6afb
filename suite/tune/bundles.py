"""What the bundles of a study say: the record of a run, what it cost, its losses against those of the same work."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from suite.bundle.derive import record_of
from suite.bundle.event_fields import Iteration
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.report.facts.pool import runs_in_turns
from suite.report.facts.suspect import is_invalid, is_suspect
from suite.spec.manifest import Manifest
from suite.stats.rounds import InTurns
from suite.tune.knobs import Choice
from suite.tune.study import Outcome, Trial

#: Mean difference of losses, as a share of their mean size, from which on they are of other work.
OTHER_LOSSES = 0.02
#: Smaller ones count as this large: of responses of one length a loss of normalised advantages is next to nothing, and
#: what is left of it are the tokens that were drawn, which are others for another number of replicas.
LEAST_LOSS = 0.1


class Made(NamedTuple):
    """A run that has ended."""

    bundle: Bundle
    manifest: Manifest
    record: Record


def made(folder: Path, run: str) -> Made | None:
    """Raises DamagedBundle; None where there is no such bundle."""
    bundle = Bundle(folder / run)
    if not bundle.path.is_dir():
        return None
    manifest = bundle.manifest()
    return Made(bundle, manifest, record_of(bundle))


def device_seconds(record: Record) -> float:
    """From launch to end, times the devices."""
    run = record.run
    if run.started is None or run.ended is None:
        return 0.0
    return max(0.0, run.ended - run.started) * run.ranks


def rate_of(record: Record) -> float | None:
    """Samples per second; None where the run has no rate that counts."""
    if record.status != "ok" or record.throughput is None or is_invalid(record):
        return None
    return record.throughput.samples_per_second.value


def losses(bundle: Bundle) -> list[float]:
    """Of the completed iterations, as rank 0 tells them, up to the first without one. Raises DamagedBundle."""
    found = []
    for event in bundle.events().of(0, Iteration):
        loss = event.stats.get("loss")
        if loss is None:
            break
        found.append(loss)
    return found


def apart(some: Sequence[float], others: Sequence[float]) -> float | None:
    """Mean difference of losses over the iterations that both have, as a share of their mean size; None without any."""
    pairs = list(zip(some, others, strict=False))
    size = max(sum(abs(other) for _, other in pairs), LEAST_LOSS * len(pairs))
    return sum(abs(one - other) for one, other in pairs) / size if pairs else None


class Reference:
    """The own row of a backend, whose losses say whether a trial did other work. Trials come in their order."""

    def __init__(self, own: Choice) -> None:
        self._own, self._losses = own, list[float]()

    def trial(self, backend: str, choice: Choice, rung: int, run: Made) -> Trial:
        """A trial as its bundle says. Raises DamagedBundle."""
        record, rate = run.record, rate_of(run.record)
        outcome: Outcome = "ok"
        why: str | None = None
        if rate is None:
            outcome, why = "failed", record.failure.kind if record.failure else "no iteration counts"
        elif choice == self._own:
            self._losses = max(self._losses, losses(run.bundle), key=len)
        elif choice.get("generation") == self._own.get("generation"):  # another engine samples other tokens
            off = apart(losses(run.bundle), self._losses)
            if off is not None and off > OTHER_LOSSES:
                outcome, why = "other work", f"losses differ by {100 * off:.3g} %"
        return Trial(
            backend=backend,
            choice=dict(choice),
            rung=rung,
            run=record.run.id,
            device_seconds=round(device_seconds(record), 3),
            outcome=outcome,
            rate=rate,
            why=why,
            suspect=is_suspect(record),
        )


def in_turns(folder: Path, runs: Sequence[str]) -> InTurns:
    """The runs of a confirmed row that have a rate, each with its turn. Raises DamagedBundle."""
    found = [made(folder, run) for run in runs]
    return runs_in_turns(run.record for run in found if run is not None and rate_of(run.record) is not None)
