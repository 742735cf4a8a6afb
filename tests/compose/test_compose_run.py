"""Compose on a real runtime: a service measures, its results are the caller's, and the report has them."""

import contextlib
import json
import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from suite.images.build import Built
from tests.container_runtime import Runtime
from tests.needs import require_compose
from tests.waiting import wait_until

pytestmark = [pytest.mark.daemon, pytest.mark.ranks, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--size", "8M", "--warmup", "1", "--iterations", "2", "--repeats", "1")


class Project:
    """A folder with compose.yaml as a user has it; results go to ``runs`` in it."""

    def __init__(self, folder: Path, runtime: Runtime, image: Built) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.runs.mkdir()
        os.chown(self.runs, 4321, 4322)
        (folder / "compose").symlink_to(ROOT / "compose")
        (folder / "compose.yaml").write_text((ROOT / "compose.yaml").read_text())
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUITE_", "COMPOSE_"))}
        own = {"DOCKER_HOST": runtime.host, "SUITE_DEVICE": "cpu", "SUITE_ENGINES_IMAGE": image.id}
        self._environment = {**clean, **own}
        folder.chmod(0o755)

    def start(self, *arguments: str, **streams: int) -> subprocess.Popen[str]:
        command = ("docker", "compose", "--env-file", "/dev/null", *arguments)
        return subprocess.Popen(command, cwd=self.folder, env=self._environment, text=True, **streams)

    def compose(self, *arguments: str) -> tuple[int, str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = self.start(*arguments, **streams)
        output, _ = process.communicate()
        return process.returncode, output

    def bundle(self) -> Bundle:
        (bundle,) = find_bundles([self.runs])
        return bundle


@pytest.fixture(scope="module", autouse=True)
def _compose(runtime: Runtime) -> None:
    """Before an image is built."""
    require_compose()


@pytest.fixture(scope="module")
def project(runtime: Runtime, engines_image: Built, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One measured run on the CPU."""
    project = Project(tmp_path_factory.mktemp("compose"), runtime, engines_image)
    code, output = project.compose("run", "--rm", "bench-deepspeed", *SHORT)
    assert code == 0, output
    return project


def test_a_service_measures_in_its_image_and_the_bundle_verifies(project: Project, engines_image: Built) -> None:
    bundle = project.bundle()
    record = bundle.record()
    assert record is not None and record.status == "ok" and record.environment.worker is not None
    assert verify(bundle).status == "equal"
    assert record.environment.worker["image"] == engines_image.id
    assert record.environment.worker["packages"]["torch"] == engines_image.labels["suite.stack.torch"]


def test_results_belong_to_the_owner_of_runs(project: Project) -> None:
    files = [project.bundle().path, *project.bundle().path.rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in files} == {(4321, 4322)}


def test_what_was_measured_is_not_measured_again(project: Project) -> None:
    code, output = project.compose("run", "--rm", "bench-deepspeed", *SHORT)
    assert (code, "nothing to do" in output) == (0, True), output


def test_the_report_has_the_run_and_its_image(project: Project, engines_image: Built) -> None:
    code, output = project.compose("run", "--rm", "report")
    assert code == 0, output
    text = (project.runs / "report" / "report.md").read_text()
    assert "deepspeed" in text and engines_image.id in text


def test_a_mistake_is_one_line_and_its_exit_code_reaches_the_caller(project: Project) -> None:
    code, output = project.compose("run", "--rm", "bench-megatron", "--size", "8MB")
    assert code == 2
    assert "did you mean '8M'" in output and "Traceback" not in output


def test_ctrl_c_at_a_terminal_ends_the_run_keeps_its_record_and_leaves_nothing(project, runtime):
    terminal, far_end = pty.openpty()
    process = project.start(
        *("run", "--rm", "bench-megatron", *SHORT[:2], "--repeats", "1", "--iterations", "500"),
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
    )
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    wait_until(
        lambda: any('"iteration"' in path.read_text() for path in project.runs.glob("megatron-*/events/rank-0.jsonl"))
    )
    os.write(terminal, b"\x03")
    assert process.wait() == 130
    (path,) = project.runs.glob("megatron-*/record.json")
    assert json.loads(path.read_text())["status"] == "interrupted"
    assert runtime.docker("ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project=suite").stdout == ""


def drain(terminal: int) -> None:
    """Read what is shown, as a terminal does, or its writer would wait."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass
