"""Files beside a user's runs and images: a site file, the tags of a run, what an image's stack holds."""

from suite.bundle.tags import FOLDER, tags_of
from suite.cli.options.site import read_site
from suite.images.stack_file import read_stack
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

STACK = {
    "schema": "suite/image-stack/1",
    "image": "suite-nemo:1",
    "id": "sha256:" + "1" * 64,
    "file": "sha256:" + "2" * 64,
    "python": "3.8.10",
    "packages": {"torch": "1.14.0a0+44dac51c.nv23.02", "apex": "0.1"},
    "commits": {"trlx": "3340c2f3a56d1d14fdd5f13ad575121fa26b6d92"},
}


make_site = mutate.line_document(SITE)


def read_a_site(data: bytes) -> None:
    read_site(in_file("site.yaml", data), "slurm")


make_tags = mutate.json_document(lambda: [TAGS])


def read_tags(data: bytes) -> None:
    place = folder() / FOLDER
    place.mkdir(exist_ok=True)
    (place / "run.json").write_bytes(data)
    tags_of(folder() / "run")


make_stack = mutate.json_document(lambda: [STACK])


def read_a_stack(data: bytes) -> None:
    read_stack(in_file("image.sqsh.stack.json", data))
