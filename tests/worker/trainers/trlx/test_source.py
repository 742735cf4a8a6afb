"""Which trlx would be imported: absent, another commit, or the measured one; by its files alone."""

import sys
from pathlib import Path

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.trlx import source as trlx_source


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package called trlx that is none, named as the source."""
    package = tmp_path / "trlx"
    (package / "trainer").mkdir(parents=True)
    (package / "__init__.py").write_text("from trlx import nothing\n")
    (package / "trainer" / "__init__.py").write_text("")
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(tmp_path))
    return tmp_path


def test_the_measured_commit_is_found_in_front_of_the_path_and_another_is_named_with_what_to_do(checkout, monkeypatch):
    told = f"the trlx in {checkout / 'trlx'} is not commit 3340c2f3, or its files were changed; install"
    assert told in str(trlx_source.trlx_problem())
    with pytest.raises(ConfigError, match="not commit 3340c2f3"):
        trlx_source.use_trlx()
    monkeypatch.setattr(trlx_source, "DIGEST", trlx_source.package_digest(str(checkout / "trlx")))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert trlx_source.use_trlx() == str(checkout / "trlx")
    assert sys.path[0] == str(checkout)


def test_a_checkout_on_the_path_is_not_taken_for_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "trlx" / "trlx"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.delenv(trlx_source.SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert str(trlx_source.trlx_problem()).startswith(f"there is no trlx for {sys.executable}; install")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "trlx")])
    assert str(trlx_source.trlx_problem()).startswith(f"the trlx in {package} is not commit")


@pytest.mark.parametrize(
    ("name", "hint"), [("trlx", " (name the folder that holds the package"), ("nowhere", "; install")]
)
def test_what_is_not_a_folder_that_holds_the_package_holds_no_trlx(name, hint, checkout, monkeypatch):
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(checkout / name))
    assert f"there is no trlx in {checkout / name}{hint}" in str(trlx_source.trlx_problem())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "transformers is missing"),
        ({"transformers": "4.27.4"}, "too old"),
        ({"transformers": "5.23.0"}, None),
        ({"transformers": "5.24.0"}, "5.24.0 is too new for trlx's own code; install"),
    ],
)
def test_versions_that_trlx_does_not_run_on_are_told(found, words, monkeypatch):
    monkeypatch.setattr(trlx_source, "installed_version", found.get)
    told = trlx_source.transformers_problem()
    assert told is None if words is None else words in str(told)
