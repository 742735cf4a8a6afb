"""`suite runs`: what it lists, chooses, tags and removes."""

from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.bundle.tags import tags_of
from suite.spec.base import UsageError
from suite.spec.typed import moment_of
from tests.command import refused, suite, told
from tests.synthetic import BEGAN, HOUR, facts_of, grpo_workload, make_bundle, synthetic_manifest


def listed(*arguments: object) -> list[dict]:
    return told("runs", "list", *arguments)["runs"]


def ids(*arguments: object) -> list[str]:
    return [run["run"] for run in listed(*arguments)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs an hour after each other: two good ones, one of another backend and algorithm, one failed, one cut off."""
    root = tmp_path / "runs"
    for repeat in (1, 2):
        make_bundle(root, synthetic_manifest(repeat=repeat), float(repeat))
    manifest = synthetic_manifest(
        backend="megatron", workload=grpo_workload(), repeat=3, device="cuda", precision="bf16"
    )
    make_bundle(root, manifest, 0.5, facts=facts_of(manifest, "NVIDIA H100 80GB HBM3"))
    failed = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["out of memory"]}
    make_bundle(root, synthetic_manifest(repeat=4), status="failed", failure=failed, completed=1)
    make_bundle(root, synthetic_manifest(repeat=5), status=None, completed=0)
    return root


def test_every_run_is_listed_newest_first_as_wide_as_the_terminal(results, monkeypatch):
    found = listed(results)
    assert [run["run"][-2:] for run in found] == ["r5", "r4", "r3", "r2", "r1"]
    assert [run["state"] for run in found] == ["interrupted", "failed: oom_device", "ok", "ok", "ok"]
    assert [run["valid"] for run in found] == [False, False, True, True, True]
    assert set(found[0]) == set(found[-1])
    monkeypatch.setenv("COLUMNS", "80")
    lines = suite("runs", "list", results).stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 80 and lines[-1].startswith("not shown at 80 columns: ")


@pytest.mark.parametrize(
    ("options", "repeats"),
    [
        (["--backend", "megatron"], "3"),
        (["--device", "h100"], "3"),
        (["--device", "cpu"], "5421"),
        (["--algorithm", "grpo"], "3"),
        (["--algorithm", "ppo", "--status", "ok"], "21"),
        (["--status", "failed", "--status", "interrupted"], "54"),
        (["--valid"], "321"),
        (["--no-valid"], "54"),
        (["--since", "2023-11-14T23:13:20"], "5432"),
        (["--until", "2023-11-14T23:13:20+00:00"], "1"),
        (["--since", "2023-11-15", "--until", "2023-11-15T01:13:20"], "3"),
        (["--since", "7d"], ""),
        (["--limit", "2"], "54"),
        (["--sort", "samples-per-second"], "312"),
        (["--sort", "run", "--backend", "deepspeed"], "1245"),
    ],
)
def test_runs_are_chosen_and_ordered(options: list[str], repeats: str, results: Path) -> None:
    found = [name[-1] for name in ids(results, *options)]
    assert found[: len(repeats)] == list(repeats)
    assert len(found) == len(repeats) or options[0] == "--sort"


def test_a_folder_in_the_place_of_a_command_is_listed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = suite("runs", results, "--status", "ok")
    assert direct.exit_code == 0
    assert direct.stdout == suite("runs", "list", results, "--status", "ok").stdout
    assert suite("runs", "--status", "ok", results).stdout == direct.stdout
    monkeypatch.chdir(results.parent)
    assert suite("runs").stdout == suite("runs", "list", "runs").stdout != ""


def test_what_is_asked_wrongly_is_one_line(results: Path) -> None:
    for options, problem in (
        (["--status", "okay"], "did you mean 'ok'"),
        (["--sort", "speed"], "there is no order 'speed'"),
        (["--since", "yesterday"], "how long ago as 24h or 7d"),
    ):
        assert problem in refused("runs", "list", results, *options)


def test_tags_are_given_shown_chosen_by_and_taken(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ids(results)[:2]
    done = suite("runs", "tag", first, results / second, "--add", "keep", "--add", "v2", "--runs", results)
    assert done.exit_code == 0 and f"{first}: keep v2" in done.stdout
    assert ids(results, "--tag", "keep", "--tag", "v2") == [first, second]
    suite("runs", "tag", first, "--remove", "v2", "--runs", results)
    assert ids(results, "--tag", "v2") == [second]
    assert told("runs", "tag", first, "--runs", results) == [{"run": first, "tags": ["keep"]}]
    assert "keep v2" in suite("runs", "list", results).stdout
    both = suite("runs", "tag", first, "--add", "x", "--remove", "x", "--runs", results)
    assert both.exit_code == 2 and tags_of(results / first) == ("keep",)


def test_runs_are_removed_with_yes_and_not_without_an_answer(results: Path) -> None:
    first, second, *rest = ids(results)
    asked = suite("runs", "remove", first, second, "--runs", results)
    assert asked.exit_code == 2 and "nothing was removed" in asked.stderr
    left = told("runs", "remove", first, "--runs", results)
    assert left["removed"] is False and left["bytes"] > 0
    assert len(ids(results)) == 5
    done = suite("runs", "remove", first, results / second, "--runs", results, "--yes")
    assert done.exit_code == 0 and "removed 2 runs" in done.stdout
    assert ids(results) == rest


def test_nothing_is_removed_where_one_run_cannot_be(results: Path) -> None:
    first, second, *_ = ids(results)
    with Bundle(results / second).hold():
        assert "is being run" in refused("runs", "remove", first, second, "--runs", results, "--yes")
    assert "no run no-such-run" in refused("runs", "remove", first, "no-such-run", "--runs", results, "--yes")
    assert len(ids(results)) == 5


def test_what_is_being_run_or_damaged_is_listed_as_such(results: Path) -> None:
    first, second, *_ = (results / name for name in sorted(ids(results)))
    with Bundle(first).hold():
        (running,) = listed(results, "--status", "running")
        assert running["run"] == first.name and running["backend"] is None
    (second / "manifest.json").write_text("{")
    (damaged,) = listed(results, "--status", "damaged", "--no-valid")
    assert damaged["run"] == second.name and "manifest.json" in damaged["problem"]


def test_times_are_read_as_utc_or_as_so_long_ago_and_refused_where_they_are_none() -> None:
    ago = {"2023-11-14T22:13:20": 0, "2023-11-14T23:13:20+01:00": 0, "1h": HOUR, "12": 12}
    assert {text: BEGAN - moment_of("--since", text, BEGAN) for text in ago} == ago
    for wrong in ("", "99999-01-01", "2023-13-01", "x" * 1000, "999999d"):
        with pytest.raises(UsageError, match="--since is a day"):
            moment_of("--since", wrong, BEGAN)
