"""Secrets in variables and in texts: by the names of the first and by what values look like, never kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from suite.conduct.running.execute import execute
from suite.conduct.running.provenance import driver_facts
from suite.launch.cluster.submission import Submission, read_submission, write_submission
from suite.launch.job import Job, Site
from suite.launch.outcome import Failure, Outcome
from suite.spec.redaction import LEFT_OUT, is_secret, public_variables, without_secrets
from suite.worker import redaction as of_worker
from tests.synthetic import synthetic_manifest

WORD = "hunter2Hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
#: Names whose values are secret whatever they are.
NAMES = [
    "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYSQL_PASSWD",
    "GOOGLE_APPLICATION_CREDENTIALS", "NETRC_AUTH", "DB_PASS", "PASSPHRASE", "SSH_PASSPHRASE", "GH_PAT",
    "SESSION_COOKIE", "COOKIES", "SENTRY_DSN", "DSN", "DB_PWD", "SLACK_WEBHOOK_URL", "AZURE_STORAGE_CONNECTION_STRING",
    "SAS", "JWT", "pass", "gh-pat", "BEARER",
]  # fmt: skip
#: Values that hold the word in a form that is secret by itself, under names that say nothing.
VALUES = {
    "HTTPS_PROXY": f"http://user:{WORD}@proxy:3128",
    "ALL_PROXY": f"socks5h://{WORD}@proxy",
    "PIP_INDEX_URL": f"https://__any__:{WORD}@packages.example/simple",
    "PIP_EXTRA_INDEX_URL": f"https://packages.example/simple https://{WORD}@other.example/simple",
    "DATABASE_URL": f"postgresql+psycopg2://me:{WORD}/with@strange?chars@db:5432/runs",
    "REDIS_URL": f"redis://:{WORD}@cache:6379/0",
    "MYSQL": f"me:{WORD}@tcp(db:3306)/runs",
    "LIBPQ": f"host=db user=me password={WORD} dbname=runs",
    "ODBC": f"Server=db;Uid=me;Pwd={WORD};",
    "BLOB": f"https://a.blob.example/c?sv=1&sig={WORD}&se=2",
    "DOWNLOAD": f"https://a.example/model?access_token={WORD}",
    "MAPS": f"https://a.example/v1?key={WORD}",
    "HEADER": f"Authorization: Token {WORD}",
    "HEADERS": json.dumps({"Authorization": f"Bearer {WORD}", "Accept": "*/*"}),
    "CURL": f"-H 'Cookie: session={WORD}'",
    "OTEL": f"x=1,api-key={WORD}",
    "SAID": f"bearer {WORD}",
    "BASIC": "Basic bWU6aHVudGVyMg==",
    "CONFIG": json.dumps({"password": WORD, "user": "me"}),
    "GITHUB": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "HUB": "hf_abcdefghijklmnopqrstuvwxyzABCDEF",
    "AI": "sk-proj-abcdefghijklmnopqrstuvwxyz",
    "WEB": JWT,
    "CLOUD": "AKIAIOSFODNN7EXAMPLE",
    "PEM": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{WORD}\n-----END OPENSSH PRIVATE KEY-----",
}
#: What runs are really steered by.
PUBLIC = {
    "NCCL_ALGO": "Tree",
    "NCCL_SOCKET_IFNAME": "^lo,docker0",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1",
    "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p",
    "OMP_PLACES": "{0:4},{4:4}",
    "CUDA_VISIBLE_DEVICES": "GPU-8f6a1c9e-0000-1111-2222-333344445555",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
    "UCX_TLS": "rc,cuda_copy",
    "FI_PROVIDER": "efa",
    "MASTER_ADDR": "10.0.0.1:29500",
    "TORCH_NCCL_TRACE": "https://docs.example:8443/a@b?x=1",
    "MKL_NUM_THREADS": "8",
    "PATH": "/usr/bin:/shared/me/.local/bin",
    "IMAGE": "pytorch:24.01-py3@sha256:" + "0" * 64,
    "REGISTRY": "nvcr.io:5000/nvidia/pytorch:24.01-py3@sha256:" + "0" * 64,
    "COMPASS": "north",
    "TRITON_CACHE_DIR": "/scratch/basic functionality",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_speaks_of_a_secret(name: str) -> None:
    assert is_secret(name, "x") and of_worker.is_secret(name, "x")


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_a_secret_by_its_form(name: str) -> None:
    value = VALUES[name]
    assert is_secret("INNOCENT", value) and of_worker.is_secret("INNOCENT", value)
    kept = without_secrets(f"could not fetch: {value}")
    assert LEFT_OUT in kept and WORD not in kept and "bWU6" not in kept and kept.startswith("could not fetch: ")


@pytest.mark.parametrize("name", PUBLIC)
def test_what_steers_a_run_is_kept_as_it_is(name: str) -> None:
    value = PUBLIC[name]
    assert not is_secret(name, value) and not of_worker.is_secret(name, value)
    assert without_secrets(value) == value


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'layers'",
        "ValueError: unexpected token: 5",
        "prompt_tokens=4096 new_tokens=8192",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.10 GiB total capacity)",
        "torch.distributed.DistBackendError: NCCL error in: /src/NCCL.cpp:1333, unhandled system error",
        'File "/opt/venv/lib/python3.12/site-packages/a@b.py", line 12, in <module>',
        "author: somebody",
    ],
)
def test_lines_that_prove_a_failure_stay_readable(line: str) -> None:
    assert without_secrets(line) == line


class Failing:
    """A launcher that knows secrets, and whose runs fail with one in their evidence."""

    name = "failing"

    def facts(self, job: Job) -> dict[str, Any]:
        return {"engine": {"host": f"tcp://me:{WORD}@lab:2376", "warnings": [f"proxy is http://me:{WORD}@proxy"]}}

    def site(self, manifest: Any, bundle: Path, python: str) -> Any:
        return Site(python=python, bundle=str(bundle), python_path="/opt", env={"HTTPS_PROXY": VALUES["HTTPS_PROXY"]})

    def run(self, job: Job, folder: Any, on_event: Any) -> Outcome:
        failure = Failure(kind="config", evidence=(f"401 for https://me:{WORD}@packages.example/simple",))
        return Outcome(status="failed", exit_codes={0: 1}, elapsed_seconds=1.0, failure=failure)


def job(name: str = "run") -> Job:
    """With every variable of the tables above."""
    env = {**PUBLIC, **VALUES, **dict.fromkeys(NAMES, WORD)}
    return Job(name=name, argv=("/opt/python", "--proxy", f"http://me:{WORD}@proxy"), env=env, ranks_per_node=1)


def test_no_fact_of_the_driver_holds_one() -> None:
    facts = driver_facts(Failing(), job(), "/bundle")
    text = json.dumps(facts)
    assert WORD not in text and "ghp_" not in text and JWT not in text
    assert facts["job"]["env"] == PUBLIC
    assert facts["job"]["argv"] == ["python", "--proxy", f"http://{LEFT_OUT}@proxy"]


def test_no_submission_file_holds_one(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    given = job(manifest.run.id).model_copy(update={"argv": ("python",)})
    submission = Submission(launcher="slurm", manifest=manifest, job=given, environment={}, submitted=1.0)
    path = write_submission(tmp_path, submission)
    assert WORD not in path.read_text()
    assert read_submission(path).job.env == public_variables(given.env) == PUBLIC


def test_no_file_of_a_failed_run_holds_one(tmp_path: Path) -> None:
    record = execute(synthetic_manifest(), tmp_path, Failing(), "/opt/python", lambda event: None)
    assert record.failure and record.failure.evidence[0] == f"401 for https://{LEFT_OUT}@packages.example/simple"
    for file in (tmp_path / record.run.id).rglob("*"):
        assert not file.is_file() or WORD not in file.read_text(), file
