"""Batch scripts: what they ask for, and that no value changes what they do."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from suite.backends.base import choice
from suite.backends.registry import backends, find_backend
from suite.conduct.running.execute import make_job
from suite.launch.cluster.submission import FOLDER
from suite.launch.job import Job, JobLimits, Mount, Site
from suite.launch.slurm.script import SlurmRun, batch_script, sbatch_options, srun_argv
from suite.launch.slurm.settings import SlurmSettings
from suite.spec.base import UsageError
from suite.spec.catalogue import find_ladder, find_size, find_workload
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Limits, Measure
from suite.spec.resolve import make_manifest
from tests.launch.slurm.jobs import ROOT, job, manifest, run
from tests.slurm import Slurm
from tests.timing import within

IMAGE = "registry.example.com#suite/engines:0.1.0"
VARIANTS = {
    "torchrun": SlurmSettings(partition="gpu", account="team"),
    "srun": SlurmSettings(starter="srun", gpu_request="gres", gpu_type="h100", cpus_per_node=96),
    "pyxis": SlurmSettings(container="pyxis", constraint="h100&ib", qos="large", reservation="bench"),
    "apptainer": SlurmSettings(container="apptainer", requeue=True, exclusive=False, options=("--switches=1",)),
}
#: what breaks templates, shells, sbatch's own reading of its lines, and file names
HOSTILE = (
    *(
        "",
        " ",
        "'",
        '"',
        "`id`",
        "$(id)",
        "${HOME}",
        "$HOME",
        "\\",
        "\\n",
        "a\\",
        "#",
        "a # b",
        ";",
        "&&",
        "|",
        ">x",
        "*",
        "~",
    ),
    *(
        "{{ x }}",
        "{% x %}",
        "{#",
        "-x",
        "--wrap=id",
        "-",
        "ü ñ 漢字 🚀",
        "%j %A",
        "!",
        "a'b\"c",
        "=",
        "x=y",
        ")",
        "(",
        "esac",
        ";;",
    ),
)
hostile_text = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30),
)
printable_text = hostile_text.filter(lambda text: text.isprintable())


def rendered(name: str) -> str:
    made = manifest(nodes=2, gpus=4)
    settings_ = VARIANTS[name]
    image = IMAGE if settings_.container != "none" else None
    mounts = (Mount(source="/data/cache", target="/cache"),) if image else ()
    return batch_script([SlurmRun(made, job(made, image, mounts))], settings_, ROOT)


def directives(script: str) -> list[str]:
    """The #SBATCH lines as sbatch reads them."""
    return [word for line in script.splitlines() if line.startswith("#SBATCH ") for word in shlex.split(line[8:])]


def step(script: str) -> list[str]:
    """The words of the command."""
    return shlex.split(script.partition("command=(\n")[2].partition("\n)\n")[0])


@pytest.mark.parametrize("name", VARIANTS)
def test_the_script_of_each_way_to_start_ranks(name: str, snapshot: SnapshotAssertion) -> None:
    assert rendered(name) == snapshot


@pytest.mark.parametrize("name", VARIANTS)
def test_a_script_is_shell_and_holds_what_was_asked_for(name: str) -> None:
    script = rendered(name)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    made = manifest(nodes=2, gpus=4)
    settings_ = VARIANTS[name]
    image = IMAGE if settings_.container != "none" else None
    asked = job(made, image, (Mount(source="/data/cache", target="/cache"),) if image else ())
    assert directives(script) == sbatch_options([made.run.id], asked, settings_, ROOT)
    assert step(script) == shlex.split(" ".join(srun_argv(asked, settings_)))


def test_an_array_holds_every_run_once_and_asks_for_their_nodes_once() -> None:
    runs = [run(nodes=2, gpus=4, repeat=repeat) for repeat in (1, 2, 3)]
    script = batch_script(runs, SlurmSettings(at_once=2), ROOT)
    assert "--array=0-2%2" in directives(script)
    assert any(word.endswith("-%A_%a.out") for word in directives(script))
    for number, each in enumerate(runs):
        assert f"{number}) SUITE_MANIFEST=" in script
        assert each.manifest.run.id in script


def test_the_time_limit_is_the_runs_own_and_the_allowance_in_whole_minutes() -> None:
    made = job(manifest()).model_copy(update={"limits": JobLimits(run_seconds=3601, silence_seconds=60)})
    assert "--time=71" in sbatch_options(["run"], made, SlurmSettings(allowance_seconds=600), ROOT)


def test_memory_of_a_rank_is_asked_for_all_ranks_of_a_node() -> None:
    made = job(manifest(gpus=8)).model_copy(update={"limits": JobLimits(memory_bytes=64 << 30)})
    assert "--mem=524288M" in sbatch_options(["run"], made, SlurmSettings(), ROOT)


def test_a_run_without_gpus_asks_for_none() -> None:
    options = sbatch_options(["run"], job(manifest(device="cpu")), SlurmSettings(gpu_request="gres"), ROOT)
    assert not [option for option in options if "gpu" in option]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partition": "a\nb"}, "cannot carry"),
        ({"options": ("--comment=a\tb",)}, "cannot carry"),
        ({"cpus_per_node": 3, "starter": "srun"}, "fewer than its 8 tasks"),
    ],
    ids=["two lines", "a control character", "too few CPUs"],
)
def test_what_a_line_for_sbatch_cannot_hold_is_refused(change: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        batch_script([run()], SlurmSettings(**change), ROOT)


def test_a_folder_that_slurm_would_misread_is_refused() -> None:
    with pytest.raises(UsageError, match="backslash"):
        batch_script([run()], SlurmSettings(), Path("/a\\b"))


def test_a_folder_that_a_container_would_misread_is_refused() -> None:
    made = manifest()
    asked = job(made, IMAGE, (Mount(source="/data,1", target="/cache"),))
    with pytest.raises(UsageError, match="comma"):
        batch_script([SlurmRun(made, asked)], SlurmSettings(container="pyxis"), ROOT)


@given(values=st.lists(printable_text, min_size=6, max_size=6), folder=printable_text)
@example(values=list(HOSTILE[:6]), folder="it's")
def test_whatever_a_line_for_sbatch_holds_it_holds_as_it_was(values: list[str], folder: str) -> None:
    account, qos, reservation, constraint, partition, comment = values
    settings_ = SlurmSettings(
        account=account,
        qos=qos,
        reservation=reservation,
        constraint=constraint,
        partition=partition,
        options=(f"--comment={comment}",),
    )
    root = Path("/") / (folder.replace("\\", "").replace("/", "") or "x")
    each = run(nodes=2, gpus=2)
    script = batch_script([each], settings_, root)
    assert directives(script) == sbatch_options([each.job.name], each.job, settings_, root)
    assert f"--account={account}" in directives(script)


DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
FAKE_SRUN = (
    '#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done\nSLURM_NODEID=1 SLURM_PROCID=3 SLURM_LOCALID=1 exec "$@"\n'
)
FAKE_SCONTROL = '#!/bin/bash\n[ "$2" = node ] && echo "NodeName=n1 NodeAddr=${FAKE_ADDR-10.1.2.3} Port=1" || echo n1\n'


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stand-ins for Slurm's commands."""
    folder = tmp_path_factory.mktemp("tools")
    for name, text in (("srun", FAKE_SRUN), ("scontrol", FAKE_SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run_script(script: str, tools: Path, **variables: str) -> list[str]:
    """Run a batch script with the stand-ins; the lines of its output."""
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "25001", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", "-c", script], env={**environment, **variables}, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.splitlines()


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(words=st.lists(hostile_text, max_size=4), values=st.lists(hostile_text, min_size=2, max_size=2))
@example(words=list(HOSTILE), values=["a\nb", "'\"\n$(exit 3)"])
@example(words=["a\nb", "EOF", "\n)\n", "\r\n", "\x1b[0m"], values=["\n", "=\n="])
def test_a_shell_gives_every_rank_its_words_and_variables_as_they_were(
    tools: Path, words: list[str], values: list[str]
) -> None:
    made = manifest(nodes=2, gpus=2)
    asked = Job(
        name="run",
        argv=(sys.executable, "-c", DUMP, *words),
        env={"FIRST": values[0], "SECOND": values[1], "PYTHONUTF8": "1"},
        nodes=2,
        ranks_per_node=2,
    )
    lines = run_script(batch_script([SlurmRun(made, asked)], SlurmSettings(starter="srun"), ROOT), tools)
    seen, environment = json.loads(lines[1])
    assert seen == words
    assert [environment["FIRST"], environment["SECOND"]] == values
    variables = {"RANK": "3", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    assert {name: environment[name] for name in variables} == variables
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.1.2.3", "15001")
    assert environment["SUITE_MANIFEST"] == made.model_dump_json(by_alias=True)


def test_the_node_finds_its_manifest_in_a_folder_of_its_own_that_goes_with_it(tools: Path, tmp_path: Path) -> None:
    made = manifest(nodes=1, gpus=1)
    code = "import os; print(os.getcwd(), open('manifest.json').read())"
    asked = Job(name="run", argv=(sys.executable, "-c", code), ranks_per_node=1)
    script = batch_script([SlurmRun(made, asked)], SlurmSettings(starter="srun"), ROOT)
    first, printed, last = run_script(script, tools, TMPDIR=str(tmp_path))
    folder, _, text = printed.partition(" ")
    assert folder.startswith(str(tmp_path))
    assert text == made.model_dump_json(by_alias=True)
    assert list(tmp_path.iterdir()) == []
    assert [json.loads(line.removeprefix("::suite:: "))["kind"] for line in (first, last)] == ["batch", "batch_end"]


@pytest.mark.parametrize("container", ["pyxis", "apptainer"])
def test_a_container_that_lacks_the_nodes_folder_of_temporary_files_runs_and_has_a_home_that_can_be_written(
    tools: Path, tmp_path: Path, container: str
) -> None:
    (tmp_path / "apptainer").write_text('#!/bin/bash\nwhile [ "$1" != env ]; do shift; done\nexec "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    for name in ("srun", "scontrol"):
        (tmp_path / name).symlink_to(tools / name)
    code = "import os; print(os.environ['HOME'] == os.getcwd(), os.access('.', os.W_OK))"
    asked = Job(name="run", argv=(sys.executable, "-c", code), image=IMAGE, ranks_per_node=1)
    queue = SlurmSettings(starter="srun", container=container)
    script = batch_script([SlurmRun(manifest(nodes=1, gpus=1), asked)], queue, ROOT)
    lines = run_script(script, tmp_path, TMPDIR=str(tmp_path / "of the node"), HOME="/nowhere")
    assert lines[1] == "True True"


def test_the_members_of_an_array_each_take_their_own_manifest(tools: Path) -> None:
    made = [manifest(nodes=1, gpus=1, repeat=repeat) for repeat in (1, 2)]
    asked = Job(name="run", argv=(sys.executable, "-c", "print(open('manifest.json').read())"), ranks_per_node=1)
    script = batch_script([SlurmRun(each, asked) for each in made], SlurmSettings(starter="srun"), ROOT)
    for index, each in enumerate(made):
        lines = run_script(script, tools, SLURM_ARRAY_TASK_ID=str(index))
        assert json.loads(lines[1])["run"] == each.run.model_dump()


@pytest.mark.parametrize(
    ("given_address", "getent", "hostname", "found"),
    [
        ("10.0.0.7", "", "", "10.0.0.7"),
        ("127.0.0.1", "", "", "127.0.0.1"),
        ("node-7", "10.9.8.7 STREAM node-7", "192.168.0.5", "10.9.8.7"),
        ("node-7", "127.0.1.1 STREAM node-7", "192.168.0.5 10.0.0.5", "192.168.0.5"),
        ("node-7", "", "fe80::1 172.16.0.5", "172.16.0.5"),
        ("node-7", "", "", "node-7"),
    ],
    ids=["numbers", "Slurm's own loopback", "resolves", "resolves to itself", "does not resolve", "nothing is known"],
)
def test_the_first_nodes_address_is_found_although_names_may_not_resolve(
    tmp_path: Path, tools: Path, given_address: str, getent: str, hostname: str, found: str
) -> None:
    for name, text in (("getent", getent), ("hostname", hostname)):
        (tmp_path / name).write_text(f"#!/bin/bash\necho {shlex.quote(text)}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("srun", "scontrol"):
        (tmp_path / name).symlink_to(tools / name)
    asked = Job(name="run", argv=(sys.executable, "-c", DUMP), ranks_per_node=1)
    script = batch_script([SlurmRun(manifest(1, 1), asked)], SlurmSettings(starter="srun"), ROOT)
    lines = run_script(script, tmp_path, FAKE_ADDR=given_address)
    assert json.loads(lines[1])[1]["MASTER_ADDR"] == found


@pytest.mark.daemon
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(comment=printable_text, name=printable_text)
@example(comment="\\", name="'")
@example(comment='a "b" # c', name="--wrap=id")
@example(comment="🚀 $(id)", name="-x")
def test_sbatch_itself_reads_every_line_as_it_was_meant(slurm: Slurm, comment: str, name: str) -> None:
    made = manifest(nodes=2, gpus=2, device="cpu")
    asked = job(made).model_copy(update={"name": name.replace("\\", "").replace("/", "") or "x"})
    settings_ = SlurmSettings(options=(f"--comment={comment}",), exclusive=False, partition="gpu", allowance_seconds=0)
    script = batch_script(
        [SlurmRun(made, asked.model_copy(update={"limits": JobLimits(run_seconds=60)}))], settings_, ROOT
    )
    tried = slurm.call("sbatch", "--test-only", input=script)
    assert tried.returncode == 0, tried.stderr
    assert "using 2 processors on nodes n[1-2]" in tried.stderr


@pytest.mark.daemon
@pytest.mark.parametrize("text", ["a 'b' \"c\" # d", "\\", "$(id) `id`", "ü 漢字", "--wrap=id", "a\\ b"])
def test_slurm_keeps_a_comment_as_it_was(slurm: Slurm, text: str, tmp_path: Path) -> None:
    each = run(nodes=1, gpus=1)
    settings_ = SlurmSettings(options=(f"--comment={text}", "--begin=now+1hour"), exclusive=False, allowance_seconds=0)
    made = each.job.model_copy(update={"device_count": None, "limits": JobLimits(run_seconds=60)})
    handed = slurm.call(
        "sbatch", "--parsable", input=batch_script([SlurmRun(each.manifest, made)], settings_, tmp_path)
    )
    assert handed.returncode == 0, handed.stderr
    kept = slurm.call("squeue", "--noheader", "--format=%k", f"--jobs={handed.stdout.strip()}").stdout.rstrip("\n")
    slurm.call("scancel", handed.stdout.strip())
    assert kept == text


@pytest.mark.alone
def test_the_whole_ladder_on_every_backend_and_variant_is_rendered_within_a_second() -> None:
    workload = find_workload("trlx-ds-chat")
    runs = []
    for name in backends():
        driver = find_backend(name)
        for size in find_ladder("true"):
            shape = find_size(size)
            layout = driver.layout(shape, workload, LayoutRequest(nodes=4, devices_per_node=8))
            made = make_manifest(
                plan="plan",
                repeat=1,
                backend=choice(driver),
                size=shape,
                workload=workload,
                layout=layout,
                measure=Measure(device="cuda", precision="bf16"),
                limits=Limits(),
                stack={},
            )
            site = Site(python="python", bundle=".", python_path="/", device_count=8, image=IMAGE)
            runs.append(SlurmRun(made, make_job(made, site)))
    batch_script(runs[:1], SlurmSettings(), ROOT)  # the template is read once

    def render_all() -> None:
        texts = [batch_script([each], variant, ROOT) for each in runs for variant in VARIANTS.values()]
        assert str(ROOT / FOLDER) in texts[0]

    assert within(1.0, render_all)


def test_a_port_that_somebody_listens_on_is_not_taken_for_the_meeting(tools: Path) -> None:
    asked = Job(name="run", argv=(sys.executable, "-c", DUMP), ranks_per_node=1)
    script = batch_script([SlurmRun(manifest(1, 1), asked)], SlurmSettings(starter="srun"), ROOT)

    def port(**variables: str) -> int:
        return int(json.loads(run_script(script, tools, **variables)[1])[1]["MASTER_PORT"])

    with socket.socket() as other:
        taken = next(each for each in range(29999, 10000, -1) if _bound(other, each))
        other.listen()
        assert 10000 <= port(SLURM_JOB_ID=str(taken - 10000)) < 30000
        assert port(SLURM_JOB_ID=str(taken - 10000)) != taken
    assert port(SLURM_JOB_ID="25001", SLURM_RESTART_COUNT="1") != port(SLURM_JOB_ID="25001"), "another for each try"


def _bound(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
