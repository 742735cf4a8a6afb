"""`suite images`: the images that hold the stacks."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from suite.backends.registry import read_interpreters
from suite.bundle.files import replace_atomically
from suite.cli.command import Python, argument, command, flag, option, require_place
from suite.cli.output import BAD_USAGE, DONE, GATE_NOT_MET, RUN_FAILED, answer, complain, is_json
from suite.images.build import BuildChoices, BuildFailed, Built, build_image, pin_for_compose
from suite.images.check import Answer, ask_registries, check_image, write_digests
from suite.images.inside import beside, of_image, of_interpreter, read_sbom
from suite.images.project import Project, fill_wheelhouse
from suite.launch.docker.connection import connect
from suite.spec import images as catalogue
from suite.spec.terminal import UsageError, say
from suite.spec.typed import pairs
from suite.spec.version import suite_version

_SHORT_ID = len("sha256:") + 12
_VERDICTS = {
    "same": "as locked",
    "differs": "differs from the locked one",
    "new": "was not pinned before",
    "unknown": "could not be asked",
}


@command("print as JSON")
def list_images() -> None:
    """List the images of the catalogue, their bases, and which are here already. Works without a container runtime."""
    api, why = None, None
    try:
        api = connect().api
    except UsageError as error:
        why = str(error)
    here = {name: None if api is None else _present(api, name) for name in catalogue.images()}
    rows = [
        {"image": image.model_dump(mode="json"), "tag": image.tag(suite_version()), "present": here[name]}
        for name, image in catalogue.images().items()
    ]
    lines = [line for name, image in catalogue.images().items() for line in _image_lines(image, here[name])]
    answer({"images": rows, "engine": why}, lines + ([f"what is built is not known: {why}"] if why else []))


def _present(api: Any, name: str) -> list[dict[str, Any]]:
    """What the runtime holds of an image, newest first; ``variant``: which of the Dockerfile's stacks it has."""
    labels = {
        "version": catalogue.VERSION_LABEL,
        "revision": catalogue.REVISION_LABEL,
        "variant": catalogue.VARIANT_LABEL,
    }
    found = api.images(filters={"label": f"{catalogue.IMAGE_LABEL}={name}"})
    return [
        {
            "id": entry["Id"],
            "tags": entry["RepoTags"],
            "size_bytes": entry["Size"],
            **{fact: entry["Labels"].get(label) for fact, label in labels.items()},
        }
        for entry in sorted(found, key=lambda entry: -int(entry["Created"]))
        if entry.get("RepoTags")
    ]


def _image_lines(image: catalogue.Image, present: list[dict[str, Any]] | None) -> Iterator[str]:
    unpinned = "not pinned by digest: none is known; `suite images lock` asks"
    made = "none: it is made here, of Debian's packages of that day"
    yield f"{image.name:<14} {image.summary}"
    yield f"{'':14} base     {image.base.reference}"
    yield f"{'':14} digest   {image.base.digest or (made if image.base.made_here else unpinned)}"
    yield f"{'':14} backends {', '.join(image.backends) or 'none yet'}"
    for found in present or ():
        variant = ", CPU build" if found["variant"] == image.cpu_stack else ""
        revision = f", commit {found['revision'][:12]}" if found["revision"] else ""
        short = f"{', '.join(found['tags'])}  {found['id'][:_SHORT_ID]}  {found['size_bytes'] / 1e9:.2f} GB"
        yield f"{'':14} here     {short}, suite {found['version']}{revision}{variant}"
    if present == []:
        yield f"{'':14} here     no; suite images build {image.name}"


@command("print as JSON")
def build(
    name: str = argument("image of the catalogue (see `suite images list`)"),
    base_image: str | None = option("another base image, e.g. a local one"),
    cpu: bool = flag("build with the CPU torch of the wheelhouse"),
    without_trlx: bool = flag("leave trlx itself out, for a machine that cannot reach its repository"),
    offline: bool = flag("download nothing: packages come from the wheelhouse, as with --cpu"),
    target: str | None = option("stop at this stage, e.g. common: the driver alone"),
    tag: str | None = option("name of the image [default: suite-NAME:VERSION]"),
    build_arg: list[str] | None = option("further build argument; repeat for several"),
    no_cache: bool = flag("do not use the container runtime's build cache"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> int:
    """Build an image from this checkout."""
    image, arguments = catalogue.find_image(name), pairs("--build-arg", build_arg or ())
    choices = BuildChoices(base_image, cpu, without_trlx, offline, target, tag, no_cache, arguments)
    project, runtime = Project.of(checkout), connect()
    try:
        built = build_image(
            image.name, runtime.api, project, choices, lambda step: say(shorten(str(step), 120), err=is_json())
        )
    except BuildFailed as error:
        for line in error.lines[:-1]:
            say(f"  {line}", err=True)
        return complain(str(error), RUN_FAILED)
    pinned = pin_for_compose(project, built)
    answer(built.model_dump(mode="json"), _built_lines(image, built, pinned))
    return DONE


def _built_lines(image: catalogue.Image, built: Built, pinned: Path | None) -> Iterator[str]:
    """The image's id, and how to run it. ``pinned``: the file by which Compose now runs this very image, if it does."""
    yield f"built {built.tag} in {built.seconds:.0f} s: {built.id}, {built.size_bytes / 1e9:.2f} GB; log: {built.log}"
    if not built.is_settled:
        yield "note:  this runtime keeps images in a way that gives each build an id of its own"
    if catalogue.IMAGE_LABEL not in built.labels:
        return  # a stage on the way, which holds no stack to check or to run
    variant = built.labels.get(catalogue.VARIANT_LABEL)
    size = "8M" if variant is not None and variant == image.cpu_stack else "1.3B"
    yield f"check: suite images check {image.name} --image {built.tag}"
    for backend in image.backends[:1]:
        yield f"run:   suite run --launcher docker --image {built.tag} --backend {backend} --size {size}"
    if pinned is not None:
        yield f"{pinned.name}: `docker compose run` takes this image, by its id"


@command("print as JSON")
def wheelhouse(
    name: str = argument("image of the catalogue that has a CPU build", "engines"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> None:
    """Download what a CPU build of an image needs into build/image, so that the build needs no network."""
    folder = fill_wheelhouse(Project.of(checkout), catalogue.find_image(name))
    wheels = sorted(path.name for path in folder.glob("*.whl"))
    answer({"folder": str(folder), "wheels": wheels}, [f"{len(wheels)} wheels in {folder}"])


@command("print as JSON")
def lock(
    names: list[str] | None = argument("images whose base images are looked up [default: all]", None, metavar="NAME"),
    update: bool = flag("write the new digests into the catalogue and the Dockerfiles"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> int:
    """Look up the current digests of the base images in their registries.

    Exit 3 when a pinned digest is out of date and was not updated.
    """
    chosen = [catalogue.find_image(name) for name in names or ()]
    wanted = {image.base for image in chosen} or set(catalogue.bases().values())
    looked_up = {name: base for name, base in catalogue.bases().items() if base in wanted and not base.made_here}
    if not looked_up:
        raise UsageError(f"the base of {', '.join(names or ())} is made here of Debian's packages; no registry has it")
    project, runtime = Project.of(checkout), connect()
    answers = ask_registries(runtime.api, looked_up)
    changed = [str(path) for path in write_digests(answers, project.root)] if update else []
    told = [{**one.model_dump(mode="json"), "verdict": one.verdict} for one in answers]
    lines = [line for one in answers for line in _digest_lines(one)]
    answer({"bases": told, "changed": changed}, lines + [f"wrote {path}" for path in changed])
    verdicts = {one.verdict for one in answers}
    if verdicts == {"unknown"}:
        say("error: no registry could be asked: the digests are neither confirmed nor refuted", err=True)
        return BAD_USAGE
    return GATE_NOT_MET if not update and "differs" in verdicts else DONE


def _digest_lines(answer: Answer) -> Iterator[str]:
    """The digest of a base that is locked, the one found, and how they stand to each other."""
    yield f"{answer.base:<12} {answer.reference}: {_VERDICTS[answer.verdict]}"
    yield f"{'':12} locked {answer.locked or 'none'}"
    yield f"{'':12} found  {answer.found or f'none: {answer.reason}'}"


@command("print as JSON")
def check(
    name: str = argument("image of the catalogue (see `suite images list`)"),
    image: str | None = option("tag or id to look at [default: suite-NAME:VERSION]"),
    sbom: Path | None = option("also copy the image's SBOM (list of components) to this file"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> int:
    """Compare what an image contains with its lock files and labels. Exit 3 when something differs."""
    require_place("--sbom", sbom)
    known = catalogue.find_image(name)
    tag = image or known.tag(suite_version())
    project, runtime = Project.of(checkout), connect()
    found = check_image(runtime.api, known, tag, project)
    if sbom is not None:
        sbom.write_bytes(read_sbom(runtime.api, tag))
    facts = {"image": tag, "differences": [difference.model_dump(mode="json") for difference in found]}
    answer(facts, [*found, f"{tag}: {f'{len(found)} differences' if found else 'holds what its locks and labels say'}"])
    return GATE_NOT_MET if found else DONE


@command()
def stack(
    image: str | None = argument(
        "image of the container runtime, or of the catalogue [default: ask --python instead]", None
    ),
    file: Path | None = option("image file that was made of it: write FILE.stack.json, where `suite submit` finds it"),
    python: Python = None,
) -> None:
    """Write down which versions an image's stack has, for an image that is a file (.sqsh, .sif).

    Without --file it is printed. Without IMAGE an interpreter is asked, inside of an image that of its stack.
    """
    digest = None
    if file is not None:
        from suite.conduct.cluster.machine import file_digest

        digest = file_digest(file.absolute())
    if image is None:
        found = of_interpreter(read_interpreters(python or ()).usual or sys.executable, digest)
    else:
        known = catalogue.images().get(image)
        found = of_image(connect().api, known.tag(suite_version()) if known else image, digest)
    if file is None:
        say(found.text().rstrip())
    else:
        replace_atomically(beside(file), found.text())
        say(f"wrote {beside(file)}: {len(found.packages)} packages of Python {found.python}")
