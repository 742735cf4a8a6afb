"""Whatever a bundle holds: one line that says what is wrong, no traceback, no hang, nothing read outside of it."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from suite.bundle import events
from suite.bundle.derive import derive
from suite.bundle.record import text_of
from suite.bundle.store import Bundle, DamagedBundle, find_bundles
from suite.bundle.verify import verify
from suite.spec.layout import Layout
from suite.spec.manifest import manifest_hash
from tests.bundle.recorded import TWO_RANKS, numbered, of_kind, put, record_of
from tests.bundle.tampering import Event, events_of, write_events
from tests.synthetic import LLAMA, driver_events, grpo_workload, make_bundle, synthetic_manifest, write_bundle

Events = list[Event]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_bundle(tmp_path, synthetic_manifest(layout=TWO_RANKS, iterations=3, warmup=1))


def damage_of(path: Path) -> str:
    """The message of the damage, which is one line; the rest of the suite sees it too."""
    with pytest.raises(DamagedBundle) as caught:
        record_of(path)
    message = str(caught.value)
    assert message and len(message) < 400 and "\n" not in message
    result = verify(Bundle(path))
    assert (result.status, result.differences) == ("damaged", (message,))
    assert [bundle.path for bundle in find_bundles([path])] == [path]
    return message


def edit(path: Path, writer: int | str, change: Callable[[Events], object]) -> None:
    events = events_of(path, writer)
    change(events)
    write_events(path, writer, events)


def first(events: Events, kind: str) -> dict[str, Any]:
    return next(event for event in events if event["kind"] == kind)


@pytest.mark.parametrize(
    ("kind", "field", "value", "says"),
    [
        ("iteration", "seconds", -1.0, "seconds is -1.0"),
        ("iteration", "seconds", 0, "seconds is 0"),
        ("iteration", "seconds", 1e300, "seconds is 1e\\+300"),
        ("iteration", "seconds", True, "seconds is True"),
        ("iteration", "counts", {}, "counts"),
        ("iteration", "counts", [], "counts"),
        ("iteration", "stats", {"loss": "high"}, "stats"),
        ("iteration", "device", [], "device"),
        ("iteration", "details", [], "details is \\[\\]: Expected `object"),
        ("iteration", "details", {"train/forward": -1.0}, "details"),
        ("iteration", "details", {"train/forward": None}, "details"),
        ("iteration", "own_timers", {"gen": "2 s"}, "own_timers"),
        ("iteration", "own_timers", 2.0, "own_timers is 2.0: Expected `object"),
        *(("iteration", "noise", value, "noise is") for value in ([], {"seconds": 1e-300})),
        *(("iteration", "noise", {"cpu_seconds": value}, "noise is") for value in (-1, True, 1e13, {"host": 1})),
        *(("iteration", "noise", {"host": value}, "noise is") for value in ([], {"load": "3"}, {"host": {}})),
        ("phase", "seconds", float("nan"), "NaN"),
        ("phase", "seconds", float("inf"), "Infinity"),
        ("phase", "phase", "warp", "phase is 'warp'"),
        ("phase", "phase", [], "phase"),
        ("phase", "iteration", 7, "iteration 7 where 0 follows"),
        ("phase", "iteration", -1, "iteration is -1"),
        ("memory", "peak_allocated_bytes", 1.5, "peak_allocated_bytes is 1.5"),
        ("memory", "peak_allocated_bytes", 1 << 80, "peak_allocated_bytes"),
        ("environment", "facts", None, "facts is None"),
        ("environment", "facts", {"resident_baseline_bytes": "much"}, "resident_baseline_bytes"),
        ("environment", "facts", {"text": "\ud800"}, "not Unicode"),
        ("environment", "facts", {"memory_bytes": 10**400}, "a number too large to read"),
        ("environment", "facts", reduce(lambda inner, _: {"in": inner}, range(100), {}), "levels deep"),
        ("start", "world_size", 3, "events of another run"),
        ("start", "manifest_hash", "0", "events of another run"),
        ("start", "schema", "suite/events/9", "reads suite/events/1: install a newer one"),
        ("end", "iterations", 3, "were asked for"),
        ("end", "status", "great", "status is 'great'"),
        ("start", "kind", 7, "no kind"),
        ("start", "rank", 1, "says rank 1"),
        ("start", "rank", False, "rank is False"),
        ("start", "time", -5, "time"),
        ("start", "time", None, "time"),
        ("phase", "seq", 0, "seq 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(path, kind, field, value, says):
    edit(path, 0, lambda events: first(events, kind).update({field: value}))
    message = damage_of(path)
    assert "events/rank-0.jsonl" in message
    assert re.search(says, message), message


@pytest.mark.parametrize("kind", ["start", "environment", "phase", "memory", "iteration", "end"])
def test_a_missing_field_is_named(path, kind):
    edit(path, 1, lambda events: first(events, kind).popitem() if kind != "end" else events[-1].pop("iterations"))
    assert "missing required field" in damage_of(path)


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("workload", "lengths"), "list:/etc/passwd", "workload.lengths is text, must be an object"),
        (("workload", "prompt_lengths"), "list:/etc/passwd", "workload.prompt_lengths is text, must be an object"),
        (("workload", "lengths"), {"kind": "list", "listed": []}, "Tuple should have at least 1 item"),
        (("workload", "algorithm", "name"), "dpo", "there is no algorithm 'dpo'"),
        (("workload", "algorithm", "options"), {"clip_high": -5}, "clip_high is a number"),
        (("work", "lengths", "response"), [25] + [1] * 15, "a sample beyond the workload's longest, 24 tokens"),
        (("work", "lengths", "prompt"), [1 << 40] * 16, "the workload's longest, 8 tokens"),
        (("work", "lengths", "prompt"), [1 << 60] * 16, "work.lengths.prompt.15 is larger than"),
        (("work", "lengths", "response"), [0] * 16, "length"),
        (("work", "lengths", "response"), [4] * 15, "length"),
        (("work", "lengths"), None, "length"),
    ],
)
def test_an_uneven_manifest_that_cannot_be_is_named_and_makes_no_file_be_read(tmp_path, where, value, says):
    manifest = synthetic_manifest(size=LLAMA, workload=grpo_workload(), layout=TWO_RANKS)
    path = make_bundle(tmp_path, manifest)
    body = put(json.loads((path / "manifest.json").read_text()), where, value)
    (path / "manifest.json").write_text(json.dumps({**body, "hash": manifest_hash(body)}))
    message = damage_of(path)
    assert says in message and "root" not in message


def without(**fields: object) -> Callable[[Events], Events]:
    """All events but those that have these fields, numbered as if there had been no others."""
    return lambda events: numbered([event for event in events if not fields.items() <= event.items()])


def beat(**fields: object) -> Callable[[Events], Events]:
    """With a heartbeat before the first iteration."""
    told = {"kind": "heartbeat", "iteration": None, "phase": "setup", "calls": 1, **fields}
    return lambda events: numbered([*events[:2], {**events[0], **told}, *events[2:]])


CHANGED: dict[str, tuple[int | str, Callable[[Events], Events], str]] = {
    "a missing iteration": (0, without(iteration=1), "iteration 2 where 1 follows"),
    "a removed line": (0, lambda events: [*events[:4], *events[5:]], "where 4 follows"),
    "an event twice": (0, lambda events: numbered([*events[:4], *events[3:]]), "is a repetition"),
    "an event behind the end": (0, lambda events: numbered([*events, events[3]]), "follows the end"),
    "a phase of one rank": (0, without(kind="phase", phase="score"), "phase score was reported"),
    "a heartbeat of a later iteration": (0, beat(iteration=2), "heartbeat event of iteration 2 where 0 follows"),
    "a heartbeat of no number": (0, beat(iteration="1"), "iteration is '1'"),
    "a heartbeat of no known phase": (0, beat(phase="warp"), "phase is 'warp'"),
    "a heartbeat of no phase": (0, beat(phase=None), "phase is None"),
    "a heartbeat of few calls": (0, beat(calls=-1), "calls is -1"),
    "a heartbeat of a truth": (0, beat(calls=True), "calls is True"),
    "a driver of another world": ("driver", lambda events: [{**events[0], "ranks": 5}, events[1]], "launched 5 ranks"),
    "two ends of the driver": ("driver", lambda events: numbered([*events, events[-1]]), "more than once"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_events_that_cannot_follow_each_other_are_named(path: Path, case: str) -> None:
    writer, change, says = CHANGED[case]
    write_events(path, writer, change(events_of(path, writer)))
    assert says in damage_of(path)


def test_phases_longer_than_their_iteration_are_seen(path):
    for rank in range(2):
        edit(path, rank, lambda events: [event.update(seconds=0.2) for event in of_kind(events, "iteration")])
    assert "the phases of iteration" in damage_of(path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"garbage\n", "is not JSON"),
        (b"[]\n", "is not a JSON object"),
        (b"\n", "is not JSON"),
        (b"\xff\xfe\n", "is not UTF-8"),
        (b"\x00\x00\x00\n", "is not JSON"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"a":' * 100_000 + b"\n", "nested too deeply"),
        (b'{"kind": "start", "time": ' + b"9" * 5000 + b"}\n", "not usable JSON"),
        (b"x" * (1 << 20) + b"xx", "is longer than 1048576 bytes"),
        (b'{"kind": "start", "rank": 0, "seq": 0, "time": 1e999}\n', "start event: "),
        (b'{"kind": "start", "rank": 0, "rank": 0}\n', "'rank' is given twice"),
        (b'{"kind": "start", "rank": "\\u001b[2J"}\n', r"rank is '\x1b[2J'"),
    ],
)
def test_a_line_that_is_no_event_is_named(path, line, says):
    (path / "events" / "rank-0.jsonl").write_bytes(line)
    message = damage_of(path)
    assert message.startswith("events/rank-0.jsonl line 1") and says in message


def test_a_torn_last_line_is_left_out_and_noted(path):
    file = path / "events" / "rank-0.jsonl"
    file.write_bytes(file.read_bytes() + b'{"kind": "phase", "ra\xff')
    record = record_of(path)
    assert record.status == "ok"
    assert "was cut short and left out" in record.notes[0]


@pytest.mark.parametrize(("count", "told"), [(1, "known and was left out"), (1000, "was left out, as were 999 more")])
def test_unknown_kinds_are_left_out_and_noted_once(path, count, told):
    def add(events: Events) -> None:
        events += [{**events[-1], "seq": 2 + index, "kind": f"farewell {index}"} for index in range(count)]

    edit(path, "driver", add)
    (note,) = record_of(path).notes
    assert "kind 'farewell 0' is not known" in note and note.endswith(told)


MORE = b"{}\n" * (events.MOST_IN_FILE + 1)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "rank-2.jsonl").touch(), "rank-2.jsonl is of a rank beyond the 2"),
        (lambda folder: os.truncate(folder / "rank-0.jsonl", 1 << 40), "more than the"),
        (lambda folder: (folder / "rank-0.jsonl").write_bytes(MORE), "events, more than the 262144 that are read"),
        (lambda folder: folder.symlink_to(folder.rename(folder.with_name("old"))), "events is not a folder"),
    ],
    ids=["a rank beyond the world", "a file that is too long", "more events than any run has", "a link"],
)
def test_an_events_folder_that_cannot_be_is_named_and_not_read(path, spoil, says):
    spoil(path / "events")
    assert says in damage_of(path)


@pytest.mark.parametrize("name", ["manifest.json", "environment.json", "events/rank-0.jsonl", "events/driver.jsonl"])
def test_a_link_out_of_the_bundle_is_not_followed_and_a_pipe_does_not_hang_the_reader(path, tmp_path, name):
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    assert damage_of(path) == f"{name} is a symbolic link"
    (path / name).unlink()
    os.mkfifo(path / name)
    assert damage_of(path) == f"{name} is not a regular file"
    (path / name).unlink()
    (path / name).mkdir()
    assert damage_of(path).startswith(name)


def test_a_lock_that_is_a_pipe_or_a_link_holds_nobody(path, tmp_path):
    os.mkfifo(path / "lock")
    assert not Bundle(path).running()
    (path / "lock").unlink()
    (path / "lock").symlink_to(tmp_path / "none")
    assert not Bundle(path).running()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', '{"a": 1e999}', "\x00", '"\ud83d"', "[" * 50_000])
@pytest.mark.parametrize("name", ["manifest.json", "environment.json", "record.json"])
def test_documents_that_are_none_are_damage(path, name, text):
    (path / name).write_text(text, errors="surrogatepass")
    if name != "record.json":
        assert damage_of(path).startswith(name)
    else:
        with pytest.raises(DamagedBundle, match=r"record\.json"):
            Bundle(path).record()
        assert verify(Bundle(path)).status == "damaged"


def test_a_manifest_that_says_a_thing_twice_is_damage(path):
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"track":', '"track":"tuned","track":'))
    assert damage_of(path) == "manifest.json is not usable JSON: 'track' is given twice"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("counts", "samples"), 0),
        (("counts", "prompt_tokens"), -1),
        (("counts", "response_tokens"), 10**400),
        (("iterations", "seconds"), [1e308] * 4),
        (("iterations", "seconds"), [0.0] * 4),
        (("iterations", "seconds"), []),
        (("steady_state", "warmup"), 4),
        (("steady_state", "iterations"), 2),
        (("phases", "train", "seconds"), -1.0),
        (("phases", "train", "seconds"), 1e308),
        (("memory", "peak_allocated_bytes"), -1),
        (("memory", "floor", "bytes"), 10**400),
        (("run", "launcher"), "\ud800"),
        (("counts",), None),
        (("predicted",), 5),
        (("environment", "worker", "memory_bytes"), 10**400),
    ],
)
def test_a_record_of_what_cannot_be_is_damage(path, field, value):
    body = json.loads(text_of(record_of(path)))
    (path / "record.json").write_text(json.dumps(put(body, field, value)))
    if field == ("predicted",):
        assert verify(Bundle(path)).status == "damaged"
    else:
        with pytest.raises(DamagedBundle, match=r"record\.json"):
            Bundle(path).record()


def test_a_world_of_millions_of_ranks_and_a_million_that_wrote_no_word_are_not_looked_for(tmp_path):
    huge = synthetic_manifest(layout=Layout(nodes=1 << 20, devices_per_node=2, data=1 << 21))
    (tmp_path / "run" / "events").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text(huge.model_dump_json(by_alias=True))
    assert "ranks are more than" in damage_of(tmp_path / "run")
    silent = synthetic_manifest(layout=Layout(nodes=1 << 19, devices_per_node=2, data=1 << 20))
    path = write_bundle(tmp_path, silent, {}, driver_events(silent, "failed")[-1:])
    assert "1048576 of the manifest's 1048576 ranks have no events, more than the 65536" in damage_of(path)


def test_of_thousands_of_ranks_that_wrote_nothing_some_are_named(tmp_path):
    silent = synthetic_manifest(layout=Layout(nodes=4096, devices_per_node=2, data=8192))
    driver = driver_events(silent, "failed")
    driver[-1]["exit_codes"] = {}
    evidence = derive(Bundle(write_bundle(tmp_path, silent, {}, driver))).failure.evidence
    assert len(evidence) == 4097
    assert evidence[1] == "rank 0 wrote no end"
    assert evidence[-1] == "and 4097 more"


def test_all_ranks_together_may_not_have_too_much_either(path, monkeypatch):
    first, second = (file.read_bytes() for file in sorted((path / "events").glob("rank-*")))
    there = f"{len((first + second).splitlines())} events of {len(first + second)} bytes"
    monkeypatch.setattr(events, "BYTES_OF_RANK", 1)
    for most, most_bytes in ((60, len(first + second)), (events.MOST_EVENTS, len(first))):
        monkeypatch.setattr(events, "MOST_EVENTS", most)
        monkeypatch.setattr(events, "MOST_BYTES", most_bytes)
        told = f"there are {there}, and at most {most} of {most_bytes + 2} bytes are read"
        assert damage_of(path) == f"up to events/rank-1.jsonl {told}"


def test_folders_in_folders_without_end_are_searched(tmp_path):
    folder = tmp_path
    for _ in range(1100):
        folder = folder / "a"
        folder.mkdir()
    deep = make_bundle(folder)
    try:
        assert [bundle.path for bundle in find_bundles([tmp_path])] == [deep]
    finally:
        # too deep for pytest, which would fail to clear it away three sessions later
        subprocess.run(("rm", "-r", str(tmp_path / "a")), check=True)


def test_an_events_folder_that_is_a_link_to_itself_is_no_bundle(tmp_path):
    (tmp_path / "events").symlink_to("events")
    path = make_bundle(tmp_path)
    assert [bundle.path for bundle in find_bundles([tmp_path])] == [path]
