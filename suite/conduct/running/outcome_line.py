"""One run's result in a line."""

from suite.bundle.record import Record
from suite.spec.base import printable


def outcome_line(record: Record) -> str:
    """Its rate, or why it has none with the first line that proves it."""
    if record.status == "ok" and record.throughput is not None:
        rate = record.throughput
        text = f"{rate.samples_per_second.value:.4g} samples/s, {rate.tokens_per_second.value:.4g} tokens/s"
        told = doubt(record, most=1)
        return f"{text} ({told})" if told else text
    if record.status == "ok" and record.void_iterations:
        return (
            f"no rate: optimizer steps were skipped in all {len(record.void_iterations)} iterations after the warm-up"
        )
    kind = record.failure.kind if record.failure else record.status
    evidence = f": {printable(record.failure.evidence[0])}" if record.failure and record.failure.evidence else ""
    return f"{record.status}{f' ({kind})' if kind != record.status else ''}{evidence}"


def doubt(record: Record, most: int | None = None) -> str:
    """Why a run's rate is not to be trusted, with so many reasons; empty where nothing speaks against it."""
    found = record.validity
    if found is None or found.status == "valid":
        return ""
    return f"{found.status}: {printable('; '.join(found.reasons[:most]))}"
