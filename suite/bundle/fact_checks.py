"""Whether what ranks report of their stack, machine, reward and noise fits the manifest and the driver.

What an older worker did not report is held against nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

from suite.bundle.event_fields import Iteration, Launch
from suite.bundle.events import Events
from suite.bundle.facts import derivation, facts_of, inner
from suite.bundle.findings import Finding, one_of
from suite.bundle.record import Record
from suite.spec.manifest import Manifest

#: From here on ranks report the noise of every iteration.
_WITH_NOISE = 3
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: A mean of one number is that number but for rounding, also in half precision.
_REWARD_SHARE, _REWARD_LEAST = 0.01, 0.001
_SHOWN = 40


def fact_findings(events: Events, manifest: Manifest, record: Record) -> Iterator[Finding]:
    """One for each kind of contradiction."""
    yield from one_of("stack", list(not_as_asked(events, manifest)))
    yield from one_of("machine", list(_processors(events, record)))
    yield from one_of("ceilings", list(_ceilings(events, manifest)))
    yield from one_of("reward", list(_rewards(events, manifest)))
    yield from one_of("noise", list(_without_noise(events)))


def not_as_asked(events: Events, manifest: Manifest) -> Iterator[str]:
    """Another device or other versions than the manifest has; a worker that finds another stack starts no run."""
    facts = [facts_of(events, rank) for rank in events.ranks]
    kinds = sorted({str(each["device"].get("type"))[:_SHOWN] for each in facts if isinstance(each.get("device"), dict)})
    if kinds not in ([], [manifest.measure.device]):
        yield f"the manifest asks for {manifest.measure.device}, ranks tell they ran on {' and '.join(kinds)}"
    packages = [each["packages"] for each in facts if isinstance(each.get("packages"), dict)]
    for package, version in manifest.stack.items():
        found = {str(each.get(package))[:_SHOWN] for each in packages}
        if found - {version}:
            yield f"the manifest asks for {package} {version}, ranks tell {' and '.join(sorted(found))}"


def _processors(events: Events, record: Record) -> Iterator[str]:
    """Of ranks that the driver started on its own machine."""
    launch, driver = events.of_driver(Launch), inner(record.environment.driver, "host", "cpu", "model")
    for rank in events.ranks if launch is not None and launch.launcher == "local" else ():
        own = inner(facts_of(events, rank), "cpu", "model")
        if isinstance(own, str) and isinstance(driver, str) and own != driver:
            yield f"rank {rank} ran on {ascii(own)[:_SHOWN]}, its driver beside it on {ascii(driver)[:_SHOWN]}"


def _ceilings(events: Events, manifest: Manifest) -> Iterator[str]:
    """Peaks that a rank measured before the run, in the precision of the run."""
    wanted = _DTYPES[manifest.measure.precision]
    for rank in events.ranks:
        dtype = inner(facts_of(events, rank), "ceilings", "matmul_dtype")
        if isinstance(dtype, str) and dtype != wanted:
            yield f"rank {rank} measured its device in {ascii(dtype)[:_SHOWN]}, the run computes in {wanted}"


def _rewards(events: Events, manifest: Manifest) -> Iterator[str]:
    """A constant reward has no other mean."""
    reward = manifest.workload.reward
    if reward.kind != "constant":
        return
    for event in events.of_all(Iteration):
        found = event.stats.get("reward")
        if found is not None and abs(found - reward.value) > max(_REWARD_SHARE * abs(reward.value), _REWARD_LEAST):
            where = f"in iteration {event.iteration} of rank {event.rank}"
            yield f"the mean reward was {found:.6g} {where}, the manifest has a constant one of {reward.value:.6g}"


def _without_noise(events: Events) -> Iterator[str]:
    """Iterations whose noise somebody took away."""
    for event in events.of_all(Iteration) if derivation(events) >= _WITH_NOISE else ():
        if event.noise is None:
            yield f"rank {event.rank} tells nothing of the noise around iteration {event.iteration}, as its worker does"
