"""One digest over all that a bundle holds: any byte changes it, and a shell gives the same."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from suite.bundle import evidence
from suite.bundle.derive import derive
from suite.bundle.evidence import TooMuchEvidence, digest_of, digest_of_all, read_once
from suite.bundle.facts import NEWEST_DERIVATION
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import verify
from tests.bundle.tampering import RUNS, shipped
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]
REAL = RUNS / shipped("deepspeed-1M-n2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL, tmp_path / REAL.name))


def shell_lines() -> list[str]:
    """The commands of the page, in order: of one bundle, and of all below a folder."""
    page = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def printed(command: str, folder: Path) -> str:
    result = subprocess.run(["bash", "-ec", command], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.split()[0]


def test_a_shell_gives_the_same_digest_as_the_page_tells(path: Path) -> None:
    (path / "logs" / "a b-\N{LATIN SMALL LETTER E WITH ACUTE}.log").write_text("with a space")
    (path / "logs" / ".hidden").write_text("x")
    (path / "logs" / ".drafts").mkdir()
    (path / "logs" / ".drafts" / "one").write_text("x")
    (path / "logs" / "lock").write_text("evidence below the top")
    assert printed(shell_lines()[0], path) == digest_of(Bundle(path))


def test_a_shell_gives_the_same_digest_of_a_folder(path: Path) -> None:
    other = Path(shutil.copytree(REAL.with_name(REAL.name[:-1] + "2"), path.with_name(REAL.name[:-1] + "2")))
    both = digest_of_all(digest_of(Bundle(each)) for each in (other, path))
    assert printed(shell_lines()[1], path.parent) == both


@pytest.mark.parametrize("most", [evidence._HELD_BYTES, 0])
def test_what_was_hashed_is_what_a_record_is_derived_from(path, most, monkeypatch):
    """No file that is held is read again; of those that are beyond what is held, the digest is the same."""
    monkeypatch.setattr(evidence, "_HELD_BYTES", most)
    bundle = Bundle(path)
    before, known = derive(bundle), read_once(bundle)[0]
    found, held = read_once(bundle)
    assert found == known
    assert derive(held, evidence=found) == before
    for file in (path / "manifest.json", path / "environment.json", *(path / "events").iterdir()):
        file.write_text("another")
    if most:
        assert derive(held, evidence=found) == before
    else:
        with pytest.raises(DamagedBundle):
            derive(held, evidence=found)


@pytest.mark.parametrize("name", sorted(str(one.relative_to(REAL)) for one in REAL.rglob("*") if one.is_file()))
def test_any_byte_of_any_file_of_evidence_changes_the_digest(path: Path, name: str) -> None:
    before = digest_of(Bundle(path))
    data = bytearray((path / name).read_bytes() or b" ")
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    assert (digest_of(Bundle(path)) == before) == (name in ("record.json", "lock"))


def test_a_file_more_less_or_by_another_name_changes_the_digest(path: Path) -> None:
    found = [digest_of(Bundle(path))]
    (path / "logs" / "rank-9.log").touch()
    found.append(digest_of(Bundle(path)))
    (path / "logs" / "rank-9.log").rename(path / "logs" / "rank-8.log")
    found.append(digest_of(Bundle(path)))
    (path / "logs" / "rank-8.log").unlink()
    (path / "logs" / "rank-1.log").unlink()
    found.append(digest_of(Bundle(path)))
    assert len(set(found)) == 4


def test_the_folder_s_name_the_times_of_files_and_drafts_change_nothing(path: Path) -> None:
    before = read_once(Bundle(path))[0]
    os.utime(path / "manifest.json", (1, 1))
    (path / ".record.json.17").write_text("{")
    path.rename(path.with_name("other"))
    assert read_once(Bundle(path.with_name("other")))[0] == before and before.files == 7


def test_links_pipes_and_names_that_a_list_cannot_hold_are_damage(path: Path) -> None:
    log = path / "logs" / "rank-0.log"
    log.unlink()
    log.symlink_to("/etc/passwd")
    with pytest.raises(DamagedBundle, match=r"^logs/rank-0\.log is a symbolic link$"):
        digest_of(Bundle(path))
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(DamagedBundle, match="not a regular file"):
        digest_of(Bundle(path))
    log.unlink()
    for name in ("a\nb", "a\\b", "a\x1bb"):
        (path / "logs" / name).touch()
        with pytest.raises(DamagedBundle, match="is not a name of a file") as caught:
            digest_of(Bundle(path))
        assert str(caught.value).isprintable()
        (path / "logs" / name).unlink()
    shutil.rmtree(path / "logs")
    (path / "logs").symlink_to("/")
    with pytest.raises(DamagedBundle, match="logs is a symbolic link"):
        digest_of(Bundle(path))
    with pytest.raises(DamagedBundle, match="cannot be read"):
        digest_of(Bundle(path / "none"))


def test_what_is_too_deep_or_too_much_is_told_and_not_read(path: Path) -> None:
    (path / "logs" / "/".join("a" * 12)).mkdir(parents=True)
    with pytest.raises(DamagedBundle, match="folders deep"):
        digest_of(Bundle(path))
    shutil.rmtree(path / "logs" / "a")
    with (path / "logs" / "rank-0.log").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooMuchEvidence, match="more than the"):
        digest_of(Bundle(path))


def test_a_record_names_its_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = synthetic_manifest()
    bundle = Bundle(make_bundle(tmp_path, manifest, facts={**facts_of(manifest), "derivation": NEWEST_DERIVATION}))
    record = derive(bundle)
    assert record.evidence == read_once(bundle)[0]
    bundle.write_record(record)
    assert verify(bundle).status == "equal"
    (bundle.path / "logs" / "rank-0.log").write_text("a line more")
    assert [line.split(":")[0] for line in verify(bundle).differences] == ["evidence.digest", "evidence.files"]
    monkeypatch.setattr(evidence, "MOST_BYTES", 100)
    assert derive(bundle).evidence is None


def test_the_digest_of_several_does_not_depend_on_their_order_and_of_one_is_its_own() -> None:
    first, second = "a" * 64, "b" * 64
    assert digest_of_all([first, second]) == digest_of_all([second, first]) != digest_of_all([first])
    assert digest_of_all([first]) == first
    assert digest_of_all([first, first]) != first
