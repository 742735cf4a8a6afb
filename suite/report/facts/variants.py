"""How rows differ beyond the columns of a table: launcher and image of their runs, and other settings; what it takes to
run one again where it was run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS
from suite.report.facts.entry import Entry, grouped, kind_of
from suite.report.facts.rollout import lengths_hash_of
from suite.report.formatting.numbers import few
from suite.spec.manifest import Manifest

_SHOWN_ANYWAY = ("schema", "run", "hash", "work_hash", "note", "source", "global_rollouts", "lengths", "algorithm")
_MOST_DIFFERENCES = 3
_VARIABLES = "measure.variables."
_SHORT_DIGEST = len("sha256:") + 12
#: starters that `suite submit slurm` knows by these words, with what it binds their ranks by
_STARTERS = ("srun", "torchrun")


class LaunchSetting(NamedTuple):
    """Launcher and image where known; how ranks were started, and how many runs went on at once, if unusual."""

    launcher: str | None
    image: str | None
    started: str | None = None
    at_once: int | None = None

    def settings(self) -> dict[str, str]:
        """By the names that a table has for them."""
        return {
            "launcher": self.launcher or "?",
            "image": short_image(self.image) if self.image else "none",
            "started": self.started or "spawned",
            "at once": f"{self.at_once} runs" if self.at_once else "1 run",
        }


def launch_setting_of(record: Record) -> LaunchSetting:
    """With the image that the driver recorded, else the worker: by its id where that is known, since an image has no
    digest before it is pushed, and one for each registry after it."""
    facts, driver = record.environment.worker or {}, record.environment.driver or {}
    image = inner(driver, "image", "id") or inner(driver, "image", "digest") or facts.get("image")
    starter, at_once = driver.get("starter"), driver.get("runs_at_once")
    started = "forked" if facts.get("started") == "forked" else starter if isinstance(starter, str) else None
    return LaunchSetting(
        record.run.launcher,
        image if isinstance(image, str) else None,
        started,
        at_once if type(at_once) is int and at_once > 1 else None,
    )


def assign_launches(entries: Sequence[Entry]) -> list[LaunchSetting]:
    """Of each entry; one that never got to its launch, or never told of its start, shares that of its repeats."""
    known = [launch_setting_of(entry.record) for entry in entries]
    for places in grouped((entry.manifest.hash, place) for place, entry in enumerate(entries)).values():
        told = {known[at] for at in places if entries[at].record.environment.worker and known[at].launcher}
        for at in places:
            mine = known[at]
            alike = {one for one in told if mine.launcher is None or one._replace(started=mine.started) == mine}
            if mine not in told and len(alike) == 1:
                known[at] = alike.pop()
    return known


def variants(manifests: Sequence[tuple[str, Manifest, Mapping[str, str]]]) -> list[str]:
    """What sets each (machine, manifest, settings of the launch) apart from rows that look the same; mostly nothing."""
    alike = grouped((_appearance(where, manifest), index) for index, (where, manifest, _) in enumerate(manifests))
    names = [""] * len(manifests)
    for indices in alike.values():
        if len(indices) > 1:
            flat = [{**_settings(manifests[index][1]), **manifests[index][2]} for index in indices]
            keys = sorted({key for one in flat for key in one})
            differing = [key for key in keys if len({repr(one.get(key)) for one in flat}) > 1]
            for index, one in zip(indices, flat, strict=True):
                # what a workload asks for and what it comes to in a layout have one name, and mostly one value
                settings = list(dict.fromkeys(_setting(key, one.get(key)) for key in differing))
                names[index] = " ".join(few(settings, _MOST_DIFFERENCES))
    return names


def _settings(manifest: Manifest) -> dict[str, Any]:
    drawn = lengths_hash_of(manifest)
    found = dict(flattened(manifest.model_dump(mode="json", by_alias=True), _SHOWN_ANYWAY))
    return {**found, "lengths": drawn[:8]} if drawn else found


def _appearance(machine: str, manifest: Manifest) -> tuple:
    measure, workload = manifest.measure, manifest.workload
    return (
        (machine, manifest.size.name, manifest.layout.ranks, manifest.layout.nodes, manifest.layout.label()),
        (manifest.backend.name, manifest.backend.kind, workload.name, workload.scaling, manifest.track),
        (measure.device, measure.precision, measure.threads_per_rank),
        kind_of(manifest),
    )


def _setting(key: str, value: Any) -> str:
    name = key.removeprefix(_VARIABLES).split(".", 1)[-1]
    return f"{name} unset" if value is None else f"{name}={value}"


def flattened(value: dict[str, Any], without: Collection[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its dotted name, but those of these names at any depth."""
    for key, field in value.items():
        if key in without:
            continue
        if isinstance(field, dict):
            yield from flattened(field, without, f"{prefix}{key}.")
        else:
            yield prefix + key, field


def short_image(image: str) -> str:
    """The beginning of a digest; a name as it is."""
    repository, at, digest = image.rpartition("@")
    return f"{repository}{at}{digest[:_SHORT_DIGEST]}" if digest.startswith("sha256:") else image


def rerun_options(manifest: Manifest, launch: LaunchSetting, record: Record) -> tuple[str, ...]:
    """Words of a command line, unquoted: launcher and image, the variables that a manifest only tells of, and behind a
    ``--`` what the cluster's own command is to be told."""
    words: list[str] = []
    if launch.launcher == "docker" or launch.launcher in CLUSTER_LAUNCHERS:
        words += ["--launcher", launch.launcher]
    for name, value in manifest.measure.variables.items():
        words += ["--env", f"{name}={value}"]
    if launch.launcher in CLUSTER_LAUNCHERS:
        stated = inner(record.environment.driver, "image")
        named = inner(stated, "reference") if isinstance(stated, dict) else stated
        image = named or inner(record.environment.worker, "image")
        words += ["--image", image] if image and isinstance(image, str) else []
        first, *bound = (launch.started or "").split() or [""]
        words += ["--", "--starter", first, *(f"--{option}" for option in bound)] if first in _STARTERS else []
    return tuple(words)
