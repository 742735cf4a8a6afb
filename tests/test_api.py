"""The Python interface: frames of the right types, choices, and comparisons that are the commands' own."""

import json
import runpy
from pathlib import Path

import pytest

from suite import api
from suite.bundle.tags import change_tags
from suite.report.facts.model import build
from tests.command import suite
from tests.export.made import results
from tests.synthetic import make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[1]
CPU = ROOT / "docs" / "results" / "cpu"
EXAMPLE = ROOT / "examples" / "three_lines.py"


@pytest.fixture(scope="module")
def cpu() -> api.Runs:
    return api.load(CPU)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("results"))


def test_rows_are_those_of_the_export(cpu: api.Runs, tmp_path: Path) -> None:
    assert suite("export", CPU, "-o", tmp_path / "runs.jsonl").exit_code == 0
    exported = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    rows = cpu.rows()
    assert len(rows) == len(cpu) == len(exported) == len(list(cpu))
    for name in ("run", "samples_per_second", "mfu", "validity_reasons", "response_tokens"):
        assert [row[name] for row in rows] == [row[name] for row in exported]


def test_runs_are_chosen_by_any_column(cpu: api.Runs, made: Path) -> None:
    chosen = cpu.where(size="1M", ranks=[1, 2], backend="megatron", algorithm="ppo")
    assert 0 < len(chosen) < len(cpu)
    assert {(row["size"], row["backend"]) for row in chosen} == {("1M", "megatron")}
    failed = api.load(made).where(status=("failed", "interrupted"))
    assert {row["status"] for row in failed} == {"failed", "interrupted"}
    assert len(cpu.where(failure_kind=None)) == len(cpu)
    with pytest.raises(api.UsageError, match="no column 'sizes', did you mean 'size'"):
        cpu.where(sizes="1M")


def test_runs_are_chosen_by_all_of_some_tags_and_what_was_left_out_is_told(tmp_path: Path) -> None:
    paths = [make_bundle(tmp_path, synthetic_manifest(repeat=repeat)) for repeat in (1, 2, 3)]
    change_tags(paths[0], ["a", "b"], [])
    change_tags(paths[1], ["a"], [])
    (paths[2] / "manifest.json").write_text("{")
    runs = api.load(tmp_path)
    assert [len(runs.where(tags=tags)) for tags in ("a", ["a", "b"], "c")] == [2, 1, 0]
    assert len(runs) == 2 and "left out, damaged" in runs.warnings[0]
    with pytest.raises(api.UsageError, match="cannot read"):
        api.load(tmp_path / "nothing")
    with pytest.raises(api.UsageError, match="load takes the folder"):
        api.load()


def test_two_backends_compare_as_the_report_ranks_them(cpu: api.Runs) -> None:
    sides = {name: cpu.where(size="1M", ranks=2, backend=name, algorithm="ppo") for name in ("deepspeed", "megatron")}
    found = api.compare(sides["deepspeed"], sides["megatron"], with_suspect=True)
    turned = api.compare(sides["megatron"], sides["deepspeed"], with_suspect=True)
    entries = [entry for side in sides.values() for entry in side._entries]
    (group,) = build(entries, with_suspect=True).ranking.groups
    best, other = group.places
    slower = found if best.row.backend == "deepspeed" else turned
    assert (slower.ratio, slower.low, slower.high) == (other.ratio.value, other.ratio.low, other.ratio.high)
    assert slower.verdict == other.verdict
    assert found.ratio * turned.ratio == pytest.approx(1) and found.low * turned.high == pytest.approx(1)
    assert [phase.name for phase in found.phases] == ["generate", "score + reference", "train"]
    assert found.method == "suite report" and sum(found.runs) == len(entries)
    assert str(found).startswith("megatron 1M")


def test_one_backend_before_and_after_compares_as_suite_compare(tmp_path: Path) -> None:
    for name, seconds in (("before", 1.0), ("after", 0.8)):
        for repeat in (1, 2, 3):
            make_bundle(tmp_path / name, synthetic_manifest(repeat=repeat), seconds * (1 + 0.003 * repeat))
    found = api.compare(api.load(tmp_path / "before"), api.load(tmp_path / "after"))
    done = suite("compare", tmp_path / "before", tmp_path / "after", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (found.ratio, found.low, found.high, found.verdict) == (row["ratio"], row["low"], row["high"], "faster")
    assert found.method == "suite compare" and found.runs == (3, 3)
    assert {phase.name for phase in found.phases} == {phase["name"] for phase in row["phases"]}


def test_groups_that_cannot_be_compared_are_told_why(cpu: api.Runs) -> None:
    one = cpu.where(size="1M", ranks=1, backend="deepspeed", algorithm="ppo")
    for other, problem in (
        (one, "a run is in both groups"),
        (one.where(ranks=7), "the second group has no run"),
        (cpu.where(backend="megatron"), "is of .* rows, such as"),
        (cpu.where(size="3M", ranks=1, backend="megatron"), "work hash differs"),
    ):
        with pytest.raises(api.UsageError, match=problem):
            api.compare(one, other, with_suspect=True)


def test_columns_say_what_they_are() -> None:
    by_name = {column.name: column for column in api.columns("phases")}
    assert by_name["seconds"].unit == "seconds" and by_name["seconds"].meaning
    with pytest.raises(api.UsageError, match="there is no table"):
        api.columns("run")  # type: ignore[arg-type]


def test_pandas_frames_have_the_types_of_the_columns(made: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="data frames NOT CHECKED: no pandas in this interpreter")
    runs = api.load(made)
    frame = runs.to_pandas()
    assert list(frame["run"]) == [row["run"] for row in runs]
    assert str(frame["ranks"].dtype) == "Int64" and str(frame["samples_per_second"].dtype) == "float64"
    assert str(frame["started"].dtype) == "datetime64[us, UTC]"
    assert frame["samples_per_second"].isna().sum() == 2 and frame["mfu"].isna().all()
    assert frame["started"][0].timestamp() == runs.records[0].run.started
    phases = runs.to_pandas("phases")
    assert isinstance(phases, pandas.DataFrame) and set(phases["run"]) < set(frame["run"])
    empty = runs.where(size="66B").to_pandas("iterations")
    assert len(empty) == 0 and str(empty["seconds"].dtype) == "float64"


@pytest.mark.packages
def test_polars_frames_have_the_types_of_the_columns(made: Path) -> None:
    polars = pytest.importorskip("polars", reason="data frames NOT CHECKED: no polars in this interpreter")
    runs = api.load(made)
    frame = runs.to_polars()
    assert frame["run"].to_list() == [row["run"] for row in runs]
    assert frame.schema["ranks"] == polars.Int64 and frame.schema["started"] == polars.Datetime("us", "UTC")
    assert frame.to_dicts() == runs.rows()
    assert runs.where(size="66B").to_polars("phases").schema["seconds"] == polars.Float64


@pytest.mark.slow
def test_the_example_runs_and_tells_what_the_report_tells(monkeypatch, capsys):
    pytest.importorskip("pandas", reason="the example is NOT RUN: no pandas in this interpreter")
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = capsys.readouterr().out
    assert "megatron 1M" in told and "samples_per_second" in told
    assert len(EXAMPLE.read_text().split('"""')[2].split("# more")[0].strip().splitlines()) <= 4


NOTEBOOK = ROOT / "examples" / "notebook.py"


def test_the_notebook_runs_from_its_first_cell_to_its_last(monkeypatch, capsys):
    pytest.importorskip("pandas", reason="the notebook is NOT RUN: no pandas in this interpreter")
    monkeypatch.chdir(ROOT)
    names = runpy.run_path(str(NOTEBOOK))
    assert len(names["frame"]) == len(names["runs"]) > 10
    assert set(names["phases"].columns) == {"deepspeed", "megatron"} and len(names["phases"]) > 4
    assert names["table"]["count"].sum() <= len(names["frame"]) and len(names["drift"]) > 3
    assert len(names["imported"]) == 0
    assert "train" in capsys.readouterr().out
