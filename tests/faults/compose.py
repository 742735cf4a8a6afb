"""Faults of runs that Compose starts: the driver is in the container with its ranks, which are the worker by script."""

import io
import json
import re
import shutil
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distribution
from random import Random

from tests import containers as scripted
from tests.container_runtime import DATA
from tests.faults import containers
from tests.faults.containers import MEASURE, OF_RANKS, PAUSED, SCRIPT, WORK, Site
from tests.faults.judging import check_output, interrupted, lost_of, told
from tests.faults.scene import ROOT, Driver, Scene, signal_name
from tests.faults.sites import Maker, by_signal, faults_of
from tests.faults.tries import Missed, Verdict, Wrong
from tests.needs import compose_problem
from tests.waiting import wait_until

IMAGE = "suite-scripted-driver:test"
PROJECT = "com.docker.compose.project=suite"
RUN = ("--size", "1M", "--workload", "cpu", "--ranks", "2")
#: of the driver's lock, what draws; no run does
DRAWING = {"matplotlib", "pillow", "fonttools", "contourpy", "kiwisolver", "cycler", "pyparsing"}
COMMAND = '#!/bin/sh\nexec /opt/suite/bin/python /opt/suite/src/tests/scripted_suite.py "$@"\n'
GONE_SECONDS = 60.0
DOCKERFILE = """
FROM {base}
COPY site /opt/suite/lib/python3.11/site-packages
COPY tests /opt/suite/src/tests
COPY bin /opt/suite/bin
ENV PATH=/opt/suite/bin:/usr/bin:/bin SUITE_PYTHON=/opt/stack/bin/python HOME=/tmp
WORKDIR /work
"""


@dataclass
class ComposeSite(Site):
    """As the site of containers; a try's folder is the project's, and its ``runs`` the results."""

    label: str = PROJECT

    def command(self, scene: Scene, *options: str) -> list[str]:
        if not scene.runs.exists():
            self.lay_out(scene)
        place = ("--project-directory", str(scene.folder), "--file", str(scene.folder / "compose.yaml"))
        service = ("run", "--rm", "--no-TTY", "--env", f"SUITE_SCRIPT={json.dumps(SCRIPT)}", "bench-deepspeed")
        return ["docker", "compose", *place, "--env-file", "/dev/null", *service, *RUN, *MEASURE, *options]

    def lay_out(self, scene: Scene) -> None:
        """The project's files, as a user has them."""
        scene.environment |= {"SUITE_DEVICE": "cpu", "SUITE_ENGINES_IMAGE": IMAGE}
        scene.runs.mkdir()
        shutil.copy(ROOT / "compose.yaml", scene.folder)
        shutil.copytree(ROOT / "compose", scene.folder / "compose")

    def home(self, scene: Scene, driver: Driver) -> int:
        """Its container is gone then."""
        code = scene.ended(driver)
        check_output(scene)
        wait_until(lambda: not self.left(), GONE_SECONDS, lambda: f"{self.left()} is still there")
        return code


@contextmanager
def started() -> Iterator[ComposeSite]:
    """Raises what keeps a runtime or Compose from being there."""
    problem = compose_problem()
    if problem:
        raise RuntimeError(problem)
    with containers.started(DATA / "compose") as site:
        _build(site)
        yield ComposeSite(site.runtime)


def _build(site: Site) -> None:
    """The scripted image with the driver's own packages, as this interpreter has them."""
    context = io.BytesIO()
    lock = (ROOT / "requirements" / "images" / "driver.lock").read_text()
    with tarfile.open(fileobj=context, mode="w") as tar:
        scripted.add_file(tar, "Dockerfile", DOCKERFILE.format(base=scripted.IMAGE).encode())
        scripted.add_file(tar, "bin/suite", COMMAND.encode(), 0o755)
        for name in ("scripted_suite.py", "scripted_worker.py"):
            scripted.add_file(tar, f"tests/{name}", (ROOT / "tests" / name).read_bytes())
        for name in sorted(set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE)) - DRAWING):
            found = distribution(name)
            for path in found.files or ():
                if not path.parts[0].startswith("..") and path.suffix != ".pyc":
                    tar.add(str(found.locate_file(path)), f"site/{path}", recursive=False)
    scripted.build_from(site.runtime, context.getvalue(), IMAGE)


def client_signal(number: signal.Signals, site: ComposeSite, scene: Scene, random: Random) -> Verdict:
    """`docker compose run` hands a signal on to the driver in the container."""
    client, moment = site.begin_anywhere(scene, random)
    before = scene.finished()
    if client.poll() is not None:
        raise Missed("the run was over")
    client.send_signal(number)
    code = site.home(scene, client)
    return interrupted(scene, f"{moment}: {signal_name(code)}", before, partial(site.again, scene))


def client_killed(site: ComposeSite, scene: Scene, random: Random) -> Verdict:
    """The container goes on without its client."""
    client = scene.start(site.command(scene))
    moment = scene.wait_for_moment(random, client, site.events)
    before = scene.finished()
    client.kill()
    site.home(scene, client)
    record = scene.record()
    if record is None or record.status != "ok":
        raise Wrong(f"{moment}: the run is {told(record)}")
    site.again(scene)
    return Verdict(f"{moment}: the run went on", lost_of(before, record), "the same command")


def container_signal(number: signal.Signals, site: ComposeSite, scene: Scene, random: Random) -> Verdict:
    """SIGKILL: driver and ranks at once. Others are the driver's, and Docker waits for it."""
    moment, home = site.begin(scene, random)
    before = scene.finished()
    site.runtime.docker("kill", "--signal", number.name, site.container())
    code = home()
    record = scene.record()
    if record is not None and record.status == "ok":
        raise Missed("all work was done")
    if code == 0 or record is None or record.status != "interrupted":
        raise Wrong(f"{moment}: exit code {code}, the run is {told(record)}: {scene.output()[-300:]}")
    return interrupted(scene, moment, before, partial(site.again, scene))


INTERRUPTED = "what was measured is kept, the container is gone, the run is done again by the same command"
MAKERS: tuple[Maker, ...] = (
    *by_signal("docker compose run", client_signal, INTERRUPTED, signal.SIGINT, signal.SIGTERM),
    ("SIGKILL of docker compose run", client_killed, "the run goes on in its container, and is not made twice"),
    *by_signal("the container", container_signal, INTERRUPTED),
    *OF_RANKS,
    PAUSED,
)
faults = partial(faults_of, "compose", WORK, MAKERS)
FAULTS = faults(None)
