"""What was found once by ``make fuzz`` stays mended, and a few new inputs of every parser."""

import pytest

from tests.fuzz import run as harness
from tests.fuzz.run import CORPUS, Target, random_of, run, try_one
from tests.fuzz.targets import TARGETS

KEPT = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never ends is still ended; how fast a parser is, is for ``make fuzz``."""
    monkeypatch.setattr(harness, "MOST_SECONDS", 100.0)


@pytest.mark.parametrize("path", KEPT, ids=[f"{path.parent.name}/{path.name}" for path in KEPT])
def test_what_was_found_stays_mended(path):
    assert try_one(TARGETS[path.parent.name], path.read_bytes())[1] is None


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_inputs_of_every_parser(name):
    result = run(TARGETS[name], 60, seed=0, first=0, seconds=float("inf"), findings=None)
    assert result.findings == []
    assert result.refused < result.inputs or name == "archive", "inputs that nobody takes reach nothing"


def test_an_input_follows_from_its_number_alone():
    target = TARGETS["manifest"]
    assert target.make(random_of("manifest", 1, 5)) == target.make(random_of("manifest", 1, 5))
    assert target.make(random_of("manifest", 1, 5)) != target.make(random_of("manifest", 1, 6))


def test_what_is_wrong_with_a_parser_is_seen(tmp_path, monkeypatch):
    def read(data: bytes) -> None:
        if data == b"loop":
            while True:
                pass
        if data == b"bug":
            raise KeyError("x")
        if data == b"refused":
            raise ValueError("no")

    inputs = [b"ok", b"refused", b"bug"]
    target = Target("toy", lambda random: inputs[random.randrange(3)], read, (ValueError,))
    result = run(target, 60, seed=0, first=0, seconds=float("inf"), findings=tmp_path)
    assert 0 < result.refused < 60 and 0 < len(result.findings) < 60 and "KeyError" in result.findings[0]
    assert [path.read_bytes() for path in (tmp_path / "toy").iterdir()] == [b"bug"]
    monkeypatch.setattr(harness, "MOST_SECONDS", 0.05)
    assert "longer than" in (try_one(target, b"loop")[1] or "")
