"""`suite images`: the images that hold the stacks."""

import sys
from pathlib import Path
from textwrap import shorten

from suite.backends.registry import read_interpreters
from suite.bundle.files import replace_atomically
from suite.cli.command import Python, argument, command, flag, option, require_place
from suite.cli.output import BAD_USAGE, DONE, GATE_NOT_MET, RUN_FAILED, answer, complain, is_json
from suite.images.build import BuildChoices, BuildFailed, build_image, pin_for_compose
from suite.images.check import check_image
from suite.images.digests import ask, write
from suite.images.inside import beside, of_image, of_interpreter, read_sbom
from suite.images.project import Project
from suite.images.show import print_answers, print_built, print_differences, print_rows, rows
from suite.images.wheelhouse import fill_wheelhouse
from suite.launch.docker.connection import connect
from suite.spec.images import bases, find_image, images
from suite.spec.terminal import UsageError, say, say_lines
from suite.spec.typed import pairs
from suite.spec.version import suite_version


@command("print as JSON")
def list_images() -> None:
    """List the images of the catalogue, their bases, and which are here already. Works without a container runtime."""
    api, why = None, None
    try:
        api = connect().api
    except UsageError as error:
        why = str(error)
    found = rows(dict(images()), suite_version(), api)
    facts = {"images": [row.model_dump(mode="json") for row in found], "engine": why}
    answer(facts, lambda: print_rows(found, why))


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
    image, arguments = find_image(name), pairs("--build-arg", build_arg or ())
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
    answer(built.model_dump(mode="json"), lambda: print_built(built, pinned))
    return DONE


@command("print as JSON")
def wheelhouse(
    name: str = argument("image of the catalogue that has a CPU build", "engines"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> None:
    """Download what a CPU build of an image needs into build/image, so that the build needs no network."""
    folder = fill_wheelhouse(Project.of(checkout), find_image(name))
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
    chosen = [find_image(name) for name in names or ()]
    wanted = {image.base for image in chosen} or set(bases().values())
    looked_up = {name: base for name, base in bases().items() if base in wanted and not base.made_here}
    if not looked_up:
        raise UsageError(f"the base of {', '.join(names or ())} is made here of Debian's packages; no registry has it")
    project, runtime = Project.of(checkout), connect()
    answers = ask(runtime.api, looked_up)
    changed = write(answers, project.root) if update else []
    told = [{**one.model_dump(mode="json"), "verdict": one.verdict} for one in answers]
    answer({"bases": told, "changed": [str(path) for path in changed]}, lambda: print_answers(answers))
    say_lines(() if is_json() else (f"wrote {path}" for path in changed))
    verdicts = {one.verdict for one in answers}
    if verdicts == {"unknown"}:
        say("error: no registry could be asked: the digests are neither confirmed nor refuted", err=True)
        return BAD_USAGE
    return GATE_NOT_MET if not update and "differs" in verdicts else DONE


@command("print as JSON")
def check(
    name: str = argument("image of the catalogue (see `suite images list`)"),
    image: str | None = option("tag or id to look at [default: suite-NAME:VERSION]"),
    sbom: Path | None = option("also copy the image's SBOM (list of components) to this file"),
    checkout: Path | None = option("checkout of the suite [default: this one]", None, "--project"),
) -> int:
    """Compare what an image contains with its lock files and labels. Exit 3 when something differs."""
    require_place("--sbom", sbom)
    known = find_image(name)
    tag = image or known.tag(suite_version())
    project, runtime = Project.of(checkout), connect()
    found = check_image(runtime.api, known, tag, project)
    if sbom is not None:
        sbom.write_bytes(read_sbom(runtime.api, tag))
    facts = {"image": tag, "differences": [difference.model_dump(mode="json") for difference in found]}
    answer(facts, lambda: print_differences(tag, found))
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
        known = images().get(image)
        found = of_image(connect().api, known.tag(suite_version()) if known else image, digest)
    if file is None:
        say(found.text().rstrip())
    else:
        replace_atomically(beside(file), found.text())
        say(f"wrote {beside(file)}: {len(found.packages)} packages of Python {found.python}")
