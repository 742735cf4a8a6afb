# ruff: noqa: E501 - inputs are as long as they are
"""Every parser of what somebody else may have written, with valid inputs to change and its declared errors."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from pydantic import ValidationError

from suite.bundle.derive import derive
from suite.bundle.files import DamagedBundle, parse_object
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.claims.check import check_claims
from suite.claims.table import parse_table
from suite.cli.claims import claim_lines
from suite.cli.options.reading import rank_counts
from suite.conduct.running.consent import what_it_asks
from suite.conduct.running.progress import title
from suite.fitting.check import run_check
from suite.fitting.published import read_published
from suite.fitting.rl_check import rl_predictions
from suite.fitting.rl_nemo import read_recipes
from suite.fitting.rl_rows import read_rl
from suite.launch.cluster.scheduler import Stream
from suite.launch.cluster.submission import Submission, read_submission
from suite.launch.cluster.transcript import read_streams
from suite.launch.docker.copying import UnsafeCopy, extract
from suite.launch.job import Job
from suite.launch.kubernetes.answers import readable
from suite.launch.kubernetes.diagnose import scheduler_end
from suite.launch.kubernetes.names import object_name, quantity_number
from suite.launch.kubernetes.pods import read_pods, run_end
from suite.launch.slurm import client
from suite.launch.slurm.output import read_output, verdict
from suite.launch.stream import EventStream
from suite.planner.ask import device_range
from suite.planner.parameters import load_parameters
from suite.planner.rl_parameters import load_rl_parameters
from suite.report.facts.environment import figures_of
from suite.spec import typed
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.lengths import parse_lengths
from suite.spec.manifest import manifest_hash, work_hash
from suite.spec.names import SAFE_ID
from suite.spec.redaction import without_secrets
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.shape_file import load_shape
from suite.spec.workload import Workload
from tests.fuzz import mutate
from tests.fuzz.archives import make_identity, make_packed, read_identity, read_packed
from tests.fuzz.run import Target
from tests.synthetic import GPT, LLAMA, SMOKE, grpo_workload, make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]
TWO_RANKS = Layout(devices_per_node=2, data=2)


@cache
def folder() -> Path:
    """For parsers that read a file; gone with the process."""
    import atexit

    path = Path(tempfile.mkdtemp(prefix="suite-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


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


def text_of(data: bytes) -> str:
    """As a reader of the package has it."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedBundle("not UTF-8") from error


def read_manifest(data: bytes) -> None:
    manifest = parse_manifest(text_of(data), "manifest.json")
    what_it_asks(manifest, "3 runs")
    title(manifest)
    manifest.model_dump_json(by_alias=True)


def in_file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def read_shape(data: bytes) -> None:
    load_shape(in_file("shape.yaml", data))


def read_config(data: bytes) -> None:
    load_shape(in_file("config.json", data))


YAMLS = [yaml.safe_dump(shape.model_dump(mode="json")).encode() for shape in (GPT, LLAMA)]
CONFIGS: list[Any] = [
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
        "intermediate_size": 11008,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    },
    {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024},
    {
        "model_type": "opt",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "vocab_size": 50272,
        "ffn_dim": 3072,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768,
        "do_layer_norm_before": True,
    },
    {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    {
        "model_type": "qwen3",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "vocab_size": 151936,
        "intermediate_size": 6144,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rope_theta": 1000000,
    },
]


def read_workload(data: bytes) -> None:
    body = parse_object(text_of(data), "workload")
    workload = Workload.model_validate(body.get("workload"))
    layout = Layout.model_validate(body.get("layout"))
    changes = body.get("changes")
    changed = workload.changed(changes if isinstance(changes, dict) else {})
    resolve_work(GPT, changed, layout)
    layout.label()


def no_files(body: Any, random: Random) -> Any:
    """An option may name a file of lengths; which one, is not for an input to say."""
    return json.loads(json.dumps(body).replace("list:", "list "))


WORKLOADS = [
    {
        "workload": SMOKE.model_dump(mode="json"),
        "layout": TWO_RANKS.model_dump(mode="json"),
        "changes": {"rollouts": 8, "micro_batch": 2},
    },
    {
        "workload": grpo_workload().model_dump(mode="json"),
        "layout": TWO_RANKS.model_dump(mode="json"),
        "changes": {
            "algorithm": "grpo:kl_coefficient=0.001",
            "group": 4,
            "lengths": "lognormal:mean=10,sigma=0.6,cap=24",
        },
    },
]


@cache
def bundle() -> Path:
    path = make_bundle(folder() / "bundles", synthetic_manifest(layout=TWO_RANKS, iterations=3, warmup=1))
    Bundle(path).write_record(derive(Bundle(path)))
    return path


def with_file(name: str, data: bytes, act: Any) -> None:
    """Do something with the bundle while one of its files is another."""
    path = bundle() / name
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        act(Bundle(bundle()))
    finally:
        path.write_bytes(before)


def derived(found: Bundle) -> None:
    json.loads(derive(found).model_dump_json(by_alias=True))


def read_rank_events(data: bytes) -> None:
    with_file("events/rank-0.jsonl", data, derived)


def read_driver_events(data: bytes) -> None:
    with_file("events/driver.jsonl", data, derived)


def events_of(name: str) -> list[Any]:
    return [json.loads(line) for line in (bundle() / "events" / name).read_text().splitlines()]


def make_events(name: str) -> Any:
    def make(random: Random) -> bytes:
        events = events_of(name)
        if random.random() < 0.3:
            return mutate.lines(b"".join(mutate.json_bytes(event) + b"\n" for event in events), random)
        at = random.randrange(len(events))
        events[at] = mutate.tree(events[at], random, 3)
        return b"".join(mutate.json_bytes(event) + b"\n" for event in events)

    return make


def read_record(data: bytes) -> None:
    def act(found: Bundle) -> None:
        result = verify(found)
        result.model_dump_json()
        found.record()

    with_file("record.json", data, act)


def read_environment(data: bytes) -> None:
    def act(found: Bundle) -> None:
        record = derive(found)
        record.model_dump_json(by_alias=True)
        figures_of([record])

    with_file("environment.json", data, act)


ENVIRONMENT = {
    "launcher": "docker",
    "suite_version": "1.0",
    "git_commit": "0" * 40,
    "job": {
        "argv": ["python"],
        "env": {"OMP_NUM_THREADS": "1"},
        "nodes": 1,
        "ranks_per_node": 2,
        "limits": {"run_seconds": 3600.0},
    },
    "host": {"name": "a", "cpu": "Some CPU", "cores": 2, "memory_bytes": 1 << 33, "kernel": "6.0"},
    "engine": {"name": "docker", "version": "28", "remote": False},
    "image": {"id": "sha256:" + "0" * 64, "reference": "suite-engines:1", "digest": None},
    "container": {"user": "0:0", "shm_bytes": 1 << 34, "ulimits": {"stack": 1 << 26}},
    "runs_at_once": 1,
}


@cache
def submission_body() -> Any:
    manifest = synthetic_manifest()
    whole = Submission(
        launcher="slurm",
        manifest=manifest,
        job=Job(name=manifest.run.id, argv=("python",), env={"A": "b"}, ranks_per_node=1),
        environment={"host": {"name": "a"}},
        submitted=1.7e9,
        scheduler={"name": "a", "index": None, "job": "7", "output": "/nowhere/a", "starter": "torchrun"},
    )
    return json.loads(whole.model_dump_json(by_alias=True))


def submission_again(body: Any, random: Random) -> Any:
    if isinstance(body, dict) and isinstance(body.get("manifest"), dict):
        body["manifest"] = hashed_again(body["manifest"], random)
    return body


def _run_of(data: bytes) -> str:
    """What its file is called; another name where the bytes tell none that a file can have."""
    try:
        name = json.loads(data)["manifest"]["run"]["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "submission"
    return name if isinstance(name, str) and SAFE_ID.fullmatch(name) else "submission"


def read_a_submission(data: bytes) -> None:
    submission = read_submission(in_file(f"{_run_of(data)}.json", data))
    submission.model_dump_json(by_alias=True)


CLAIMS = (
    "model,gpu,gpus,params (B),layers,hidden,ffn,seq len,global batch,heads,kv heads,vocab,tokens/s,tokens/s/gpu,tflops/gpu,mfu,"
    "hfu,step time (s),train time (h),gpu hours,tokens,peak tflops,speedup,efficiency\n"
    'llama-7B,A100-80GB,8,7,32,4096,11008,2048,128,32,32,32000,"24,000",3000,140,45,50,11.0,12,96,1B,312,1.0,100\n'
    "llama-7B,8x A100-80GB,16,7,32,4096,11008,2048,256,32,32,32000,46000,2875,134.5 ± 0.5,43%,48,11.4,7,112,1B,312,1.92,96\n"
    "moe 8x7B LoRA,H100,32,46.7,32,4096,14336,4096,512,32,8,32000,1.2e5,3750,~300,30.3,,17.5,,,,989,3.6,0.9\n"
).encode()


def as_markdown(data: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]).encode()


def make_claims(random: Random) -> bytes:
    if random.random() < 0.3:
        return mutate.lines(random.choice((CLAIMS, as_markdown(CLAIMS))), random)
    return cells_changed(CLAIMS, random, random.random() < 0.3)


def cells_changed(data: bytes, random: Random, markdown: bool = False) -> bytes:
    """A table with a few cells of other numbers, units and words."""
    rows = list(csv.reader(io.StringIO(data.decode())))
    for _ in range(random.randint(1, 6)):
        row = random.choice(rows)
        if row:
            at = random.randrange(len(row))
            row[at] = random.choice(
                (
                    mutate.text(row[at], random),
                    str(random.choice(mutate.VALUES))[:1000],
                    str(10.0 ** random.randint(-320, 308)),
                )
            )
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    text = out.getvalue().encode(errors="replace")
    try:
        return as_markdown(text) if markdown else text
    except csv.Error:
        return text


def read_claims(data: bytes) -> None:
    text = data.decode(errors="replace")
    table = parse_table(text, "table", markdown=text.lstrip().startswith("|"))
    claim_lines(check_claims(table, {}, 0.02), 40)


@cache
def published() -> list[bytes]:
    heads = []
    for path in sorted((ROOT / "docs/published").glob("*.csv")):
        lines = path.read_bytes().splitlines(keepends=True)
        heads.append(b"".join(lines[:6]))
    return heads


def make_published(random: Random) -> bytes:
    seed = random.choice(published())
    return mutate.lines(seed, random) if random.random() < 0.3 else cells_changed(seed, random)


@cache
def published_rl() -> tuple[list[bytes], list[dict[str, str]]]:
    """The heads of every table of RL iterations, and the recipes that NeMo-RL's rows are read with."""
    folder_ = ROOT / "docs/published/rl"
    heads = [b"".join(path.read_bytes().splitlines(keepends=True)[:8]) for path in sorted(folder_.glob("*.csv"))]
    return heads, read_recipes([folder_ / "nemo_rl_recipes.csv"])


def make_published_rl(random: Random) -> bytes:
    seed = random.choice(published_rl()[0])
    return mutate.lines(seed, random) if random.random() < 0.3 else cells_changed(seed, random)


_every = iter(range(1 << 62))


def read_rows(data: bytes) -> None:
    found = read_published([in_file("rows.csv", data)])
    if found.entries and next(_every) % 10 == 0:  # the planner takes long
        run_check(found, load_parameters())


def read_rl_rows(data: bytes) -> None:
    rows, _ = read_rl([in_file("rl.csv", data)], published_rl()[1])
    if rows and next(_every) % 10 == 0:  # the planner takes long
        for each in rl_predictions(rows, load_parameters(), load_rl_parameters()):
            assert each.predicted >= 0


DURATIONS = ("90", "90s", "20m", "1h30m", "1.5h", "100h20m10s")
SIZES = ("16g", "512m", "1.5GiB", "64 gb", "1024", "2TiB")
WORDS = (
    "3%",
    "2.5 %",
    "8..1024",
    "all",
    "4",
    "16Gi",
    "500m",
    "2e3",
    "lognormal:mean=512,sigma=0.6,cap=4096,at-cap=0.1",
    "fixed:512",
)


def make_text(seeds: tuple[str, ...]) -> Any:
    def make(random: Random) -> bytes:
        return mutate.text(random.choice(seeds), random).encode(errors="surrogatepass")

    return make


def plain(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def read_duration(data: bytes) -> None:
    assert 0 < typed.seconds(plain(data)) < 1e9


def read_size(data: bytes) -> None:
    assert 0 <= typed.size(plain(data)) <= 1 << 60


def read_words(data: bytes) -> None:
    text, refused = plain(data), 0
    for read in (
        lambda: typed.share("--margin", text),
        lambda: typed.pair("--env", text),
        lambda: typed.whole("--ranks", text, 100),
        lambda: rank_counts([text], 8),
        lambda: device_range(text),
        lambda: quantity_number(text),
        lambda: None if text.startswith("list") else parse_lengths(text),
        lambda: object_name(readable(text)),
        lambda: without_secrets(text),
    ):
        try:
            read()
        except ValueError as error:
            if type(error) not in (ValueError, UsageError) or len(str(error)) > 20_000:
                raise
            refused += 1
    if refused > 6:
        raise UsageError("refused by nearly all")


SQUEUE = b"7|RUNNING|1700000000|N/A|n[1-4]|None|/shared/me/runs\n7_3|PENDING|N/A|N/A||(Priority)|/shared/me/a|b\n"
SACCT = b"7|CANCELLED by 1000|1700000000|1700000100|n1|None\n"
OUTPUT = (
    b'0: ::suite:: {"kind": "start", "rank": 0, "seq": 0, "time": 1.0}\n0: hello\n1: there\n'
    b'1: ::suite:: {"kind": "piece", "rank": 1, "seq": 0, "part": 0, "parts": 2, "text": "{\\"kind\\": "}\n'
    b'1: ::suite:: {"kind": "piece", "rank": 1, "seq": 0, "part": 1, "parts": 2, "text": "\\"end\\"}"}\n'
    b"srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: tasks 0-1,5: Killed\n"
    b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    b"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
)


def make_slurm(random: Random) -> bytes:
    return random.choice((b"Q", b"A", b"O")) + mutate.lines(random.choice((SQUEUE, SACCT, OUTPUT)), random)


def read_slurm(data: bytes) -> None:
    text = data[1:].decode(errors="replace")
    if data[:1] == b"O":
        output = read_output(io.BytesIO(data[1:]).readlines(), TWO_RANKS, "srun")
        verdict(output.own, "FAILED", "None")
        read_streams(output.streams, 2)
        return
    call = client._call
    client._call = lambda *command, **more: text if command[0] == ("squeue" if data[:1] == b"Q" else "sacct") else ""  # type: ignore[assignment]
    try:
        client.find("7")
        client.find_by_name("a", "/shared/me/runs", 3)
    finally:
        client._call = call


POD = {
    "kind": "Pod",
    "metadata": {
        "name": "suite-a-0-xyz",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"batch.kubernetes.io/job-completion-index": "0", "training.kubeflow.org/replica-type": "worker"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [{"kind": "PyTorchJob"}],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "ranks"}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes: Insufficient nvidia.com/gpu",
            },
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ],
        "initContainerStatuses": [
            {"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
        ],
        "containerStatuses": [
            {
                "name": "ranks",
                "state": {
                    "terminated": {
                        "reason": "OOMKilled",
                        "exitCode": 137,
                        "startedAt": "2026-01-01T00:00:00Z",
                        "finishedAt": "2026-01-01T01:00:00Z",
                    }
                },
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1}},
            }
        ],
    },
}
RUNS = [
    {
        "kind": "Job",
        "status": {
            "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}]
        },
    },
    {"kind": "RayJob", "status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}},
    {"kind": "Job", "status": {"state": {"phase": "Aborted", "reason": "PodFailed", "message": "one of them"}}},
]


def make_kubernetes(random: Random) -> bytes:
    body = {
        "pods": [POD, POD],
        "run": random.choice(RUNS),
        "warnings": ["FailedScheduling: Insufficient nvidia.com/gpu"],
    }
    return mutate.json_bytes(mutate.tree(body, random, 6))


def read_kubernetes(data: bytes) -> None:
    body = parse_object(text_of(data), "answer")
    pods, warnings = body.get("pods"), body.get("warnings")
    found = read_pods(pods if isinstance(pods, list) else [])
    end = run_end(body.get("run") or {})
    told = scheduler_end(
        found, end, 2, [readable(str(each)) for each in warnings] if isinstance(warnings, list) else []
    )
    told.model_dump_json()
    for pod in found:
        pod.why_pending()


def make_stream(random: Random) -> bytes:
    return mutate.lines(OUTPUT, random)


def read_stream(data: bytes) -> None:
    logged: list[bytes] = []
    stream = EventStream(logged.append, lambda event: None)
    for start in range(0, len(data), 7):
        stream.feed(data[start : start + 7])
    stream.close()
    read_streams([Stream("rank-0", io.BytesIO(data).readlines(), (0, 1))], 2)


@cache
def archives() -> list[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (
            ("events/rank-0.jsonl", tarfile.REGTYPE),
            ("events/rank-1.jsonl", tarfile.SYMTYPE),
            ("events/../x", tarfile.REGTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 5 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"{}\n{}"))
    return [out.getvalue().rstrip(b"\0") + b"\0" * 1024]


def make_archive(random: Random) -> bytes:
    return mutate.raw(random.choice(archives()), random)


def read_archive(data: bytes) -> None:
    target = folder() / "events"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    extract((data[start : start + 512] for start in range(0, len(data), 512)), target)
    for path in target.iterdir():
        assert re.fullmatch(r"rank-\d{1,7}\.jsonl", path.name) and path.is_file() and not path.is_symlink()


def every_manifest(random: Random) -> bytes:
    return mutate.json_document(manifests(), hashed_again)(random)


def every_submission(random: Random) -> bytes:
    return mutate.json_document([submission_body()], submission_again)(random)


def every_record(random: Random) -> bytes:
    return mutate.json_document([json.loads((bundle() / "record.json").read_text())])(random)


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


BUNDLE = (DamagedBundle, UsageError)
TARGETS = {
    target.name: target
    for target in (
        Target("manifest", every_manifest, read_manifest, (DamagedBundle,)),
        Target("shape", yaml_or_bytes, read_shape, (UsageError,)),
        Target("config", mutate.json_document(CONFIGS), read_config, (UsageError,)),
        Target(
            "workload",
            mutate.json_document(WORKLOADS, no_files),
            read_workload,
            (ValidationError, UsageError, DamagedBundle),
        ),
        Target("rank-events", make_events("rank-0.jsonl"), read_rank_events, BUNDLE),
        Target("driver-events", make_events("driver.jsonl"), read_driver_events, BUNDLE),
        Target("record", every_record, read_record, BUNDLE),
        Target("environment", mutate.json_document([ENVIRONMENT]), read_environment, BUNDLE),
        Target("submission", every_submission, read_a_submission, (UsageError,)),
        Target("claims", make_claims, read_claims, (UsageError,)),
        Target("published", make_published, read_rows, (UsageError,)),
        Target("published-rl", make_published_rl, read_rl_rows, (UsageError,)),
        Target("durations", make_text(DURATIONS), read_duration, (UsageError,)),
        Target("sizes", make_text(SIZES), read_size, (UsageError,)),
        Target("words", make_text(WORDS), read_words, (UsageError,)),
        Target("slurm", make_slurm, read_slurm, (UsageError,)),
        Target("kubernetes", make_kubernetes, read_kubernetes, BUNDLE),
        Target("stream", make_stream, read_stream, ()),
        Target("archive", make_archive, read_archive, (UnsafeCopy,)),
        Target("packed", make_packed, read_packed, (UsageError,)),
        Target("identity", make_identity, read_identity, (UsageError,)),
    )
}
