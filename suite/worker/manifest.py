"""Reading the manifest with the standard library alone, and checking this process against it."""

import json
import os
from importlib import metadata
from typing import Any, Dict, Iterable, Tuple

from suite.worker.identity import identity
from suite.worker.rank import ConfigError, RankIdentity

MANIFEST_SCHEMA = "suite/manifest/1"
_SEED_STRIDE = 1_000_003


def declared(name: str) -> Any:
    """What ``suite/worker/NAME.json`` declares for driver and worker alike."""
    with open(os.path.join(os.path.dirname(__file__), name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def read_manifest(path: str) -> Dict[str, Any]:
    """The manifest at ``path``. Raises ConfigError where it cannot be read or is of another schema."""
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError) as error:
        raise ConfigError("cannot read the manifest {}: {}".format(path, error)) from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != MANIFEST_SCHEMA:
        raise ConfigError("{} has schema {!r}; this worker reads {!r}".format(path, schema, MANIFEST_SCHEMA))
    return manifest


def stream_seed(manifest: Dict[str, Any], *numbers: int) -> int:
    """The seed of one stream of random numbers, such as an iteration's: those of neighbouring seeds lie far apart."""
    seed: int = manifest["measure"]["seed"]
    for number in numbers:
        seed = seed * _SEED_STRIDE + number
    return seed


def asked_iterations(manifest: Dict[str, Any]) -> int:
    """Iterations of this run, warm-up in: of a run that was added for its precision the counted ones may be its own."""
    measure = manifest["measure"]
    counted = manifest.get("run", {}).get("iterations") or measure["iterations"]
    return int(measure["warmup"] + counted)


def algorithm_of(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """Its name and options; PPO where the manifest names none."""
    return manifest["workload"].get("algorithm") or {"name": "ppo", "options": {}}


def learns_values(manifest: Dict[str, Any]) -> bool:
    """Whether a trainer of others has a critic."""
    return algorithm_of(manifest)["name"] == "ppo"


def adamw(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """The workload's optimizer in torch's words."""
    wanted = manifest["workload"]["optimizer"]
    return {
        "lr": wanted["learning_rate"],
        "betas": (wanted["beta1"], wanted["beta2"]),
        "eps": wanted["epsilon"],
        "weight_decay": wanted["weight_decay"],
    }


def check_world_size(manifest: Dict[str, Any], identity: RankIdentity) -> None:
    """Raise ConfigError unless the launcher started as many ranks as the layout has."""
    ranks = manifest["layout"]["nodes"] * manifest["layout"]["devices_per_node"]
    if identity.world_size != ranks:
        raise ConfigError("the layout has {} ranks but the launcher started {}".format(ranks, identity.world_size))


def check_found(whose: str, facts: Iterable[Tuple[str, Any, Any]], how: str = "found") -> None:
    """``facts``: of each its name, what was asked for, and what is there. Raises ConfigError with those that differ."""
    wrong = ["{} {} wanted, {} {}".format(*each, how) for each in facts if each[1] != each[2]]
    if wrong:
        raise ConfigError("{} not as the manifest asks: {}".format(whose, "; ".join(wrong)))


def check_stack(wanted: Dict[str, str]) -> None:
    """Raise ConfigError, naming each package, unless exactly the ``wanted`` versions are installed."""
    facts = [(name, version, installed_version(name) or "none") for name, version in sorted(wanted.items())]
    check_found("the stack is", facts)


def check_code(wanted: Dict[str, str]) -> None:
    """Raise ConfigError, naming each package, unless the code of each has the ``wanted`` digest."""
    other = [name for name, code in sorted(wanted.items()) if (identity(name) or {}).get("digest") != code]
    if other:
        changed = "the code of {} changed since the run was planned".format(", ".join(other))
        raise ConfigError("the stack is not as the manifest asks: " + changed)


def installed_version(package: str) -> Any:
    """The version in the package's metadata, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
