"""Batch scripts: what they ask for, and that no value changes what they do."""

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

from suite.launch.job import Job, JobLimits, Mount
from suite.launch.local import free_port
from suite.launch.slurm.launcher import batch_script, sbatch_options
from suite.launch.slurm.settings import SlurmSettings
from suite.spec.base import UsageError
from tests.launch.differences import differences
from tests.launch.slurm.jobs import ROOT, SlurmRun, job, manifest, run
from tests.launch.slurm.stand_in import with_programs
from tests.slurm import Slurm

IMAGE = "registry.example.com#suite/engines:0.1.0"
VARIANTS = {
    "torchrun": SlurmSettings(partition="gpu", account="team"),
    "srun": SlurmSettings(starter="srun", gpu_request="gres", gpu_type="h100", cpus_per_node=96),
    "pyxis": SlurmSettings(container="pyxis", constraint="h100&ib", qos="large", reservation="bench"),
    "apptainer": SlurmSettings(container="apptainer", requeue=True, exclusive=False, options=("--switches=1",)),
}
BY_SRUN = SlurmSettings(starter="srun")
#: what breaks templates, shells, sbatch's own reading of its lines, and file names
WORDS = r"""' " `id` $(id) ${HOME} $HOME \ \n a\ # ; && | >x * ~ {# -x --wrap=id - ! a'b"c = x=y ) ( esac ;;"""
HOSTILE = ("", " ", "a # b", "{{ x }}", "{% x %}", "ü ñ 漢字 🚀", "%j %A", *WORDS.split())
hostile_text = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30),
)
printable_text = hostile_text.filter(lambda text: text.isprintable())


def rendered(name: str) -> str:
    made, how = manifest(nodes=2, gpus=4), VARIANTS[name]
    in_image = (IMAGE, (Mount(source="/data/cache", target="/cache"),)) if how.container != "none" else ()
    return batch_script([SlurmRun(made, job(made, *in_image))], how, ROOT)


def directives(script: str) -> list[str]:
    """The #SBATCH lines as sbatch reads them."""
    return [word for line in script.splitlines() if line.startswith("#SBATCH ") for word in shlex.split(line[8:])]


def test_the_script_of_one_way_to_start_ranks(snapshot: SnapshotAssertion) -> None:
    assert rendered("torchrun") == snapshot


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "torchrun"])
def test_what_is_otherwise_in_the_other_ways(name: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(differences(rendered("torchrun"), rendered(name))) == snapshot


@pytest.mark.parametrize(
    ("change", "folder", "words"),
    [
        ({"partition": "a\nb"}, "/runs", "cannot carry"),
        ({"options": ("--comment=a\tb",)}, "/runs", "cannot carry"),
        ({"cpus_per_node": 3, "starter": "srun"}, "/runs", "fewer than its 8 tasks"),
        ({}, "/a\\b", "backslash"),
        ({"container": "pyxis"}, "/runs", "comma"),
    ],
    ids=["two lines", "a control character", "too few CPUs", "a folder of the script", "a folder of the container"],
)
def test_what_slurm_or_a_container_would_misread_is_refused(change: dict, folder: str, words: str) -> None:
    made = manifest()
    asked = job(made, IMAGE, (Mount(source="/data,1", target="/cache"),)) if "container" in change else job(made)
    with pytest.raises(UsageError, match=words):
        batch_script([SlurmRun(made, asked)], SlurmSettings(**change), Path(folder))


@given(values=st.lists(printable_text, min_size=6, max_size=6), folder=printable_text)
@example(values=list(HOSTILE[:6]), folder="it's")
def test_whatever_a_line_for_sbatch_holds_it_holds_as_it_was(values: list[str], folder: str) -> None:
    *named, comment = values
    names = ("account", "qos", "reservation", "constraint", "partition")
    settings_ = SlurmSettings(**dict(zip(names, named, strict=True)), options=(f"--comment={comment}",))
    root = Path("/") / (folder.replace("\\", "").replace("/", "") or "x")
    each = run(nodes=2, gpus=2)
    script = batch_script([each], settings_, root)
    assert directives(script) == sbatch_options([each.job.name], each.job, settings_, root)
    assert f"--account={named[0]}" in directives(script)


DUMP = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
STAND_INS = {
    "srun": 'while [ "$1" != bash ]; do shift; done\nSLURM_NODEID=1 SLURM_PROCID=3 SLURM_LOCALID=1 exec "$@"',
    "scontrol": '[ "$2" = node ] && echo "NodeName=n1 NodeAddr=${FAKE_ADDR-10.1.2.3} Port=1" || echo n1',
    "apptainer": 'while [ "$1" != env ]; do shift; done\nexec "$@"',
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stand-ins for the commands of a cluster."""
    return with_programs(tmp_path_factory.mktemp("tools"), STAND_INS)


def run_script(script: str, tools: Path, **variables: str) -> list[str]:
    """Run a batch script with the stand-ins; the lines of its output."""
    given = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "25001", "SLURM_JOB_NODELIST": "n[1-2]"}
    how = {"input": script, "env": {**given, **variables}, "text": True, "timeout": 100, "check": True}
    return subprocess.run(["bash", "-s"], stdout=subprocess.PIPE, **how).stdout.splitlines()


def script_of(code: str, *runs: int, how: SlurmSettings = BY_SRUN, image: str | None = None) -> str:
    """The script of one rank that is a few lines of Python, as an array of repeats if these are given."""
    asked = Job(name="run", argv=(sys.executable, "-c", code), image=image, ranks_per_node=1)
    made = [SlurmRun(manifest(nodes=1, gpus=1, repeat=repeat), asked) for repeat in runs or (1,)]
    return batch_script(made, how, ROOT)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(words=st.lists(hostile_text, max_size=4), values=st.lists(hostile_text, min_size=2, max_size=2))
@example(words=list(HOSTILE), values=["a\nb", "'\"\n$(exit 3)"])
@example(words=["a\nb", "EOF", "\n)\n", "\r\n", "\x1b[0m"], values=["\n", "=\n="])
def test_a_shell_gives_every_rank_its_words_and_variables_as_they_were(tools, words, values):
    made = manifest(nodes=2, gpus=2)
    env = {"FIRST": values[0], "SECOND": values[1], "PYTHONUTF8": "1"}
    asked = Job(name="run", argv=(sys.executable, "-c", DUMP, *words), env=env, nodes=2, ranks_per_node=2)
    lines = run_script(batch_script([SlurmRun(made, asked)], BY_SRUN, ROOT), tools)
    seen, environment = json.loads(lines[1])
    assert seen == words
    assert [environment["FIRST"], environment["SECOND"]] == values
    variables = {"RANK": "3", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    assert {name: environment[name] for name in variables} == variables
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.1.2.3", "15001")


def test_the_node_finds_its_manifest_in_a_folder_of_its_own_that_goes_with_it(tools: Path, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), open('manifest.json').read() + sys.stdin.read())"
    made = manifest(nodes=1, gpus=1)
    made = made.model_copy(update={"size": made.size.model_copy(update={"note": "$(id) 'x' `id`" * 20_000})})
    asked = Job(name="run", argv=(sys.executable, "-c", code), ranks_per_node=1)
    script = batch_script([SlurmRun(made, asked)], BY_SRUN, ROOT)
    first, printed, last = run_script(script, tools, TMPDIR=str(tmp_path))
    folder, _, text = printed.partition(" ")
    assert folder.startswith(str(tmp_path))
    assert text == made.model_dump_json(by_alias=True) and len(text) > 1 << 17, "more than a variable can hold"
    assert list(tmp_path.iterdir()) == []
    assert [json.loads(line.removeprefix("::suite:: "))["kind"] for line in (first, last)] == ["batch", "batch_end"]


@pytest.mark.parametrize("container", ["pyxis", "apptainer"])
def test_a_container_that_lacks_the_nodes_folder_of_temporary_files_runs_and_has_a_home_that_can_be_written(
    tools: Path, tmp_path: Path, container: str
) -> None:
    code = "import os; print(os.environ['HOME'] == os.getcwd(), os.access('.', os.W_OK))"
    script = script_of(code, how=SlurmSettings(starter="srun", container=container), image=IMAGE)
    lines = run_script(script, tools, TMPDIR=str(tmp_path / "of the node"), HOME="/nowhere")
    assert lines[1] == "True True"


def test_the_members_of_an_array_each_take_their_own_manifest(tools: Path) -> None:
    script = script_of("print(open('manifest.json').read())", 1, 2)
    for index, repeat in enumerate((1, 2)):
        lines = run_script(script, tools, SLURM_ARRAY_TASK_ID=str(index))
        assert json.loads(lines[1])["run"] == manifest(nodes=1, gpus=1, repeat=repeat).run.model_dump()


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
    tmp_path: Path, given_address: str, getent: str, hostname: str, found: str
) -> None:
    own = {name: f"echo {shlex.quote(text)}" for name, text in (("getent", getent), ("hostname", hostname))}
    lines = run_script(script_of(DUMP), with_programs(tmp_path, STAND_INS | own), FAKE_ADDR=given_address)
    assert json.loads(lines[1])[1]["MASTER_ADDR"] == found


def test_a_port_that_somebody_listens_on_is_not_taken_for_the_meeting(tools: Path) -> None:
    script = script_of(DUMP)

    def port(**variables: str) -> int:
        return int(json.loads(run_script(script, tools, **variables)[1])[1]["MASTER_PORT"])

    with socket.socket() as other:
        taken = next(port for port in iter(free_port, 0) if port < 30000)
        other.bind(("127.0.0.1", taken))
        other.listen()
        assert 10000 <= port(SLURM_JOB_ID=str(taken - 10000)) < 30000
        assert port(SLURM_JOB_ID=str(taken - 10000)) != taken
    assert port(SLURM_JOB_ID="25001", SLURM_RESTART_COUNT="1") != port(SLURM_JOB_ID="25001"), "another for each try"


@pytest.mark.daemon
@pytest.mark.parametrize("text", ["a 'b' \"c\" # d", "\\", "$(id) `id`", "ü 漢字", "--wrap=id", "a\\ b"])
def test_slurm_keeps_a_comment_as_it_was(slurm: Slurm, text: str, tmp_path: Path) -> None:
    each = run(nodes=1, gpus=1)
    settings_ = SlurmSettings(options=(f"--comment={text}", "--begin=now+1hour"), exclusive=False, allowance_seconds=0)
    made = each.job.model_copy(update={"device_count": None, "limits": JobLimits(run_seconds=60)})
    script = batch_script([SlurmRun(each.manifest, made)], settings_, tmp_path)
    handed = slurm.call("sbatch", "--parsable", input=script)
    assert handed.returncode == 0, handed.stderr
    kept = slurm.call("squeue", "--noheader", "--format=%k", f"--jobs={handed.stdout.strip()}").stdout.rstrip("\n")
    slurm.call("scancel", handed.stdout.strip())
    assert kept == text
