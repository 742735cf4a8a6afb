"""`suite images`: the images that hold the stacks."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import BAD_USAGE, DONE, GATE_NOT_MET, RUN_FAILED, command, complain
from suite.cli.options.reading import Python, print_json, require_place
from suite.spec.terminal import UsageError, say
from suite.spec.typed import pairs

AsJson = Annotated[bool, typer.Option("--json", help="print as JSON")]
Checkout = Annotated[Path | None, typer.Option("--project", help="checkout of the suite [default: this one]")]


@command
def list_images(as_json: AsJson = False) -> None:
    """List the images of the catalogue, their bases, and which are here already. Works without a container runtime."""
    from suite.images.show import print_rows, rows
    from suite.launch.docker.connection import connect
    from suite.spec.images import images
    from suite.spec.version import suite_version

    api, why = None, None
    try:
        api = connect().api
    except UsageError as error:
        why = str(error)
    found = rows(dict(images()), suite_version(), api)
    if as_json:
        print_json({"images": [row.model_dump(mode="json") for row in found], "engine": why})
    else:
        print_rows(found, why)


@command
def build(
    name: Annotated[str, typer.Argument(help="image of the catalogue (see `suite images list`)")],
    base_image: Annotated[str | None, typer.Option(help="another base image, e.g. a local one")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="build with the CPU torch of the wheelhouse")] = False,
    without_trlx: Annotated[
        bool,
        typer.Option("--without-trlx", help="leave trlx itself out, for a machine that cannot reach its repository"),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="download nothing: packages come from the wheelhouse, as with --cpu")
    ] = False,
    target: Annotated[str | None, typer.Option(help="stop at this stage, e.g. common: the driver alone")] = None,
    tag: Annotated[str | None, typer.Option(help="name of the image [default: suite-NAME:VERSION]")] = None,
    build_arg: Annotated[list[str] | None, typer.Option(help="further build argument; repeat for several")] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="do not use the container runtime's build cache")
    ] = False,
    checkout: Checkout = None,
    as_json: AsJson = False,
) -> int:
    """Build an image from this checkout."""
    from suite.images.build import BuildChoices, BuildFailed, build_image, pin_for_compose
    from suite.images.project import Project
    from suite.images.show import print_built, print_step
    from suite.launch.docker.connection import connect
    from suite.spec.images import find_image

    image = find_image(name)
    arguments = pairs("--build-arg", build_arg or ())
    choices = BuildChoices(base_image, cpu, without_trlx, offline, target, tag, no_cache, arguments)
    project, runtime = Project.of(checkout), connect()
    try:
        built = build_image(image.name, runtime.api, project, choices, lambda step: print_step(step, err=as_json))
    except BuildFailed as error:
        for line in error.lines[:-1]:
            say(f"  {line}", err=True)
        return complain(str(error), RUN_FAILED)
    pinned = pin_for_compose(project, built)
    if as_json:
        print_json(built.model_dump(mode="json"))
    else:
        print_built(built, pinned)
    return DONE


@command
def wheelhouse(
    name: Annotated[str, typer.Argument(help="image of the catalogue that has a CPU build")] = "engines",
    checkout: Checkout = None,
    as_json: AsJson = False,
) -> None:
    """Download what a CPU build of an image needs into build/image, so that the build needs no network."""
    from suite.images.project import Project
    from suite.images.wheelhouse import fill_wheelhouse
    from suite.spec.images import find_image

    folder = fill_wheelhouse(Project.of(checkout), find_image(name))
    wheels = sorted(path.name for path in folder.glob("*.whl"))
    if as_json:
        print_json({"folder": str(folder), "wheels": wheels})
    else:
        say(f"{len(wheels)} wheels in {folder}")


@command
def lock(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="images whose base images are looked up [default: all]")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="write the new digests into the catalogue and the Dockerfiles")
    ] = False,
    checkout: Checkout = None,
    as_json: AsJson = False,
) -> int:
    """Look up the current digests of the base images in their registries.

    Exit 3 when a pinned digest is out of date and was not updated.
    """
    from suite.images.digests import ask, write
    from suite.images.project import Project
    from suite.images.show import print_answers
    from suite.launch.docker.connection import connect
    from suite.spec.images import bases, find_image

    chosen = [find_image(name) for name in names or ()]
    wanted = {image.base for image in chosen} or set(bases().values())
    looked_up = {name: base for name, base in bases().items() if base in wanted and not base.made_here}
    if not looked_up:
        raise UsageError(f"the base of {', '.join(names or ())} is made here of Debian's packages; no registry has it")
    project, runtime = Project.of(checkout), connect()
    answers = ask(runtime.api, looked_up)
    changed = write(answers, project.root) if update else []
    if as_json:
        told = [{**answer.model_dump(mode="json"), "verdict": answer.verdict} for answer in answers]
        print_json({"bases": told, "changed": [str(path) for path in changed]})
    else:
        print_answers(answers)
        for path in changed:
            say(f"wrote {path}")
    if all(answer.verdict == "unknown" for answer in answers):
        return complain("no registry could be asked: the digests are neither confirmed nor refuted", BAD_USAGE)
    return GATE_NOT_MET if not update and any(answer.verdict == "differs" for answer in answers) else DONE


@command
def check(
    name: Annotated[str, typer.Argument(help="image of the catalogue (see `suite images list`)")],
    image: Annotated[str | None, typer.Option(help="tag or id to look at [default: suite-NAME:VERSION]")] = None,
    sbom: Annotated[
        Path | None,
        typer.Option(help="also copy the image's SBOM (list of components) to this file"),
    ] = None,
    checkout: Checkout = None,
    as_json: AsJson = False,
) -> int:
    """Compare what an image contains with its lock files and labels. Exit 3 when something differs."""
    from suite.images.check import check_image
    from suite.images.inside import read_sbom
    from suite.images.project import Project
    from suite.images.show import print_differences
    from suite.launch.docker.connection import connect
    from suite.spec.images import find_image
    from suite.spec.version import suite_version

    require_place("--sbom", sbom)
    known = find_image(name)
    tag = image or known.tag(suite_version())
    project, runtime = Project.of(checkout), connect()
    found = check_image(runtime.api, known, tag, project)
    if sbom is not None:
        sbom.write_bytes(read_sbom(runtime.api, tag))
    if as_json:
        print_json({"image": tag, "differences": [difference.model_dump(mode="json") for difference in found]})
    else:
        print_differences(tag, found)
    return GATE_NOT_MET if found else DONE


@command
def stack(
    image: Annotated[
        str | None,
        typer.Argument(help="image of the container runtime, or of the catalogue [default: ask --python instead]"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="image file that was made of it: write FILE.stack.json, where `suite submit` finds it"),
    ] = None,
    python: Python = None,
) -> None:
    """Write down which versions an image's stack has, for an image that is a file (.sqsh, .sif).

    Without --file it is printed. Without IMAGE an interpreter is asked, inside of an image that of its stack.
    """
    from suite.backends.registry import read_interpreters
    from suite.bundle.files import replace_atomically
    from suite.conduct.cluster.image_file import file_digest
    from suite.images.stack_file import beside, of_image, of_interpreter
    from suite.launch.docker.connection import connect
    from suite.spec.images import images
    from suite.spec.version import suite_version

    digest = None if file is None else file_digest(file.absolute())
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
