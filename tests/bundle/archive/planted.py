"""A results folder in which everything tells who ran it and where: in fields, texts, logs, names and submissions."""

import json
from pathlib import Path
from typing import Any

from suite.bundle.store import Bundle
from suite.launch.cluster.submission import Submission, write_submission
from suite.launch.job import Job
from tests.bundle.tampering import change, copied, derive_again, shipped

HOME = "/" + "home"
CONTAINER = "4f1c8e6a90b2d3755e8f01a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6"
#: By what it is, a fact that is planted.
FACTS = {
    "host": "dgx-acme17",
    "domain": "hpc.acme-robotics.de",
    "another host": "storage04",
    "user": "alice_w",
    "another user": "bobsmith",
    "a mail": "carol.jones@acme-robotics.de",
    "home": f"{HOME}/alice_w/top-secret-project",
    "scratch": "/lustre/team-x/checkpoints/step_100",
    "a path with spaces": "/mnt/big disk/models/v2.bin",
    "IPv4": "10.42.7.19",
    "public IPv4": "131.159.24.7",
    "IPv6": "fd12:3456:789a:1::17",
    "MAC": "3c:ec:ef:12:34:56",
    "InfiniBand": "b8ce:f603:00a1:22c4",
    "container": CONTAINER,
    "short container": CONTAINER[:12],
    "GPU": "GPU-5f1b7b3e-9c2d-4a77-8e11-0c9d1a2b3c4d",
    "serial": "PF3XYZ99A7",
    "registry": "registry.acme-robotics.de",
    "password": "hunter2correcthorse",
}
#: What must be nowhere, in any case of letters.
TRACES = [*FACTS.values(), "acme", "carol", "top-secret-project", "team-x", "big disk"]
_F = FACTS
LINES = [
    f"{_F['host']}:4411:4502 [0] NCCL INFO Bootstrap : Using eth0:{_F['IPv4']}<0>",
    f"[W socket.cpp:697] The client socket has failed to connect to [{_F['host']}.{_F['domain']}]:29500",
    f'Traceback: File "{_F["home"]}/venv/lib/python3.11/site-packages/torch/nn/module.py", line 12, in call',
    f"loading '{_F['a path with spaces']}' and {_F['scratch']}/model.pt, retrying.",
    '{"level":"info","who":"' + _F["user"] + '","where":"' + _F["home"] + '/x","ip":"' + _F["IPv6"] + '"}',
    f"\x1b[1m{_F['user']}\x1b[0m@{_F['host']}:~$ ls ~bobsmith/data/x",
    f"USER={_F['another user']} uid=1004({_F['another user']}) mail {_F['a mail']}",
    f"http://{_F['user']}:{_F['password']}@{_F['another host']}:8080/api/v1 answered 502",
    f"link/ether {_F['MAC']} brd ff:ff:ff:ff:ff:ff serial number: {_F['serial']} guid {_F['InfiniBand']}",
    f"cgroup /system.slice/docker-{_F['container']}.scope of docker {_F['short container']}",
    f"device {_F['GPU']} at {_F['public IPv4']}:443 on {_F['another host'].upper()}",
    "".join(f"{letter}\0" for letter in f"wide {_F['user']} {_F['IPv4']}"),
    f"/tmp/torchinductor_{_F['user']}/cache ../../{HOME[1:]}/alice_w/x file://{_F['home']}/y",
]


def plant(root: Path) -> Path:
    """``root/alice_w-results`` with two bundles, one in a folder of that name, and a submission."""
    folder = root / "runs"
    first, second = shipped("deepspeed-3M-n1"), shipped("deepspeed-3M-n1", 2)
    copied(first, folder)
    copied(second, folder)
    for name in (first, second):
        _plant_in(folder / name)
    below = folder / f"{_F['user']}-on-{_F['host']}"
    third = copied(shipped("megatron-1M-n1"), below)
    _plant_in(third)
    manifest = Bundle(folder / first).manifest()
    again = manifest.model_copy(update={"run": manifest.run.model_copy(update={"id": f"{first[:-1]}9", "repeat": 9})})
    write_submission(folder, a_submission(again))
    return folder


def _plant_in(path: Path) -> None:
    facts = json.loads((path / "environment.json").read_text())
    facts["host"].update(host=f"{_F['host']}.{_F['domain']}", container=_F["container"])
    facts["job"]["argv"] += [f"--data={_F['home']}/data", _F["scratch"]]
    facts["job"]["env"].update(HOSTNAME=_F["host"], WORK=_F["home"], NCCL_SOCKET=_F["IPv4"], WHO=_F["user"])
    facts["image"] = {"reference": f"{_F['registry']}:5000/team/image:1", "id": "sha256:" + "0" * 64, "digest": None}
    facts["odd"] = {_F["host"]: {"serial_number": _F["serial"], "list": [_F["MAC"], _F["GPU"], None, 3]}}
    (path / "environment.json").write_text(json.dumps(facts))
    change(path, _plant_in_event)
    change(path, _plant_in_event, "driver")
    text = (path / "events/rank-0.jsonl").read_text()
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in _F["another user"])
    (path / "events/rank-0.jsonl").write_text(text.replace("HIDDEN", escaped))
    (path / "logs/rank-0.log").write_text("".join(f"{line}\n" for line in LINES))
    (path / "logs" / f"node-{_F['host']}.log").write_bytes(b"\xff\xfe not UTF-8 " + _F["user"].encode() + b"\n")
    (path / "notes.json").write_text(json.dumps({"owner": _F["another user"], "deep": [{"at": _F["IPv6"]}]}))
    (path / "events/extra.txt").write_text("\n".join(LINES))
    derive_again(path)


def _plant_in_event(event: dict[str, Any]) -> None:
    if event["kind"] == "launch":
        event["started_by"] = f"{_F['user']} on {_F['host']}"
    if event["kind"] == "start":
        event["host"] = _F["host"]
    if event["kind"] == "environment":
        facts = event["facts"]
        facts.update(host=_F["host"], container=_F["container"], gpus=[_F["GPU"]])
        facts["notes"] += [f"weights from {_F['scratch']}", f"HIDDEN logged in from {_F['public IPv4']}"]
        facts["variables"]["MASTER_ADDR"] = _F["IPv4"]
        facts["variables"]["CACHE"] = f"/tmp/torchinductor_{_F['user']}"


def a_submission(manifest: Any) -> Submission:
    env = {"LOGNAME": _F["user"], "MASTER_ADDR": f"{_F['host']}.{_F['domain']}"}
    job = Job(name=manifest.run.id, argv=("python", f"{_F['home']}/run.py"), env=env, ranks_per_node=1)
    told = {"name": "a", "job": "77", "output": f"{_F['home']}/out.log", "starter": "torchrun"}
    told |= {"account": "acme-robotics", "user": _F["user"]}
    host = {"host": {"host": _F["host"], "container": None}}
    return Submission(launcher="slurm", manifest=manifest, job=job, environment=host, submitted=1.7e9, scheduler=told)
