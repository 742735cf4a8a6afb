"""`make audit`: what is known of the locks' packages is told apart from what nobody could be asked."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from requirements import audit
from tests.test_packaging import make

ROOT = Path(__file__).resolve().parents[1]


def answer(*packages: dict) -> subprocess.CompletedProcess:
    """As pip-audit prints it, which ends with 1 where it has found something."""
    code = int(any(package.get("vulns") for package in packages))
    return subprocess.CompletedProcess((), code, json.dumps({"dependencies": packages, "fixes": []}), "")


CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {
    "name": "pillow",
    "version": "9.0.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["9.0.1"], "aliases": ["CVE-1"], "description": "long"}],
}
OWN = {"name": "torch", "skip_reason": "not found on the index"}


def test_no_known_vulnerability_is_0(capsys):
    assert audit.main(["a.lock", "b.lock"], lambda lock: answer(CLEAN, OWN)) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("a.lock: 2 packages, 0 known vulnerabilities", "  not known to the service: torch"),
        *("b.lock: 2 packages, 0 known vulnerabilities", "  not known to the service: torch"),
    ]


def test_a_known_vulnerability_is_1_and_named_with_what_mends_it(capsys):
    answers = {"a.lock": answer(BAD), "b.lock": answer(CLEAN)}
    assert audit.main([*answers], answers.__getitem__) == 1, "also where a later lock has none"
    assert "  pillow 9.0.0: PYSEC-1, CVE-1; mended in 9.0.1" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("output", ["", "[]", "{}", "Traceback"])
def test_a_service_that_nobody_reaches_is_neither(capsys, output):
    failed = subprocess.CompletedProcess((), 1, output, "ERROR:pip_audit: unreachable\n")
    assert audit.main(["a.lock"], lambda lock: failed) == 3
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("not audited: a.lock: ")


def test_a_mirror_that_knows_no_package_is_no_clean_answer(capsys):
    assert audit.main(["a.lock"], lambda lock: answer(OWN, {**CLEAN, "skip_reason": "no"}, CLEAN)) == 3
    assert capsys.readouterr().err == "not audited: a.lock: the service does not know 2 of 3 packages\n"


def test_make_asks_about_every_lock_in_an_environment_of_its_own() -> None:
    recipe = make("-n", "-B", "audit")
    asked = set(re.findall(r"requirements/[\w/.-]+\.lock", recipe.replace("\\\n", " ").splitlines()[-1]))
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "requirements").rglob("*.lock")}
    assert asked == there - {"requirements/images/trlx-source.lock"}
    assert "--require-hashes" in recipe
