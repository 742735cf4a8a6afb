"""The docker launcher without a container runtime: whose a container is, which runtime is meant, who stops what."""

import io
import json
import platform
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from docker.context.config import get_context_id
from docker.errors import APIError, ImageNotFound, NotFound
from requests.exceptions import ConnectionError as NoConnection

from suite.launch.docker import connection
from suite.launch.docker.conclude import conclude
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.offers import digest_in, find_image
from suite.launch.docker.session import RUN_LABEL, SESSION_LABEL, is_dead, remove_orphans, this_driver
from suite.launch.docker.settings import DockerSettings
from suite.launch.docker.watch import ContainerPatience, ContainerWatch
from suite.launch.requests import StopRequests
from suite.spec.base import UsageError
from suite.spec.images import IMAGE_LABEL, VERSION_LABEL
from tests.launch.ranks import make_folder, make_job


class TestWhoseAContainerIs:
    def test_only_a_process_that_is_known_to_have_ended_is_dead(self) -> None:
        boot, space, pid, started = this_driver().split("/")
        gone = 2**22 + 1
        assert is_dead(f"{boot}/{space}/{gone}/{started}")
        assert is_dead(f"{boot}/{space}/{pid}/1"), "its id is another's by now"
        assert not is_dead(this_driver())
        for label in ("", "x", "//1/2", f"other-boot/4026531836/{gone}/1"):
            assert not is_dead(label)
        assert not is_dead(f"{boot}/1/{gone}/{started}"), "another space of ids"
        assert not is_dead(f"{boot}/{space}/{pid}/")

    def test_orphans_go_with_their_volumes_and_nobody_elses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dead, alive, before_boot = f"{this_driver().rpartition('/')[0]}/1", this_driver(), "earlier/1/1/1"
        monkeypatch.setattr("psutil.boot_time", lambda: 1000.0)
        entries = {
            "dead": (dead, "running", 2000),
            "alive": (alive, "exited", 10),
            "before boot": (before_boot, "exited", 10),
            "before boot, running": (before_boot, "running", 10),
            "another machine's": (before_boot, "created", 2000),
        }
        here, far = shelf(entries), shelf({"before boot": (before_boot, "exited", 10)})
        assert (remove_orphans(here, is_local=True), remove_orphans(far, is_local=False)) == (2, 0)
        assert [call.args[0] for call in here.remove_container.call_args_list] == ["dead", "before boot"]
        assert all(call.kwargs["v"] for call in here.remove_container.call_args_list)
        assert not far.remove_container.called


def shelf(entries: dict[str, tuple[str, str, int]]) -> Mock:
    """A runtime with these containers: by name, their driver, state and moment."""
    containers = [
        {"Id": name, "Labels": {"suite.driver": label}, "State": state, "Created": created}
        for name, (label, state, created) in entries.items()
    ]
    return Mock(**{"containers.return_value": containers})


PODMAN = {"Platform": {"Name": "linux/amd64/debian-12"}, "Components": [{"Name": "Podman Engine"}]}


class TestWhichRuntimeIsMeant:
    @pytest.fixture(autouse=True)
    def _configuration(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        meta = tmp_path / "contexts" / "meta" / get_context_id("lab")
        meta.mkdir(parents=True)
        endpoint = {"docker": {"Host": "tcp://lab:2376", "SkipTLSVerify": False}}
        (meta / "meta.json").write_text(json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": endpoint}))
        self.config = tmp_path / "config.json"
        self.config.write_text("{}")  # without it the SDK looks for contexts nowhere

    def test_docker_host_counts_before_contexts_and_these_before_the_usual_socket(self, monkeypatch):
        assert connection.chosen_host() == "unix:///var/run/docker.sock"
        self.config.write_text(json.dumps({"currentContext": "lab"}))
        assert connection.chosen_host() == "tcp://lab:2376"
        monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
        assert connection.chosen_host() == "unix:///x.sock"
        monkeypatch.delenv("DOCKER_HOST")
        monkeypatch.setenv("DOCKER_CONTEXT", "labb")
        with pytest.raises(UsageError, match="no Docker context 'labb'"):
            connection.chosen_host()
        monkeypatch.setenv("DOCKER_CONTEXT", "lab")
        next(self.config.parent.glob("contexts/meta/*/meta.json")).write_text("{")
        with pytest.raises(UsageError, match="the Docker context 'lab' cannot be read: "):
            connection.chosen_host()

    @pytest.mark.parametrize(
        ("place", "words"),
        [("none.sock", "no such file or directory"), ("dead.sock", "connection refused"), ("", "connection refused")],
    )
    def test_why_none_answers_is_said_with_what_to_do(self, place, words, tmp_path, monkeypatch) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "dead.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/{place}")
        with pytest.raises(UsageError, match=rf"no container runtime answers at unix://.*: {words}; start it, join "):
            connection.connect()

    @pytest.mark.parametrize(
        ("version", "options", "info", "expected"),
        [
            ({}, ["name=seccomp,profile=builtin"], {}, ("Docker Engine", False, False)),
            ({"Platform": {"Name": "CE"}}, ["name=rootless"], {}, ("CE", True, False)),
            ({}, ["name=userns"], {}, ("Docker Engine", False, True)),
            (PODMAN, ["name=seccomp,profile=default"], {"Rootless": True}, ("Podman Engine", True, False)),
        ],
        ids=["Docker", "rootless", "other ids on the host", "rootless Podman"],
    )
    def test_what_a_runtime_reports_of_itself(self, version: dict, options: list, info: dict, expected: tuple) -> None:
        told = {"SecurityOptions": options, **info}
        facts = connection._connected(None, "unix:///x.sock", version, told, copy_back=False).facts
        assert (facts.name, facts.rootless, facts.remapped) == expected

    @pytest.mark.parametrize("host", ["tcp://lab:port", "ssh://lab:99999", "tcp://[::1"])
    def test_what_is_no_address_is_named(self, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(UsageError, match=r"no container runtime answers at .*: (Port|Invalid)"):
            connection.connect()

    def test_a_runtime_too_old_for_gpus_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
        runtime = Mock(version=Mock(side_effect=[{"ApiVersion": "1.39"}, {"ApiVersion": "1.40"}]), info=dict)
        monkeypatch.setattr("docker.from_env", lambda timeout: Mock(api=runtime))
        with pytest.raises(UsageError, match=r"too old: its API is 1\.39, not 1\.40"):
            connection.connect()
        assert connection.connect().facts.api_version == "1.40"


def test_a_runtime_may_be_restarted_at_every_call_that_begins_a_run(tmp_path: Path) -> None:
    scripted, calls = ScriptedRuntime(says=(b"a line\n",)), Mock()
    calls.remove_container.side_effect = [NoConnection(), None, NotFound("gone")]
    calls.inspect_container.return_value = {"State": {"Status": "exited"}}
    calls.wait.side_effect = scripted.wait
    calls.create_container_from_config.side_effect = [NoConnection(), APIError("made before", Mock(status_code=409))]
    calls.attach.side_effect = [NoConnection(), scripted.attach("c")]
    calls.start.side_effect = [NoConnection(), None]
    runtime = connection._connected(calls, "unix:///x.sock", {}, {"Name": platform.node()}, copy_back=False)
    folder = make_folder(tmp_path)
    labels = {RUN_LABEL: "run", SESSION_LABEL: "session"}
    job = make_job(folder, "").model_copy(update={"image": "image", "labels": labels})
    outcome = DockerLauncher(runtime, DockerSettings(), {}).run(job, folder, lambda event: None)
    assert "before its node reported" in outcome.failure.evidence[0], "it ran, and was watched to its end"
    assert calls.start.call_args.args == (calls.create_container_from_config.call_args.args[1],)


class ScriptedRuntime:
    """One container, and its output: it ends when a signal of ``ends_at`` says so, or when it has said ``says``."""

    def __init__(self, ends_at: tuple[int, ...] = (15,), says: tuple[bytes, ...] = ()) -> None:
        self.ends_at, self.says = ends_at, says
        self.sent: list[int] = []
        self.ended = threading.Event()
        self._response = io.BytesIO()  # what the SDK's stream holds its socket by

    def attach(self, container: str, **how: Any) -> Any:
        return self

    def kill(self, container: str, number: int) -> None:
        self.sent.append(number)
        if number in self.ends_at:
            self.ended.set()

    def wait(self, container: str, timeout: float | None) -> dict:
        self.ended.wait(10)
        return {"StatusCode": 128 + self.sent[-1] if self.sent else 0}

    def __iter__(self) -> Any:
        yield from ((piece, None) for piece in self.says)
        if self.says:
            self.ended.set()
        self.ended.wait(10)

    def close(self) -> None:
        self.ended.set()


#: for a container that does not listen
PATIENCE = ContainerPatience(
    start_seconds=0.2, end_seconds=0.2, kill_seconds=0.2, output_seconds=0.5, break_seconds=0.1
)
USUAL = ContainerPatience()


def watched(root: Path, runtime: Any, stops: tuple = (), patience: ContainerPatience = USUAL, **limits: float) -> Any:
    """One watch to its end, with these stop requests waiting."""
    events: list[dict] = []
    folder = make_folder(root)
    job, requests = make_job(folder, "", **limits), StopRequests()
    watch = ContainerWatch(runtime, "c", job, folder, events.append, requests, patience)
    for number in stops:
        requests.add(number)
    try:
        watch.attach()
        watch.watch()
        return conclude(watch.end(lambda name: {"OOMKilled": False, "Status": "exited"})), events
    finally:
        watch.close()
        requests.close()


class TestWhoStopsWhat:
    @pytest.mark.parametrize(("stops", "patient"), [((2,), 0.2), ((2, 15), 1000.0)], ids=["one", "a second at once"])
    def test_a_request_asks_and_then_kills(self, tmp_path: Path, stops: tuple[int, ...], patient: float) -> None:
        stubborn = ScriptedRuntime(ends_at=(9,))
        outcome, _ = watched(tmp_path, stubborn, stops, replace(PATIENCE, end_seconds=patient))
        assert stubborn.sent == [15, 9] and outcome.failure.evidence == ("the driver was sent SIGINT",)

    @pytest.mark.parametrize(("ends_at", "sent"), [((15,), [15]), ((), [15, 9])])
    def test_a_node_that_does_not_keep_its_limit_is_stopped_and_given_up_from_outside(self, tmp_path, ends_at, sent):
        runtime = ScriptedRuntime(ends_at)
        outcome, _ = watched(tmp_path, runtime, patience=PATIENCE, run_seconds=0.1)
        assert runtime.sent == sent and outcome.failure.kind == "timeout"
        assert "0.2 s after the run's limit of 0.1 s" in outcome.failure.evidence[0]

    def test_the_nodes_word_is_taken_and_not_passed_on_as_an_event(self, tmp_path: Path) -> None:
        told = {"kind": "outcome", "status": "ok", "exit_codes": {"0": 0}, "elapsed_seconds": 1.5, "failure": None}
        lines = (b'::suite:: {"kind": "start"}\nplain\n::suite:: ', json.dumps(told).encode() + b"\n")
        outcome, events = watched(tmp_path, ScriptedRuntime(says=lines))
        assert (outcome.status, outcome.elapsed_seconds, outcome.exit_codes) == ("ok", 1.5, {0: 0})
        assert events == [{"kind": "start"}]
        assert (tmp_path / "logs" / "container.log").read_bytes() == b"plain\n"

    def test_a_rank_cannot_speak_for_the_node_in_nonsense(self, tmp_path: Path) -> None:
        runtime = ScriptedRuntime(says=(b'::suite:: {"kind": "outcome", "status": "fine"}\n',))
        outcome, _ = watched(tmp_path, runtime)
        assert outcome.failure.kind == "unknown" and "before its node reported" in outcome.failure.evidence[0]


OF_TRL = {IMAGE_LABEL: "trl", VERSION_LABEL: "0.0.1"}
HEX, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("reference", "digests", "found"),
    [
        ("lab:5000/suite-engines:0.1.0", (f"mirror/suite-engines@{OTHER}", f"lab:5000/suite-engines@{HEX}"), 1),
        ("docker.io/team/suite-engines:2", (f"team/suite-engines@{HEX}",), 0),
        ("suite-engines:0.1.0", (f"lab:5000/suite-engines@{HEX}",), None),
        (HEX, (f"lab:5000/suite-engines@{OTHER}",), None),
        ("lab:5000/suite-engines", (), None),
    ],
)
def test_a_digest_is_that_of_the_repository_that_was_asked_for(reference, digests, found):
    assert digest_in(reference, digests) == (None if found is None else digests[found])


@pytest.mark.parametrize(
    ("reference", "found", "words"),
    [
        ("mine:1", {"Architecture": "arm64"}, "mine:1 is for arm64, the runtime for amd64"),
        ("mine:1", {"Config": {"Labels": OF_TRL}}, "holds suite 0.0.1, .* build trl$"),
        ("mine:1", ImageNotFound("none"), "there is no image mine:1 on this runtime .*`suite images list` shows"),
    ],
    ids=["for another host", "of another version", "of nobody"],
)
def test_an_image_that_cannot_be_used_is_told_with_what_to_do(reference, found, words):
    runtime = Mock(architecture="amd64", **{"api.inspect_image.side_effect": [found]})
    with pytest.raises(UsageError, match=words):
        find_image(runtime, reference, "missing", print)
