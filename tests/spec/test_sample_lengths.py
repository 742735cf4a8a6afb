"""Work and manifests hold a length for each sample, or none at all."""

import pytest
from pydantic import ValidationError

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Backend, Limits, Manifest, Measure, Work, manifest_hash
from suite.spec.resolve import make_manifest

EVEN = {"global_rollouts": 2, "replica_rollouts": 2, "replica_batch": 2, "micro_batch": 1}


@pytest.mark.parametrize(
    "lengths",
    [
        {"prompt": [1], "response": [1, 2]},
        {"prompt": [1, 2], "response": [1, 2, 3]},
        {"prompt": [1, 2], "response": [1, 0]},
        {"prompt": [], "response": []},
    ],
)
def test_lengths_of_other_samples_or_of_nothing_are_refused(lengths):
    assert Work.model_validate({**EVEN, "lengths": {"prompt": [1, 2], "response": [3, 4]}})
    with pytest.raises(ValidationError, match="lengths are those of 2 samples"):
        Work.model_validate({**EVEN, "lengths": lengths})


@pytest.mark.parametrize("uneven", [True, False])
def test_a_manifest_has_lengths_where_its_workload_is_uneven_and_nowhere_else(uneven):
    lengths = {"lengths": "lognormal:mean=16,sigma=0.6,cap=32"} if uneven else {}
    manifest = make_manifest(
        plan="p", repeat=1, backend=Backend(name="deepspeed", kind="engine"), size=find_size("1M"),
        workload=find_workload("cpu").changed(lengths), layout=Layout(devices_per_node=1, data=1),
        measure=Measure(device="cpu", precision="fp32"), limits=Limits(), stack={},
    )  # fmt: skip
    body = manifest.model_dump(mode="json", by_alias=True)
    samples = body["work"]["global_rollouts"]
    assert Manifest.model_validate(body) == manifest
    body["work"]["lengths"] = None if uneven else {"prompt": [1] * samples, "response": [1] * samples}
    with pytest.raises(ValidationError, match="the work of an uneven workload, and of no other"):
        Manifest.model_validate({**body, "hash": manifest_hash(body)})
