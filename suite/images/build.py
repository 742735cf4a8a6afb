"""Building an image through the runtime's classic builder, which every runtime has; equal inputs give one id."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from docker import APIClient
from docker.errors import DockerException
from pydantic import Field
from requests.exceptions import RequestException

from suite.bundle.files import replace_atomically
from suite.images.project import Project, labelled_packages, normal, pins_of
from suite.launch.docker.conclude import told
from suite.spec import images as catalogue
from suite.spec.base import Frozen, UsageError
from suite.spec.version import suite_version

LAST_LINES = 15
_STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)", flags=re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Step:
    """One instruction of the Dockerfile as it begins."""

    number: int
    of: int
    instruction: str

    def __str__(self) -> str:
        return f"[{self.number}/{self.of}] {self.instruction}"


OnStep = Callable[[Step], None]


class BuildFailed(Exception):
    """A build stopped: in which step, and the last lines of its output."""

    def __init__(self, step: Step | None, lines: Iterable[str], log: Path) -> None:
        self.step, self.lines = step, list(lines)
        last = self.lines[-1] if self.lines else "no reason given"
        where = f"step {step.number} of {step.of} ({step.instruction[:60]})" if step else "the build"
        super().__init__(f"{where} failed: {last}; all of its output is in {log}")


def read_output(stream: Iterable[dict[str, Any]], log: TextIO, on_step: OnStep, path: Path) -> str:
    """Follow a build to its end; the image's id. Raises BuildFailed when it stops before."""
    step: Step | None = None
    recent: deque[str] = deque(maxlen=LAST_LINES)
    identity: str | None = None
    for message in stream:
        text = _COLOURS.sub("", str(message.get("stream", "")))
        log.write(text)
        begun = _STEP.match(text)
        if begun:
            step = Step(int(begun[1]), int(begun[2]), " ".join(begun[3].replace("\\\n", " ").split()))
            recent.clear()
            on_step(step)
        elif not text.startswith((" --->", "Removed intermediate")):
            recent.extend(line for line in text.splitlines() if line.strip())
        if "error" in message:
            log.write(message["error"] + "\n")
            # the runtime repeats the whole command, of which only the exit code is news
            code = re.search(r"returned a non-zero code: (\d+)", message["error"])
            news = f"exit code {code[1]}" if code else " ".join(message["error"].split())
            raise BuildFailed(step, list(recent) if code and recent else [*recent, news], path)
        identity = (message.get("aux") or {}).get("ID") or identity
    if identity is None:
        raise BuildFailed(step, [*recent, "the container runtime ended the build without an image"], path)
    return identity


#: stands for the time of a build from no repository, as it does for the times of all files (SOURCE_DATE_EPOCH)
USUAL_TIME = 1_700_000_000
#: STACK of the CPU build whose wheelhouse a build of the driver alone takes
USUAL = "cpu"


class Built(Frozen):
    """An image as it came out of a build."""

    name: str
    tag: str
    id: str = Field(description="digest of its configuration")
    size_bytes: int
    seconds: float
    labels: dict[str, str]
    log: Path = Field(description="all output of the container runtime")
    is_settled: bool = Field(description="another build of the same commit and inputs has the same id")


@dataclass(frozen=True)
class BuildChoices:
    """What a user may choose; what is left out follows from the catalogue."""

    base_image: str | None = None
    cpu: bool = False
    without_trlx: bool = False
    offline: bool = False
    target: str | None = None
    tag: str | None = None
    no_cache: bool = False
    arguments: Mapping[str, str] = field(default_factory=dict)


def build_image(
    name: str,
    api: APIClient,
    project: Project,
    choices: BuildChoices = BuildChoices(),
    on_step: OnStep = lambda step: None,
) -> Built:
    """Build an image of the catalogue from the checkout and tag it. Raises UsageError before it begins, BuildFailed."""
    image = catalogue.find_image(name)
    _require_inputs(image, project, choices)
    stage = f"-{choices.target}" if choices.target else ""  # one on the way never takes the image's own name
    tag = choices.tag or image.tag(suite_version()).replace(image.repository, f"{image.repository}{stage}", 1)
    arguments, begin = _arguments(image, choices), time.monotonic()
    base = arguments["BASE_IMAGE"]
    labels, created = _labels(image, project, choices, base), project.committed() or USUAL_TIME
    log = project.root / "build" / "images" / f"{image.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        is_there = not base.endswith(f"-{TODAY}") and api.images(base)  # and nothing can have changed in it
        if image.base.made_here and not choices.base_image and not is_there:
            on_step(Step(1, 1, f"{base} of Debian's packages"))
            make_base(api, project, base)
        stream = api.build(
            path=str(project.root),
            dockerfile=image.dockerfile,
            buildargs=arguments,
            labels=labels,
            tag=tag,
            target=choices.target,
            nocache=choices.no_cache,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        # closing the stream ends the build on the runtime
        with closing(stream), log.open("w", encoding="utf-8") as file:
            identity = read_output(stream, file, on_step, log)
        settled = settle(api, identity, tag, created)
        found = api.inspect_image(settled or identity)
    except (DockerException, RequestException, OSError) as error:
        raise BuildFailed(None, [told(error)], log) from error
    return Built(
        name=image.name,
        tag=tag,
        id=found["Id"],
        size_bytes=found["Size"],
        seconds=time.monotonic() - begin,
        labels=found["Config"].get("Labels") or {},
        log=log,
        is_settled=settled is not None,
    )


#: What an image says of how it runs; the rest is about the container that the builder made it from.
_KEPT = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal", "Shell"),
    *("Healthcheck", "OnBuild"),
)


def settle(api: APIClient, identity: str, tag: str, created: int) -> str | None:
    """Load the image again, under ``tag``, with a configuration that depends on its content alone; its new id. ``None``
    where the runtime tells too little of it, or wants the layers again. ``created``: the build's time, Unix seconds."""
    with suppress(DockerException, RequestException, ValueError):
        chain = [api.inspect_image(identity)]  # it, and all that it was made from
        while chain[-1].get("Parent"):
            chain.append(api.inspect_image(chain[-1]["Parent"]))
        if len(chain) < 2:
            return None
        steps = [str(entry.get("CreatedBy", "")) for entry in api.history(identity)][: len(chain) - 1]
        configuration = settled_configuration(chain, steps, created)
        data = json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        layers = configuration["rootfs"]["diff_ids"]
        list(api.load_image(_archive(f"{digest}.json", data, tag, len(layers))))
        api.inspect_image(f"sha256:{digest}")  # not there: the answer was an error
        return f"sha256:{digest}"
    return None


def settled_configuration(chain: list[Mapping[str, Any]], steps: list[str], created: int) -> dict[str, Any]:
    """The configuration as runtimes store it. ``chain``: an image and those it was made from, down to the base;
    ``steps``: the instruction of each but the base. Newest first."""
    image, base = chain[0], chain[-1]
    moment = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history: list[dict[str, Any]] = [{"created": moment, "created_by": "base"} for _ in _layers(base)]
    for below, above, step in zip(chain[:0:-1], chain[-2::-1], reversed(steps), strict=True):
        empty = {} if len(_layers(above)) > len(_layers(below)) else {"empty_layer": True}
        history.append({"created": moment, "created_by": step, **empty})
    names = {"architecture": "Architecture", "os": "Os", "variant": "Variant", "author": "Author"}
    return {
        **{name: image[key] for name, key in names.items() if image.get(key)},
        "created": moment,
        "config": {name: value for name in _KEPT if (value := image["Config"].get(name))},
        "rootfs": {"type": "layers", "diff_ids": _layers(image)},
        "history": history,
    }


def _layers(image: Mapping[str, Any]) -> list[str]:
    return list((image.get("RootFS") or {}).get("Layers") or ())


def _archive(name: str, configuration: bytes, tag: str, layers: int) -> bytes:
    """What ``docker load`` takes, without the layers, which the runtime has."""
    whole = tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"
    manifest = [{"Config": name, "RepoTags": [whole], "Layers": [f"{number}/layer.tar" for number in range(layers)]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, data in ((name, configuration), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


SCRIPT = "requirements/images/base.sh"
#: a base's day, of packages as the archive has them: such a base is made for each build
TODAY = "today"


def made_base(image: catalogue.Image, day: str | None) -> str:
    """Name of an image's base, of packages of that day; None: of the catalogue's day."""
    if day is None or not image.base.made_here:
        return image.base.pinned
    return f"{image.base.reference.rpartition('-')[0]}-{day or TODAY}"


def make_base(api: APIClient, project: Project, name: str) -> None:
    """Make the base of Debian's packages alone, which no registry has. Raises UsageError where that does not work."""
    repository, _, tag = name.partition(":")
    archive = project.root / "build" / "images" / "base.tar"
    day = tag.rpartition("-")[2].replace(TODAY, "")
    try:
        done = subprocess.run(("bash", project.root / SCRIPT, day, archive), capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise UsageError(f"{SCRIPT} cannot make {name}: {reason}; name another base with --base-image")
        api.import_image_from_file(str(archive), repository, tag)
    finally:
        archive.unlink(missing_ok=True)


def _require_inputs(image: catalogue.Image, project: Project, choices: BuildChoices) -> None:
    """What a build from wheels needs is there. Raises UsageError where it is not."""
    if choices.cpu and image.cpu_stack is None:
        others = ", ".join(one.name for one in catalogue.images().values() if one.cpu_stack)
        raise UsageError(f"the image {image.name} has no CPU build; these have one: {others}")
    for name, meaning in image.asks.items():
        if not (choices.arguments.get(name) or choices.offline or choices.target):
            raise UsageError(f"{image.name} needs --build-arg {name}=...: {meaning}")
    lock = f"{image.cpu_stack if choices.cpu else USUAL}.lock"
    if (choices.cpu or choices.offline) and not (project.build_inputs / lock).is_file():
        command = f"suite images wheelhouse {image.name if choices.cpu else ''}".rstrip()
        raise UsageError(f"there is no {lock} in {project.build_inputs}; fill the wheelhouse: {command}")


def _arguments(image: catalogue.Image, choices: BuildChoices) -> dict[str, str]:
    stack = image.cpu_stack if choices.cpu else image.stack
    if choices.without_trlx and (stack is None or "trlx" not in image.sources):
        raise UsageError(f"--without-trlx is for the images trlx and trlx-upstream, not for {image.name}")
    is_published = image.interpreter is not None
    chosen = {
        "BASE_IMAGE": choices.base_image or made_base(image, choices.arguments.get("APT_SNAPSHOT")),
        "STACK_PYTHON": None if is_published else image.python,
        "IMAGE": image.name if is_published else None,
        "INTERPRETER": image.interpreter,
        "STACK": f"{stack}-deps" if choices.without_trlx else stack,
        "LOCK": stack if choices.without_trlx else None,
        "OFFLINE": "1" if choices.cpu or choices.offline else None,
    }
    return {name: value for name, value in chosen.items() if value is not None} | dict(choices.arguments)


def _labels(image: catalogue.Image, project: Project, choices: BuildChoices, base: str) -> dict[str, str]:
    """What only the build knows; a label whose value is unknown is left out. The rest is in the Dockerfile."""
    name, _, digest = base.partition("@")
    known = {
        catalogue.REVISION_LABEL: project.revision(),
        catalogue.SOURCE_LABEL: project.source(),
        catalogue.BASE_NAME_LABEL: name,
        catalogue.BASE_DIGEST_LABEL: digest or None,
    }
    if choices.cpu and choices.target is None:
        pins = pins_of(project.build_inputs / f"{image.cpu_stack}.lock")
        held = {package: pins.get(normal(package)) for package in labelled_packages(image)}
        known.update(catalogue.stack_labels({package: pin for package, pin in held.items() if pin}))
    return {label: value for label, value in known.items() if value}


def variable(image: str) -> str:
    """The variable of compose.yaml that names an image of the catalogue."""
    return f"SUITE_{image.upper().replace('-', '_')}_IMAGE"


def pin_for_compose(project: Project, built: Built) -> Path | None:
    """Have compose.yaml run this very image where it runs one of this tag; the file that says so. Raises UsageError."""
    compose, path, name = project.root / "compose.yaml", project.root / ".env", variable(built.name)
    is_usual = built.tag == catalogue.find_image(built.name).tag(suite_version())
    if not is_usual or not compose.is_file() or name not in compose.read_text(encoding="utf-8"):
        return None
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    kept = [line for line in lines if not line.startswith(f"{name}=")]
    replace_atomically(path, "\n".join([*kept, f"{name}={built.id}"]) + "\n")
    return path
