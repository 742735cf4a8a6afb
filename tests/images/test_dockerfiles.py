"""The Dockerfiles, read as text: pinned, of one mind with catalogue and locks, and fit for both builders."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from suite.images.project import normal, pins_of
from suite.spec.images import STACK_LABEL, bases, find_image, images
from suite.spec.version import suite_version
from tests.needs import skip_outside_ci

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements" / "images"
NAMES = ("Dockerfile.deepspeed", "Dockerfile.nemo", "Dockerfile.published")
TEXT = {name: (ROOT / name).read_text() for name in NAMES}
HADOLINT = Path(sys.executable).with_name("hadolint")


def instructions(name: str) -> list[str]:
    """Each instruction on one line, without comments."""
    lines = [line for line in TEXT[name].splitlines() if not line.startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def defaults(name: str) -> dict[str, str]:
    """Build arguments with their defaults, as far as they have one."""
    return dict(re.findall(r"^ARG (\w+)=(.*)$", TEXT[name], flags=re.MULTILINE))


def stage(name: str, called: str) -> tuple[str, str]:
    """What a stage is built from, and its text without its FROM."""
    pattern = rf"^FROM (\S+) AS {re.escape(called)}\n(.*?)(?=^FROM |\Z)"
    (found,) = re.findall(pattern, TEXT[name], re.MULTILINE | re.DOTALL)
    return found


def stage_labels(name: str, called: str) -> dict[str, str]:
    """Labels of a stage with those of the stages of the same stack that it is built from."""
    parent, text = stage(name, called)
    own = dict(re.findall(r'([\w.-]+)="([^"]*)"', "".join(re.findall(r"^LABEL (?:.*\\\n)*.*", text, re.MULTILINE))))
    above = {} if parent in ("assembled", "base") or "$" in parent else stage_labels(name, parent)
    return {**above, **own}


@pytest.mark.parametrize("name", NAMES)
class TestEachOfThem:
    def test_hadolint_has_nothing_to_say(self, name: str) -> None:
        if not HADOLINT.exists():
            skip_outside_ci("no hadolint beside this Python; `make test` installs it")
        done = subprocess.run((str(HADOLINT), "--no-color", str(ROOT / name)), capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")

    def test_nothing_is_used_that_only_one_builder_has(self, name: str) -> None:
        lines = [line for line in TEXT[name].splitlines() if line != "# <<< common"]
        assert not [line for line in lines if re.search(r"--mount|<<|^# *syntax", line)]

    def test_all_stages_stand_on_one_base_of_the_catalogue(self, name: str) -> None:
        stages = re.findall(r"^FROM (\S+) AS (\S+)$", TEXT[name], flags=re.MULTILINE)
        assert len(stages) == len(re.findall(r"^FROM ", TEXT[name], flags=re.MULTILINE))
        known = {stage for _, stage in stages}
        outside = [parent for parent, _ in stages if parent not in known and parent != "stack-${STACK}"]
        assert outside == ["${BASE_IMAGE}"] * 2, "the stages that build, and the finished image"
        assert defaults(name)["BASE_IMAGE"] in {base.pinned for base in bases().values()}

    def test_the_images_carry_this_version_and_say_what_they_are(self, name: str) -> None:
        labels = stage_labels(name, "ground")
        assert labels["org.opencontainers.image.version"] == suite_version()
        assert {"org.opencontainers.image.title", "org.opencontainers.image.licenses"} <= labels.keys()

    def test_what_a_build_machine_passes_in_reaches_builder_stages_only(self, name: str) -> None:
        copies = [line for line in instructions(name) if line.startswith("COPY") and "build/imag" in line]
        for copy, at in zip(copies, ("outfit", "builder"), strict=True):
            assert copy in stage(name, at)[1]
        taken = re.findall(r"COPY --from=(\S+) (\S+)", TEXT[name])
        assert {path for _, path in taken} == {"/outfit/", "/image/", "/source/", "/tmp/image/"}


@pytest.mark.parametrize("name", NAMES)
def test_every_package_comes_from_a_lock_with_hashes_or_from_a_commit(name: str) -> None:
    installs = [step for line in instructions(name) for step in line.split(";") if "pip install" in step]
    assert len(installs) >= (2 if name == "Dockerfile.published" else 4)
    for install in installs:
        is_hashed = "--require-hashes -r" in install
        is_commit = install.split()[-1].endswith("/trlx-source.lock") and "--no-deps" in install
        is_built_here = "--no-index /build/apex-wheel/" in install
        assert is_hashed or is_commit or is_built_here, install
        assert "--no-deps" in install or "uv pip" not in install, "it would ask for more than the lock has"


@pytest.mark.parametrize("name", NAMES)
def test_an_image_ends_as_a_user_without_rights(name: str) -> None:
    users = re.findall(r"^USER (\S+)$", TEXT[name], flags=re.MULTILINE)
    assert users[-1] == "1000:1000" and set(users[:-1]) <= {"0", "1000:1000"}


def test_the_common_stages_are_one_text() -> None:
    pattern = re.compile(r"^# >>> common.*?^# <<< common$", flags=re.MULTILINE | re.DOTALL)
    first, *others = (pattern.findall(text) for text in TEXT.values())
    assert len(first) == 1 and others == [first, first]


def test_what_is_built_without_arguments_is_the_catalogues_image() -> None:
    for image in (find_image("trlx"), find_image("nemo"), find_image("nemo-rl")):
        given = defaults(image.dockerfile)
        assert given["BASE_IMAGE"] == image.base.pinned
        assert given["STACK_PYTHON"] == ("3.11" if image.interpreter else image.python)
        assert given.get("STACK") == image.stack
        assert given.get("INTERPRETER") == image.interpreter
        assert given.get("IMAGE", image.name) == image.name


@pytest.mark.parametrize(
    ("image", "stage"),
    [*((image.name, f"stack-{image.stack}") for image in images().values() if image.stack), ("nemo", "image")],
)
def test_labels_are_the_versions_of_the_lock(image: str, stage: str) -> None:
    known = find_image(image)
    labels = stage_labels(known.dockerfile, stage)
    pins = {**pins_of(LOCKS / known.lock), **{name: source.version for name, source in known.sources.items()}}
    assert labels["suite.image"] == known.name and known.lock is not None
    expected = {f"{STACK_LABEL}{package}": pins[normal(package)] for package in known.packages}
    assert {label: value for label, value in labels.items() if label.startswith(STACK_LABEL)} == expected
    commits = {f"suite.commit.{name}": source.commit for name, source in known.sources.items()}
    assert {label: value for label, value in labels.items() if label.startswith("suite.commit.")} == commits


def test_every_stack_of_the_catalogue_has_a_stage() -> None:
    wanted = {name for image in images().values() for name in (image.stack, image.cpu_stack) if name}
    stages = set(re.findall(r"AS stack-(\S+)$", TEXT["Dockerfile.deepspeed"], flags=re.MULTILINE))
    assert stages == wanted | {"trlx-deps", "upstream-deps"}


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    copied = {
        source
        for name in NAMES
        for line in instructions(name)
        if line.startswith("COPY") and "--from" not in line
        for source in line.split()[1:-1]
    }
    for source in copied:
        assert any(source.replace("[e]", "e").startswith(path) for path in allowed), source
    for path in allowed:
        assert any(source.replace("[e]", "e").startswith(path) for source in copied), path


DEBIAN = ".".join(("debian", "org"))  # no file names a host of packages


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        (f"URIs: http://deb.{DEBIAN}/debian", f"URIs: http://snapshot.{DEBIAN}/archive/debian/DAY/"),
        (f"http://security.{DEBIAN}/debian-security", f"http://snapshot.{DEBIAN}/archive/debian-security/DAY/"),
        ("deb http://archive.ubuntu.com/ubuntu/ noble main", "deb https://snapshot.ubuntu.com/ubuntu/DAY/ noble main"),
        ("deb http://mirror.example/debian x", "deb http://mirror.example/debian x"),
    ],
)
def test_packages_come_from_the_archive_of_a_day(line: str, moved: str) -> None:
    text = stage("Dockerfile.deepspeed", "outfit")[1].replace("APT_SNAPSHOT", "DAY")
    rules = re.findall(r'-e "(s#.*#)"', text.replace("${DAY}", "DAY"))
    done = subprocess.run(("sed", "-E", ";".join(rules)), input=line, capture_output=True, text=True, check=True)
    assert done.stdout == moved
    assert rules[-1].replace("DAY", "${DAY}") in (LOCKS / "base.sh").read_text()


def test_the_base_has_the_day_of_what_is_installed_on_it() -> None:
    assert find_image("engines").base.reference.endswith(f"-{defaults('Dockerfile.deepspeed')['APT_SNAPSHOT']}")
