"""Digests of bases: asked of a registry through the runtime, compared, and written where they belong."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from suite.images.check import Answer, ask_registries, write_digests
from suite.launch.local import free_port
from suite.spec.images import BaseImage, bases
from tests.needs import require_programs
from tests.waiting import ended, logged, wait_until

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
NGC, NEMO_RL = (bases()[name] for name in ("ngc-23.02", "nemo-rl-0.7.0"))


def answer(base: BaseImage, found: str | None) -> Answer:
    return Answer(base="x", reference=base.reference, locked=base.digest, found=found)


@pytest.mark.parametrize(
    ("locked", "found", "verdict"),
    [(OLD, OLD, "same"), (OLD, NEW, "differs"), (None, NEW, "new"), (OLD, None, "unknown"), (None, None, "unknown")],
)
def test_two_digests_have_one_verdict(locked: str | None, found: str | None, verdict: str) -> None:
    assert answer(BaseImage(reference="a:1", digest=locked), found).verdict == verdict


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "manifests").mkdir()
    shutil.copy(ROOT / "manifests/images.yaml", tmp_path / "manifests")
    for path in ROOT.glob("Dockerfile.*"):
        shutil.copy(path, tmp_path)
    shutil.copytree(ROOT / "compose", tmp_path / "compose")
    return tmp_path


def lines_changed(checkout: Path, name: str) -> list[str]:
    before, after = ((root / name).read_text().splitlines() for root in (ROOT, checkout))
    assert len(before) == len(after)
    return [new for old, new in zip(before, after, strict=True) if old != new]


@pytest.mark.parametrize(
    ("base", "files"),
    [
        (NGC, {"Dockerfile.nemo": "ARG BASE_IMAGE={}"}),
        (NEMO_RL, {"Dockerfile.published": "ARG BASE_IMAGE={}", "compose/build.yaml": 'BASE_IMAGE: "{}",'}),
    ],
    ids=["another digest", "of Compose too"],
)
def test_a_digest_is_written_into_the_catalogue_and_wherever_its_base_is_built_on(checkout, base, files):
    for digest in (NEW, OLD):
        changed = write_digests([answer(base, digest)], checkout)
        assert [path.name for path in changed] == ["images.yaml", *(Path(file).name for file in files)]
        assert lines_changed(checkout, "manifests/images.yaml") == [f"    digest: {digest}"]
        for file, line in files.items():
            (found,) = lines_changed(checkout, file)
            assert line.format(f"{base.reference}@{digest}") in found


def test_nothing_is_written_where_nothing_was_learnt(checkout: Path) -> None:
    assert write_digests([answer(NEMO_RL, NEMO_RL.digest), answer(NGC, None)], checkout) == []


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of our own on this machine, as ``host:port``."""
    require_programs("a registry cannot be started here", "docker-registry")
    folder = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    config = folder / "config.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    process = logged(("docker-registry", "serve", str(config)), folder / "log")
    try:
        wait_until(lambda: _answers(address))
        yield address
    finally:
        ended(process)


def _answers(address: str) -> bool:
    host, port = address.split(":")
    with suppress(OSError):
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    return False


@pytest.mark.daemon
def test_the_digest_of_a_real_registry_is_the_one_that_was_pushed(runtime, registry, base_image, docker_api):
    reference = f"{registry}/suite-base:1"
    try:
        runtime.docker("tag", base_image, reference, check=True)
        pushed = runtime.docker("push", "--quiet", reference)
        assert pushed.returncode == 0, pushed.stderr
        (found,) = runtime.docker("inspect", "--format", "{{index .RepoDigests 0}}", reference).stdout.split()
        digest = found.partition("@")[2]
        unpinned, stale = BaseImage(reference=reference, digest=None), BaseImage(reference=reference, digest=OLD)
        nowhere = BaseImage(reference="127.0.0.1:1/none:1", digest=OLD)
        missing = BaseImage(reference=f"{registry}/none:1", digest=OLD)
        answers = ask_registries(
            docker_api, {"first": unpinned, "stale": stale, "nowhere": nowhere, "missing": missing}
        )
    finally:
        runtime.docker("rmi", reference)
    assert [one.verdict for one in answers] == ["new", "differs", "unknown", "unknown"]
    assert answers[0].found == answers[1].found == digest
    assert "refused" in str(answers[2].reason) and answers[3].reason
