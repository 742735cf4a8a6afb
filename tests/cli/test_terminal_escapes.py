"""No text of a file moves, colours or reverses anything on a terminal: an escape planted in every text of a kind."""

import ast
import copy
import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from suite.conduct.running.display import View
from suite.launch.cluster.submission import write_submission
from suite.launch.slurm import client
from suite.spec.manifest import manifest_hash
from suite.spec.terminal import plain
from tests.bundle.archive.planted import a_submission
from tests.bundle.tampering import derive_again, events_of, write_events
from tests.command import suite
from tests.synthetic import make_bundle, synthetic_manifest
from tests.tools.planner.rows import ROW, write_rows

PACKAGE = Path(__file__).resolve().parents[2] / "suite"
#: clears the screen, sets its title, reverses what follows, rings, and an 8-bit control
EVIL = "\x1b[2J\x1b]0;title\x07\u202e\u2066\x9b1mevil\r\b"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every text of JSON-like data."""
    if isinstance(value, str):
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for name, inner in inside:
        yield from leaves(inner, (*path, name))


def planted(value: Any, path: tuple[Any, ...]) -> Any:
    """The data with an escape in one of its texts."""
    changed = copy.deepcopy(value)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = f"{inner[path[-1]]}{EVIL}"
    return changed


def run(*arguments: object) -> str:
    """What a command prints, on both streams; nothing of it is more than shown."""
    done = suite(*arguments)
    assert done.exit_code in (0, 1, 2, 3)
    for char in done.output:
        assert char == "\n" or char.isprintable(), (arguments, ascii(char), done.output)
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles that are all alike but for one text each."""
    root = tmp_path_factory.mktemp("planted")
    first = make_bundle(root / "first", synthetic_manifest())
    derive_again(first)
    repeats = count(1)

    def bundle() -> Path:
        path = make_bundle(root / "bundles", synthetic_manifest(repeat=next(repeats)))
        derive_again(path)
        return path

    for name in ("manifest.json", "environment.json", "record.json"):
        body = json.loads((first / name).read_text())
        for leaf in leaves(body):
            if name == "record.json" and leaf[0] in ("environment", "evidence"):
                continue
            path = bundle()
            changed = planted(json.loads((path / name).read_text()), leaf)
            if name == "manifest.json":
                changed["hash"] = manifest_hash(changed)
            (path / name).write_text(json.dumps(changed))
    for writer in (0, "driver"):
        events = events_of(first, writer)
        for kind in dict.fromkeys(event["kind"] for event in events):
            index = next(index for index, event in enumerate(events) if event["kind"] == kind)
            for leaf in leaves(events[index]):
                path = bundle()
                own = events_of(path, writer)
                own[index] = planted(own[index], leaf)
                write_events(path, writer, own)
                (path / "record.json").unlink()
    return root


@pytest.mark.slow
def test_of_a_bundle(folder: Path, tmp_path: Path) -> None:
    bundles = folder / "bundles"
    assert len(list(bundles.iterdir())) > 60
    assert "evil" in run("verify", bundles) and "evil" in run("runs", "list", bundles)
    assert "evil" in run("report", bundles, "-o", tmp_path / "report.md")
    run("compare", folder / "first", bundles)
    run("compare", bundles, folder / "first", "--phases")
    for path in sorted(bundles.iterdir()):
        run("verify", path)


def test_of_a_manifest_that_is_to_run_again(folder: Path, tmp_path: Path) -> None:
    body = json.loads(next((folder / "first").glob("*/manifest.json")).read_text())
    told = ""
    for leaf in leaves(body):
        changed = planted(body, leaf)
        file = tmp_path / "manifest.json"
        file.write_text(json.dumps({**changed, "hash": manifest_hash(changed)}))
        told += run("rerun", file, "--yes", "--runs", tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
    assert "evil" in told


def test_of_a_run_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = synthetic_manifest()
    size = manifest.size.model_copy(update={"name": f"1M{EVIL}"})
    View(sys.stdout).run_started(manifest.model_copy(update={"size": size}), 1.0)
    View(sys.stdout).notice(EVIL)
    told = capsys.readouterr().out
    assert "evil" in told and all(char == "\n" or char.isprintable() for char in told)


def test_of_a_submission_and_of_what_a_cluster_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = synthetic_manifest()
    body = json.loads(write_submission(tmp_path, a_submission(manifest)).read_text())
    entry = client.QueueEntry("7", f"PENDING{EVIL}", 1.0, 2.0, f"n{EVIL}", f"Priority{EVIL}")
    monkeypatch.setattr(client, "find", lambda job: entry)
    told = run("status", "--runs", tmp_path)
    assert "evil" in told
    for number, leaf in enumerate(leaves(body)):
        root = tmp_path / f"{number}"
        (root / ".submitted").mkdir(parents=True)
        (root / ".submitted" / f"{manifest.run.id}.json").write_text(json.dumps(planted(body, leaf)))
        for command in ("status", "collect", "cancel"):
            told += run(command, "--runs", root)
    assert told.count("evil") > 10


def test_of_tables(tmp_path: Path) -> None:
    header = "model,gpu,gpus,params (B),tokens/s,tokens/s/gpu,tflops/gpu,mfu"
    cells = ["x", "A100-80GB", "8", "7", "9000", "3000", "140", "45"]
    told = ""
    for at in range(len(cells)):
        for text in (
            f"{header}\n{','.join([*cells[:at], cells[at] + EVIL, *cells[at + 1 :]])}\n",
            header.replace(",", f"{EVIL},", 1) + f"\n{','.join(cells)}\n",
        ):
            (tmp_path / "table.csv").write_text(text)
            told += run("claims", "check", tmp_path / "table.csv")
    write_rows(tmp_path / "rows.csv", *({name: f"{value}{EVIL}"} for name, value in ROW.items()))
    told += run("plan", "--check", tmp_path / "rows.csv")
    assert "evil" in told


def test_what_is_only_shown_is_shown_as_it_is() -> None:
    for text in ("", "a  b\n  c", "Größe 模型 ±", "x" * 10_000):
        assert plain(text) == text
    assert plain("a\tb\u00a0c\u2028d") == "a b c d"
    assert plain("\x1b[2J\ud800\u202e") == "\\x1b[2J\\ud800\\u202e"


def test_nothing_is_printed_but_by_way_of_one_function() -> None:
    """Commands print by ``say``; what else writes to a terminal is here, with what makes it plain."""
    known = {
        "spec/terminal.py": 1,  # say itself
        "cli/output.py": 1,  # printable
        "cli/submit.py": 1,  # a document that a scheduler reads, whose values its template quotes
        "conduct/running/display.py": 1,  # plain
        "report/formatting/forms.py": 1,  # printable
        "launch/as_owner.py": 1,  # its own words, in an image
        "fitting/refit.py": 3,  # its own figures, for who fits the planner
    }
    printing = ("print", "typer.echo", "click.echo", "sys.stdout.write")
    found: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if name.startswith("worker/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in printing:
                found[name] = found.get(name, 0) + 1
    allowed = {"cli/main.py", "cli/output.py"}  # the saved help, and JSON, which escapes all
    assert {name for name, count in found.items() if count > known.get(name, 0)} <= allowed
