"""Signatures by SSH keys, made and checked by the real ssh-keygen."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from suite.bundle.archive.packing import Packing, pack
from suite.bundle.archive.signature import check, sign
from suite.spec.base import UsageError
from tests.bundle.archive.test_hostile_archives import files_of, zipped
from tests.bundle.tampering import copied, shipped
from tests.command import suite

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")


def made_key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path


def allowed(folder: Path, *keys: Path) -> Path:
    lines = (f"{key.name}@example.org {key.with_suffix('.pub').read_text()}" for key in keys)
    (folder / "allowed").write_text("".join(lines))
    return folder / "allowed"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return made_key(tmp_path, "ann"), made_key(tmp_path, "eve")


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    copied(shipped("deepspeed-3M-n1"), tmp_path / "runs")
    pack(tmp_path / "runs", tmp_path / "a.suite.zip", Packing(sign=keys[0]))
    return tmp_path / "a.suite.zip"


def test_who_signed_it_is_said(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    ann, eve = keys
    done = suite("verify", signed)
    assert done.exit_code == 0 and "signature: signed by ED25519 SHA256:" in done.stdout
    done = suite("verify", signed, "--allowed-signers", allowed(tmp_path, ann, eve))
    assert done.exit_code == 0 and "signature: signed by ann@example.org (ED25519 SHA256:" in done.stdout
    done = suite("verify", signed, "--allowed-signers", allowed(tmp_path, eve))
    assert done.exit_code == 3 and "signed, but by none of the allowed signers" in done.stdout


def test_an_archive_that_is_not_signed_says_so(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    plain, out = tmp_path / "plain.suite.zip", tmp_path / "out"
    pack(tmp_path / "runs", plain, Packing())
    done = suite("verify", plain)
    assert done.exit_code == 0 and "signature: not signed" in done.stdout
    signers = ("--allowed-signers", allowed(tmp_path, keys[0]))
    assert suite("verify", plain, *signers).exit_code == 3
    assert suite("unpack", plain, "-o", out, *signers).exit_code == 3
    assert not out.exists()
    assert suite("unpack", signed, "-o", out, *signers).exit_code == 0
    assert (out / "runs").is_dir()


def test_a_signature_of_another_index_is_bad(signed: Path, tmp_path: Path) -> None:
    files = files_of(signed.read_bytes())
    index = json.loads(files["suite-archive.json"])
    index["suite_version"] = "9.9"
    signed.write_bytes(zipped({**files, "suite-archive.json": json.dumps(index).encode()}))
    done = suite("verify", signed)
    assert done.exit_code == 3 and "BAD SIGNATURE" in done.stdout
    assert suite("unpack", signed, "-o", tmp_path / "out").exit_code == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "signature", [b"", b"hello", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"]
)
def test_what_is_no_signature_is_a_bad_one(signature: bytes) -> None:
    assert check(b"index", signature).outcome == "bad signature"


def test_a_signature_for_something_else_is_a_bad_one(keys: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"index")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", keys[0], "-n", "git", tmp_path / "data"], check=True)
    assert check(b"index", (tmp_path / "data.sig").read_bytes()).outcome == "bad signature"
    assert check(b"index", sign(b"index", keys[0])).outcome == "signer not checked"


def test_mistakes_are_one_line(signed: Path, tmp_path: Path) -> None:
    key, target = tmp_path / "no.key", tmp_path / "b.suite.zip"
    key.write_text("hello")
    for arguments, says in (
        (("pack", tmp_path / "runs", "-o", target, "--sign", key), "cannot sign with"),
        (("verify", signed, "--allowed-signers", tmp_path / "none"), "no file of allowed signers"),
        (("verify", tmp_path / "runs", "--allowed-signers", key), "a folder has no signature"),
    ):
        done = suite(*arguments)
        assert done.exit_code == 2 and says in done.stderr
    assert not target.exists()
    with pytest.raises(UsageError, match="cannot sign with"):
        sign(b"index", tmp_path / "nothing")


def test_the_signature_is_the_one_that_ssh_keygen_checks(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    """As docs/archives.md says it can be done without the suite."""
    with zipfile.ZipFile(signed) as archive:
        archive.extractall(tmp_path / "out")
    command = ["ssh-keygen", "-Y", "verify", "-f", allowed(tmp_path, keys[0]), "-I", "ann@example.org"]
    command += ["-n", "suite-archive", "-s", tmp_path / "out/suite-archive.json.sig"]
    with (tmp_path / "out/suite-archive.json").open("rb") as index:
        assert subprocess.run(command, stdin=index, capture_output=True).returncode == 0
