"""What users write: durations, sizes and other words of options; a site file, tags, what an image's stack holds."""

from collections.abc import Callable
from random import Random

from suite.bundle.tags import FOLDER, tags_of
from suite.cli.command import rank_counts
from suite.launch.kubernetes.pods import readable
from suite.launch.kubernetes.settings import object_name, quantity_number
from suite.planner.ask import device_range
from suite.spec import typed
from suite.spec.base import UsageError
from suite.spec.lengths import parse_lengths
from suite.spec.redaction import without_secrets
from tests.fuzz import mutate
from tests.fuzz.material import folder

DURATIONS = ("90", "90s", "20m", "1h30m", "1.5h", "100h20m10s")
SIZES = ("16g", "512m", "1.5GiB", "64 gb", "1024", "2TiB")
WORDS = (
    *("3%", "2.5 %", "8..1024", "all", "4", "16Gi", "500m", "2e3", "fixed:512"),
    "lognormal:mean=512,sigma=0.6,cap=4096,at-cap=0.1",
)


def make_text(seeds: tuple[str, ...]) -> Callable[[Random], bytes]:
    return lambda random: mutate.text(random.choice(seeds), random).encode(errors="surrogatepass")


def plain(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def read_duration(data: bytes) -> None:
    assert 0 < typed.seconds("--keep", plain(data)) < 1e9


def read_size(data: bytes) -> None:
    assert 0 <= typed.size("--memory", plain(data)) <= 1 << 60


def read_words(data: bytes) -> None:
    text, refused = plain(data), 0
    for read in (
        lambda: typed.share("--margin", text),
        lambda: typed.pairs("--env", [text]),
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


def read_tags(data: bytes) -> None:
    place = folder() / FOLDER
    place.mkdir(exist_ok=True)
    (place / "run.json").write_bytes(data)
    tags_of(folder() / "run")
