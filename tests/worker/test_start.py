"""What a rank checks before it imports a stack: its rank, its manifest, its packages."""

import json
from pathlib import Path

import pytest

from suite.worker.manifest import check_stack, check_world_size, read_manifest
from suite.worker.rank import ConfigError, RankIdentity, read_rank
from tests.worker.tiny import rank_environment, start_rank, tiny_body, tiny_manifest, wait_for, write_manifest


class TestRank:
    @pytest.mark.parametrize("missing", ["WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
    def test_half_a_launcher_is_named(self, missing: str) -> None:
        environment = rank_environment(0, 2, 29500)
        del environment[missing]
        with pytest.raises(ConfigError, match=missing):
            read_rank(environment)

    @pytest.mark.parametrize(("name", "value"), [("RANK", "one"), ("RANK", "2"), ("LOCAL_RANK", "-1")])
    def test_ranks_that_make_no_sense_are_refused(self, name: str, value: str) -> None:
        with pytest.raises(ConfigError):
            read_rank({**rank_environment(0, 2, 29500), name: value})


class TestManifest:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            *(("{", "cannot read"), ("[]", "schema None"), ('{"schema": "suite/manifest/9"}', "suite/manifest/9")),
            ('{"schema": "suite/manifest/1"}', "lacks .*work"),
        ],
    )
    def test_another_file_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "manifest.json"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_manifest(str(path))

    def test_the_world_must_be_the_layouts(self) -> None:
        manifest = tiny_body(2)
        check_world_size(manifest, RankIdentity(1, 2, 1, 2))
        with pytest.raises(ConfigError, match=r"2 ranks .* started 1"):
            check_world_size(manifest, RankIdentity(0, 1, 0, 1))

    def test_every_wrong_package_is_told_with_both_versions(self) -> None:
        with pytest.raises(ConfigError, match=r"no-such-package 1\.0 wanted, none found; torch 0\.1 wanted, \d"):
            check_stack({"torch": "0.1", "no-such-package": "1.0"})


class TestFailuresBeforeTheStackIsImported:
    def test_a_wrong_stack_is_a_config_failure_with_its_proof(self, tmp_path: Path) -> None:
        path = write_manifest(tiny_manifest(stack={"torch": "0.1"}), tmp_path)
        run = wait_for([start_rank(path)], tmp_path)
        assert run.exit_codes == [1]
        assert [event["kind"] for event in run.events()] == ["start", "failure", "end"]
        failure, end = run.events()[1:]
        assert (failure["failure"], failure["phase"], failure["iteration"]) == ("config", "setup", None)
        assert "torch 0.1 wanted" in failure["evidence"][0]
        assert (end["status"], end["iterations"]) == ("failed", 0)
        assert "Traceback" in run.errors[0]
        mirrored = [line.removeprefix("::suite:: ") for line in run.outputs[0].splitlines()]
        assert [json.loads(line) for line in mirrored] == run.events(), "rank 0 speaks on standard output"

    def test_a_manifest_that_is_not_there_ends_in_one_line(self, tmp_path: Path) -> None:
        run = wait_for([start_rank(tmp_path / "none.json")], tmp_path)
        assert run.exit_codes == [1]
        assert len(run.errors[0].splitlines()) == 1
        assert "none.json" in run.errors[0]
