"""The site file: what a cluster's users need not type, and what the command line says all the same."""

from pathlib import Path

import pytest
import yaml
from click.testing import Result

from tests.command import refused, suite, told

SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--repeats", "1")
STACK = ("--stack", "torch=1", "--stack", "deepspeed=1", "--stack", "transformers=5")
SLURM = """
slurm:
  partition: gpu
  account: 4711
  gpus-per-node: 2
  array: true
  env: {NCCL_SOCKET_IFNAME: ib0, MINE: kept-to-itself}
  stack: {torch: "1", deepspeed: "1", transformers: "5"}
  sbatch: [--exclude=n7]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder of settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "config" / "suite" / "site.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def render(*more: str) -> Result:
    return suite("submit", "slurm", "-o", "-", *SMALL, *more)


def image(home: Path, name: str) -> Path:
    """An image file, by whose content runs are known."""
    path = home / f"{name}.sqsh"
    path.write_bytes(name.encode())
    return path


def test_the_users_own_file_gives_what_was_not_typed_and_tells_it(home: Path) -> None:
    path = write(home, SLURM)
    done = render()
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    for option in ("--partition=gpu", "--account=4711", "--ntasks-per-node=1", "--exclude=n7"):
        assert f"#SBATCH {option}" in lines
    assert "NCCL_SOCKET_IFNAME=ib0" in done.stdout and "--nproc_per_node=2" in done.stdout
    (note,) = [line for line in done.stderr.splitlines() if str(path) in line]
    assert "--partition gpu" in note and "--env NCCL_SOCKET_IFNAME" in note and "--array" in note
    assert "kept-to-itself" not in note, "values of variables may be secrets"


def test_what_is_typed_wins_and_what_may_be_repeated_comes_after(home: Path) -> None:
    write(home, SLURM)
    done = render("--partition", "debug", "--env", "NCCL_SOCKET_IFNAME=eth0", "--sbatch=--exclude=n8")
    assert "#SBATCH --partition=debug" in done.stdout and "--partition=gpu" not in done.stdout
    assert "NCCL_SOCKET_IFNAME=eth0" in done.stdout and "=ib0" not in done.stdout
    assert done.stdout.index("--exclude=n7") < done.stdout.index("--exclude=n8"), "sbatch takes the last"
    assert "--partition" not in done.stderr


def test_a_file_may_be_named_and_gone_without(home: Path) -> None:
    write(home, "slurm: {partition: gpu}")
    (home / "other.yaml").write_text("slurm: {partition: other}")
    assert "--partition=other" in render(*STACK, "--site", "other.yaml").stdout
    assert "--partition" not in render(*STACK, "--site", "none").stdout
    (home / "config/suite/site.yaml").unlink()
    assert "--partition" not in render(*STACK).stdout


def test_the_two_launchers_have_sections_of_their_own(home: Path) -> None:
    write(home, "slurm: {partition: gpu}\nkubernetes: {namespace: lab, queue: lab-queue, variant: jobset}")
    done = suite("submit", "kubernetes", "-o", "-", *SMALL, *STACK, "--image", "registry.example/x@sha256:" + "a" * 64)
    body = list(yaml.safe_load_all(done.stdout))[-1]
    assert (body["kind"], body["metadata"]["namespace"]) == ("JobSet", "lab")
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab-queue"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slrum: {}", "unknown section 'slrum', did you mean 'slurm'?"),
        ("slurm: {partitions: x}", "slurm has no option 'partitions', did you mean 'partition'"),
        ("slurm: {account: true}", "slurm: account is a text, not True; put it in quotes"),
        ("slurm: {exclusive: 1}", "slurm: exclusive is true or false, not 1"),
        ("slurm: {gpus-per-node: many}", "slurm: gpus-per-node is a whole number, not 'many'"),
        ("slurm: [1]", "slurm holds names with values, not list"),
        ("slurm: {", "is not valid YAML"),
        ("slurm: {account: 0x" + "f" * 5000 + "}", "a number of more than 40 digits"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nslurm: {account: *b}", "aliases (*a) are not allowed in a site file"),
        ("slurm: {partition: a, partition: b}", "'partition' is given twice"),
        ("a" * 300_000, "more than the 262144 that are read"),
    ],
)
def test_what_is_wrong_in_any_section_is_one_line(home: Path, text: str, words: str) -> None:
    path = write(home, text)
    line = refused("submit", "slurm", "-o", "-", *SMALL, *STACK)
    assert words in line and str(path) in line
    assert not (home / "runs").exists()


def test_a_named_file_that_is_not_there_is_no_reason_to_go_without(home: Path) -> None:
    for path in ("nowhere.yaml", "~nobody-has-this-name/site.yaml"):
        line = refused("submit", "slurm", "-o", "-", *SMALL, *STACK, "--site", path)
        assert f"there is no file {path}" in line


def test_images_are_known_by_name_and_by_the_backends_that_they_hold(home: Path) -> None:
    engines, nemo = image(home, "engines"), image(home, "nemo")
    write(home, f"slurm:\n  images: {{engines: {engines}, nemo: {nemo}}}\n")
    for more in ((), ("--image", "engines")):
        done = render(*more)
        assert done.exit_code == 0, done.output
        assert f"--container-image={engines}" in done.stdout
    assert f"--container-image={nemo}" in render("--image", "nemo").stdout
    write(home, f"slurm:\n  images: {{engines: {engines}, trl: {nemo}}}\n")
    other = ("--backend", "trl-grpo", "--algorithm", "grpo", "--group", "2")
    assert "no image in common" in refused("submit", "slurm", "-o", "-", *SMALL, *other)


def test_an_image_file_of_this_folder_is_meant_by_its_whole_path(home: Path) -> None:
    assert f"--container-image={image(home, 'engines')}" in render("--image", "engines.sqsh").stdout
    assert "write the whole path" in render("--image", "other.sqsh").stderr


def test_a_preset_keeps_its_own_nodes_beside_a_site_of_others(home: Path) -> None:
    write(home, "slurm: {gpus-per-node: 4}")
    preset = ("--preset", "ladder", "--backend", "megatron", "--size", "66B", "--repeats", "1", "--dry-run")
    found = told("submit", "slurm", *preset, "--image", image(home, "engines"), "--gpu", "A100-SXM-80GB")
    (document,) = found["documents"]
    assert "--gpus-per-node=8" in document["sent"][0]
