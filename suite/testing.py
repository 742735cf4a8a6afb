"""What a backend of another package must keep to, as tests that its author runs (docs/backends.md). Needs pytest.

    from suite.testing import BackendContract

    class TestMyStack(BackendContract):
        backend = "my-stack"

The test that starts ranks has the mark ``ranks``: ``pytest -m "not ranks"`` leaves it out.
"""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from suite.backends.base import BackendDriver
from suite.backends.registry import ENTRY_POINT_GROUP, find_backend, own_backends, read_interpreters
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.launch.probe import stack_versions
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors

#: What the driver's interpreter need not have, and what nothing but ranks may import.
STACKS = ("accelerate", "deepspeed", "megatron", "ray", "torch", "transformers", "vllm")
#: Tells which of STACKS are imported with a driver.
LOOK = "import sys; from suite.backends.registry import find_backend as find; find(sys.argv[1]); print(*sys.modules)"


class BackendContract:
    """Subclass it with a name that begins with Test. ``backend`` is the name under which the package registers.

    The other attributes say what the tests ask of it: a size and a workload by name, the device, the precision and the
    ranks of the run, and further ``options`` of ``suite run``.
    """

    backend: str
    size = "1M"
    workload = "smoke"
    device = "cpu"
    precision = "fp32"
    ranks = 1
    options: tuple[str, ...] = ()
    #: the interpreter with the stack; None: the one that ``suite run`` would take
    python: str | None = None
    #: False where the stack or its device is not there: what needs them is skipped
    has_stack = True

    def driver(self) -> BackendDriver:
        """The backend as the registry gives it."""
        return find_backend(self.backend)

    def interpreter(self) -> str:
        """Where the stack is looked for and run."""
        return read_interpreters((self.python,) if self.python else ()).of(self.backend)

    def measure(self) -> Measure:
        """How the run measures."""
        return Measure.model_validate({"device": self.device, "precision": self.precision})

    def need_stack(self) -> None:
        """Skip what cannot be tested here."""
        if not self.has_stack:
            pytest.skip(f"its contract says that the stack of {self.backend} is not here")

    def test_it_is_registered_once_under_its_own_name(self) -> None:
        points = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == self.backend]
        assert len(points) == 1, f"{len(points)} entry points of {ENTRY_POINT_GROUP} are called {self.backend}"
        assert type(self.driver()) is points[0].load(), "another backend has the same name"
        assert self.driver().name == self.backend, "the class has another name than its entry point"
        assert self.backend not in own_backends(), "the suite has a backend of that name"

    def test_it_says_what_it_is_in_one_line(self) -> None:
        assert self.driver().kind in ("engine", "trainer")
        assert self.driver().summary.strip() and "\n" not in self.driver().summary

    def test_its_packages_are_found_with_their_versions(self) -> None:
        packages = self.driver().packages
        assert packages, "a manifest depends on the versions of the packages; without any, all stacks are the same"
        self.need_stack()
        missing = [name for name, found in stack_versions(self.interpreter(), packages).items() if found is None]
        assert missing == [], f"{self.interpreter()} has no {', '.join(missing)}"

    def test_no_training_stack_is_imported_with_the_driver(self) -> None:
        command = (sys.executable, "-c", LOOK, self.backend)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert set(STACKS).isdisjoint(done.stdout.split())

    def test_its_settings_are_layout_choices(self) -> None:
        assert set(self.driver().settings) <= set(LayoutRequest.model_fields)

    @pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (1, 2), (1, 8), (2, 1), (2, 8), (3, 5)])
    def test_a_request_is_laid_out_on_its_devices_or_refused_in_words(self, nodes: int, devices: int) -> None:
        size, workload = find_size(self.size), find_workload(self.workload)
        try:
            layout = self.driver().layout(size, workload, LayoutRequest(nodes=nodes, devices_per_node=devices))
        except ValueError as refusal:
            reasons = [str(refusal)]
        else:
            assert (layout.nodes, layout.devices_per_node) == (nodes, devices)
            reasons = self.driver().errors(size, workload, layout, self.measure())
        assert all(reason.strip() and "\n" not in reason for reason in reasons), "each reason is one line"

    def test_the_run_of_this_contract_is_not_refused(self) -> None:
        size, workload = find_size(self.size), find_workload(self.workload)
        layout: Layout = self.driver().layout(size, workload, LayoutRequest(devices_per_node=self.ranks))
        assert layout_errors(size, workload, layout) == []
        assert self.driver().errors(size, workload, layout, self.measure()) == []
        assert self.driver().stack_errors(self.interpreter()) == [] or not self.has_stack

    def test_a_rank_starts_as_a_module_with_manifest_and_bundle(self) -> None:
        argv = list(self.driver().worker_argv("/some/manifest.json", "/a/bundle"))
        assert argv[0] == "-m" and find_spec(argv[1]) is not None, f"no module: {argv}"
        assert {"/some/manifest.json", "/a/bundle"} <= set(argv)
        variables = self.driver().variables(self.measure())
        assert all(isinstance(text, str) for pair in variables.items() for text in pair)

    @pytest.mark.ranks
    def test_a_run_of_it_ends_well_did_the_work_and_verifies(self, tmp_path: Path) -> None:
        self.need_stack()
        asked = {"backend": self.backend, "size": self.size, "workload": self.workload, "ranks": str(self.ranks)}
        asked |= {"device": self.device, "precision": self.precision, "python": self.interpreter()}
        asked |= {"repeats": "1", "warmup": "1", "iterations": "2", "runs": str(tmp_path)}
        words = [word for name, value in asked.items() for word in (f"--{name}", value)]
        command = (sys.executable, "-m", "suite", "run", *words, "--json", "--force", *self.options)
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["measured"]
        bundle = Bundle(tmp_path / run)
        verification = verify(bundle)
        assert verification.status == "equal", (verification.differences, verification.findings)
        manifest, record = bundle.manifest(), bundle.record()
        assert record is not None and record.counts is not None and record.environment.worker is not None
        assert (record.status, record.run.backend) == ("ok", self.backend), record.failure
        workload, samples, drawn = manifest.workload, manifest.work.global_rollouts, manifest.work.lengths
        prompt, response = samples * workload.prompt_tokens, samples * workload.new_tokens
        asked_for = (samples, *((sum(drawn.prompt), sum(drawn.response)) if drawn else (prompt, response)))
        counts = record.counts
        assert (counts.samples, counts.prompt_tokens, counts.response_tokens) == asked_for
        told = record.environment.worker["packages"]
        assert isinstance(told, dict) and set(self.driver().packages) <= set(told)
