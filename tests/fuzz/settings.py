"""Files beside a user's runs: a site file, and the tags of a run."""

from __future__ import annotations

from random import Random

from suite.bundle.tags import FOLDER, tags_of
from suite.cli.options.cluster import Nodes
from suite.cli.options.site_file import read_site
from tests.fuzz import mutate
from tests.fuzz.material import folder, in_file

SITE = b"""\
slurm:
  partition: gpu
  account: 4711
  gpus-per-node: 2
  array: true
  env: {NCCL_SOCKET_IFNAME: ib0}
  stack: {torch: "1"}
  sbatch: [--exclude=n7]
  images: {engines: /images/engines.sqsh}
kubernetes:
  namespace: lab
  queue: lab-queue
"""
TAGS = {"schema": "suite/tags/1", "tags": ["baseline", "h100", "v1.0"]}


def make_site(random: Random) -> bytes:
    return mutate.lines(SITE, random)


def read_a_site(data: bytes) -> None:
    read_site(in_file("site.yaml", data), "slurm", Nodes)


make_tags = mutate.json_document([TAGS])


def read_tags(data: bytes) -> None:
    place = folder() / FOLDER
    place.mkdir(exist_ok=True)
    (place / "run.json").write_bytes(data)
    tags_of(folder() / "run")
