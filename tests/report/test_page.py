"""`suite report --html`: one file that says what the Markdown says, loads nothing, and runs nothing of a run's."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build
from suite.report.page import bundles, output
from suite.report.page.output import HERE, page_text
from suite.report.reading import read_entries
from suite.report.text.markdown import as_json
from suite.report.text.markdown import render as markdown
from suite.spec.layout import Layout
from tests.command import suite
from tests.report import entries as made
from tests.report import reports
from tests.report.parsed import Parsed
from tests.report.reports import EVIL, families, mixed, trainers, troubled
from tests.synthetic import make_bundle, synthetic_manifest, unlike

ROOT = Path(__file__).resolve().parents[2]
#: What no HTML attribute or text may become: an end of a script, a handler, a picture, a hidden turn of the text.
HOSTILE = f"{EVIL}</script><img src=x onerror=pwned=1>\u2028\u202egpj.exe\"'--><svg onload=pwned=1>&lt;b&gt;"


def parsed(entries: Sequence[Entry], path: Path = Path("page.html"), **asked: Any) -> tuple[ReportModel, Parsed]:
    model = build(entries, **asked)
    return model, Parsed(page_text(model, path))


def markdown_tables(text: str) -> Iterator[list[list[str]]]:
    """Titles and rows of every table, by a parser of GitHub's Markdown that has nothing of the page's reader."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    table: list[list[str]] = []
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            table.append([])
        elif token.type in ("th_open", "td_open"):
            table[-1].append("".join(child.content for child in tokens[place + 1].children or ()))
        elif token.type == "table_close":
            yield table
            table = []


def of_every_kind() -> list[Entry]:
    return [*made.matrix(sizes=("1M", "3M"), ranks=(1, 2, 4)), *made.repeats(3, work=made.grpo(), rate=9.0)]


REPORTS = {"mixed": mixed, "troubled": troubled, "families": families, "trainers": trainers, "curves": of_every_kind}


class TestEveryFigureIsThatOfTheMarkdown:
    @pytest.mark.parametrize("name", REPORTS)
    def test_every_table_has_the_same_cells_and_every_sentence_is_there(self, name: str) -> None:
        model, page = parsed(REPORTS[name]())
        text = markdown(model, {})
        expected = [table for table in markdown_tables(text) if "who is faster" not in table[0]]
        shown = page.data("tables")[:-1]
        assert len(shown) == len(expected) > 3
        for table, (titles, *rows) in zip(shown, expected, strict=True):
            assert table["titles"] == titles
            filled = [dict(enumerate(rows[0]))]
            for row in rows[1:]:
                filled.append({at: cell or filled[-1][at] for at, cell in enumerate(row)})
            assert [dict(enumerate(row)) for row in table["rows"]] == filled
        said = " ".join(" ".join(page.text).split()).replace(" ,", ",").replace(" .", ".")
        in_tables = json.dumps(page.data("tables"), ensure_ascii=False)
        for token in MarkdownIt("commonmark").enable("table").parse(text):
            if token.type == "inline" and token.level <= 5 and "|" not in token.content:
                words = "".join(" " if one.type == "softbreak" else one.content for one in token.children or ())
                assert " ".join(words.split()) in said or json.dumps(words, ensure_ascii=False)[1:-1] in in_tables

    @pytest.mark.parametrize("name", REPORTS)
    def test_what_is_drawn_is_the_models_and_what_is_written_is_in_the_markdown(self, name: str) -> None:
        model, page = parsed(REPORTS[name]())
        text = markdown(model, {}).replace("\\", "")
        report = page.data("report")
        rows, charts = as_json(model)["rows"], report["charts"]
        drawn = {
            (chart["name"], key, number): figures
            for chart in [*charts["figure"], *charts["phases"], *charts["memory"]]
            for number, _, marks in chart["lines"]
            for key, *figures in marks
        }
        fields = {"samples/s": "samples_per_second", "tokens/s": "tokens_per_second"}
        for row in rows:
            for unit, field in fields.items():
                figures = drawn.get((f"throughput ({unit})", "measured", row["number"]), [None] * 3)
                assert figures[:3] == list((row[field] or dict.fromkeys("vlh")).values())
            if not row["setting"]["asynchronous"]:
                for phase in row["phases"]:
                    assert drawn["seconds", phase["name"], row["number"]][0] == phase["seconds"]
        bounded = ("throughput (samples/s)", "the whole iteration")
        written = [
            words if chart in bounded else words.split(" [")[0]
            for (chart, _, _), (_, low, _, words) in drawn.items()
            if chart in bounded
            or (low is None and not chart.startswith("phase ") and chart not in ("seconds", "share"))
        ]
        written += [pair["parts"][0][4] for pair in report["ratios"]]
        written += [marks[0][4] for curve in report["curves"] for _, _, marks in curve["lines"][1:]]
        assert not [one for one in written if one not in text]


class TestNothingOfARunIsRun:
    def test_hostile_strings_make_no_element_and_no_handler(self) -> None:
        _, calm = parsed([*made.repeats(2), made.entry(backend="megatron"), made.failed(size="3M")])
        _, page = parsed(reports.hostile(HOSTILE), title=HOSTILE, caveats=[HOSTILE])
        allowed = {tag for tag, _ in calm.elements} | {"h3", "ul", "li", "code", "pre"}
        assert {tag for tag, _ in page.elements} <= allowed
        assert not {"img", "svg", "iframe"} & {tag for tag, _ in page.elements}
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        scripts = [attributes.get("type") for tag, attributes, _ in page.inline if tag == "script"]
        assert scripts == [attributes.get("type") for tag, attributes, _ in calm.inline if tag == "script"]

    def test_no_text_is_turned_or_hidden(self) -> None:
        hostile = reports.hostile(HOSTILE)
        text = page_text(build(hostile, title=HOSTILE, caveats=[HOSTILE]), Path("page.html"))
        text = text[: text.index("<script>")]
        assert not re.search("[\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b]", text)
        assert "onerror=pwned=1" in text
        told = Parsed(text).data("report")
        assert not re.search("[\u2028\u2029\u202a-\u202e\u2066-\u2069]", json.dumps(told["rows"], ensure_ascii=False))

    def test_links_are_relative_paths_whatever_a_folder_is_called(self) -> None:
        for path, expected in (
            ("runs/a", "../runs/a/"),
            ("javascript:alert(1)", "../javascript%3Aalert%281%29/"),
            ('r"><img>', "../r%22%3E%3Cimg%3E/"),
            ("no-utf8-\udcff", "../no-utf8-%FF/"),
        ):
            entries = [replace(made.entry(), path=path)]
            _, page = parsed(entries, Path("out/page.html"))
            assert page.data("tables")[-1]["links"]["hrefs"] == [expected]


class TestOneFile:
    def test_the_policy_allows_what_is_in_the_file_and_nothing_else(self) -> None:
        _, page = parsed(mixed())
        (policy,) = (one["content"] for _, one in page.elements if one.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy and "http" not in policy
        for tag, attributes, text in page.inline:
            if attributes.get("type") != "application/json":
                digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                directive = re.search(f"{tag}-src ([^;]*)", policy)
                assert directive and f"'sha256-{digest}'" in directive.group(1)

    def test_it_loads_nothing(self) -> None:
        _, page = parsed(mixed())
        assert not {tag for tag, _ in page.elements} & {"img", "iframe", "object", "embed", "base", "form"}
        links = [attributes.get(name) for _, attributes in page.elements for name in ("src", "href", "action", "style")]
        assert all(link.startswith(("#", "./", "../", "data:,")) for link in links if link)

    def test_own_scripts_build_no_code_and_no_html_from_text(self) -> None:
        for path in (HERE / "script").glob("*.js"):
            found = re.findall(
                r"\beval\b|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", path.read_text()
            )
            assert not found, path.name

    def test_the_libraries_are_the_pinned_ones(self) -> None:
        for one in json.loads((HERE / "vendor" / "vendor.json").read_text())["libraries"]:
            for kind in ("file", "licence_file"):
                data = (ROOT / one["folder"] / one[kind]).read_bytes()
                assert hashlib.sha256(data).hexdigest() == one[f"{kind}_sha256"], one["name"]
            assert one["integrity"].startswith("sha512-")

    def test_the_same_runs_give_the_same_bytes(self) -> None:
        entries = mixed()
        first, second = (page_text(build(order), Path("page.html")) for order in (entries, entries[::-1]))
        assert first == second

    def test_a_report_of_failures_alone_is_a_page_too(self) -> None:
        _, page = parsed([made.failed(), made.failed(repeat=2, evidence=["CUDA out of memory", "second line"])])
        said = " ".join(page.text)
        assert "RuntimeError: out of memory" in said and "second line" in said

    def test_runs_of_one_id_in_two_folders_keep_their_rows_and_machines(self) -> None:
        """As of one plan that two machines measured."""
        other = {**made.CPU_FACTS, "cpu": {"model": "Other CPU", "cores": 2, "threads": 2}}
        here, there = made.repeats(2), [replace(one, path=f"there/{one.path}") for one in made.repeats(2, facts=other)]
        _, page = parsed([*here, *there])
        table, data = page.data("tables")[-1], page.data("report")
        hrefs = [href.split("/")[1] for href in table["links"]["hrefs"]]
        assert [row[0] for row in table["rows"]] == ["R1", "R1", "R2", "R2"]
        assert hrefs == ["runs", "runs", "there", "there"]
        found = [data["environments"][row["environment"]]["CPU"] for row in data["rows"]]
        assert found == ["Example CPU 3000", "Other CPU"]


class TestTraces:
    @staticmethod
    def entries(folder: Path, ranks: int = 2, repeats: int = 2) -> list[Entry]:
        layout = Layout(devices_per_node=ranks, data=ranks, zero_stage=2)
        seconds = [1.0, 1.0, 4.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]
        for repeat in range(1, repeats + 1):
            make_bundle(folder, synthetic_manifest(layout=layout, repeat=repeat), unlike(seconds, repeat))
        return read_entries([folder]).entries

    def test_the_median_of_the_counted_iterations_is_drawn_with_phases_that_follow_each_other(self, tmp_path):
        entries = self.entries(tmp_path)
        record = entries[0].record
        found, left_out = bundles.traces_of(build(entries).rows)
        assert [trace.run for trace in found] == [record.run.id] and not left_out
        counted = sorted(record.iterations.seconds[record.steady_state.warmup :])
        assert found[0].seconds in (counted[(len(counted) - 1) // 2], counted[len(counted) // 2])
        for rank in found[0].shown:
            ends = [bar.start + bar.work + bar.wait for bar in rank.bars]
            assert all(end <= after.start + 1e-5 for end, after in zip(ends, rank.bars[1:], strict=False))
            assert ends[-1] <= found[0].seconds * 1.001
            assert set(rank.held) <= {bar.phase for bar in rank.bars} and rank.held

    def test_of_many_ranks_and_rows_some_are_shown_and_the_rest_is_counted(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bundles, "MOST_RANKS", 4)
        monkeypatch.setattr(bundles, "MOST_RUNS", 1)
        entries = [*self.entries(tmp_path / "a", ranks=8), *self.entries(tmp_path / "b")]
        rows = sorted(build(entries).rows, key=lambda row: -row.ranks)
        (trace,), left_out = bundles.traces_of(rows)
        work = [sum(bar.work for bar in one.bars) for one in trace.shown]
        assert trace.ranks == 8 and len(work) == 4 and "1 more row" in left_out


class TestCommand:
    def test_a_page_that_would_be_too_large_is_not_written(self, tmp_path, monkeypatch):
        make_bundle(tmp_path / "runs", synthetic_manifest())
        monkeypatch.setattr(output, "MOST_BYTES", 1 << 10)
        done = suite("report", tmp_path / "runs", "--html", tmp_path / "none.html")
        assert done.exit_code == 2 and "report fewer folders" in done.stderr.replace("\n", " ")
        assert not (tmp_path / "none.html").exists()

    @pytest.mark.parametrize("bad", ["a-folder", "a-file/page.html"])
    def test_where_nothing_can_be_written_it_says_so(self, tmp_path: Path, bad: str) -> None:
        make_bundle(tmp_path / "runs", synthetic_manifest())
        (tmp_path / "a-folder").mkdir()
        (tmp_path / "a-file").write_text("")
        done = suite("report", tmp_path / "runs", "--html", tmp_path / bad)
        assert done.exit_code == 2 and "cannot write" in done.output
