"""Manifests, shapes, `config.json` and workloads."""

import json
from functools import cache
from random import Random
from typing import Any

import yaml

from suite.bundle.files import parse_object
from suite.bundle.manifest_file import parse_manifest
from suite.cli.command import checked
from suite.conduct.running.display import title
from suite.conduct.running.rerun import what_it_asks
from suite.spec.layout import Layout
from suite.spec.manifest import manifest_hash, work_hash
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from tests.fuzz import mutate
from tests.fuzz.material import TWO_RANKS, text_of
from tests.spec.test_huggingface import FAMILIES, LLAMA3
from tests.spec.test_huggingface import LLAMA as LLAMA_CONFIG
from tests.synthetic import GPT, LLAMA, SMOKE, grpo_workload, synthetic_manifest


@cache
def manifests() -> list[Any]:
    made = [
        synthetic_manifest(),
        synthetic_manifest(layout=TWO_RANKS, size=LLAMA, workload=grpo_workload()),
        synthetic_manifest(layout=TWO_RANKS, device="cuda", precision="bf16", backend="megatron"),
    ]
    return [json.loads(each.model_dump_json(by_alias=True)) for each in made]


def hashed_again(body: Any, random: Random) -> Any:
    """Mostly with the hashes that fit, so that what lies behind them is reached too."""
    if not isinstance(body, dict) or random.random() < 0.15:
        return body
    try:
        size, workload = Shape.model_validate(body.get("size")), Workload.model_validate(body.get("workload"))
        layout = Layout.model_validate(body.get("layout"))
        body["work_hash"] = work_hash(size, workload, layout.ranks, body["measure"]["seed"])
        if random.random() < 0.7:
            body["work"] = resolve_work(size, workload, layout, body["measure"]["seed"]).model_dump(mode="json")
    except Exception:  # noqa: BLE001 - what cannot be hashed keeps its hash
        pass
    try:
        body["hash"] = manifest_hash(body)
    except (ValueError, TypeError, RecursionError):
        pass
    return body


def read_manifest(data: bytes) -> None:
    manifest = parse_manifest(text_of(data), "manifest.json")
    what_it_asks(manifest, "3 runs")
    title(manifest)
    manifest.model_dump_json(by_alias=True)


YAMLS = [yaml.safe_dump(shape.model_dump(mode="json")).encode() for shape in (GPT, LLAMA)]
_FIELDS = {"rms_norm_eps": 1e-5, "rope_theta": 1000000, "tie_word_embeddings": True, "word_embed_proj_dim": 32}
CONFIGS: list[Any] = [*FAMILIES, {**LLAMA_CONFIG, **_FIELDS, "rope_scaling": LLAMA3}]


def read_workload(data: bytes) -> None:
    body = parse_object(text_of(data), "workload")
    # from text, as all that others wrote is: pydantic's own error has no form for half a character in a mapping
    workload = checked(lambda: Workload.model_validate_json(json.dumps(body.get("workload"))))
    layout = Layout.model_validate_json(json.dumps(body.get("layout")))
    changes = body.get("changes")
    changed = workload.changed(changes if isinstance(changes, dict) else {})
    resolve_work(GPT, changed, layout)
    layout.label()


def no_files(body: Any, random: Random) -> Any:
    """An option may name a file of lengths; which one, is not for an input to say."""
    return json.loads(json.dumps(body).replace("list:", "list "))


_OF_GRPO = {"algorithm": "grpo:kl_coefficient=0.001", "group": 4, "lengths": "lognormal:mean=10,sigma=0.6,cap=24"}
WORKLOADS = [
    {"workload": workload.model_dump(mode="json"), "layout": TWO_RANKS.model_dump(mode="json"), "changes": changes}
    for workload, changes in ((SMOKE, {"rollouts": 8, "micro_batch": 2}), (grpo_workload(), _OF_GRPO))
]


def yaml_or_bytes(random: Random) -> bytes:
    seed = random.choice(YAMLS)
    if random.random() < 0.6:
        return mutate.lines(seed, random)
    return yaml.safe_dump(_writable(mutate.tree(yaml.safe_load(seed), random))).encode(errors="replace")


def _writable(value: Any) -> Any:
    """What YAML can be made of: no numbers of thousands of digits."""
    if isinstance(value, dict):
        return {str(name): _writable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_writable(inner) for inner in value]
    return "9" * 4400 if isinstance(value, int) and abs(value) > 10**4000 else value
