"""From a plan by way of its runs to their records no work is lost and none is added, whatever is asked for."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.bundle.derive import record_of
from suite.bundle.store import Bundle
from suite.conduct.planning.request import LayoutChoices, Request
from suite.spec.algorithms import declarations
from suite.spec.base import UsageError
from suite.spec.workload import Workload
from tests.bundle.tampering import change
from tests.conduct.requests import STACKS, make_plan, request
from tests.conduct.sessions import Instantly, work
from tests.synthetic import Event

LENGTHS = (None, "lognormal:mean=6,sigma=0.6,cap=12", "lognormal:mean=4,sigma=0.9,cap=9,at-cap=0.25")
LAYOUTS: tuple[dict[str, Any], ...] = (
    *({"zero_stage": (stage,)} for stage in (1, 2, 3)),
    *({"tensor": (2,)}, {"pipeline": (2,)}, {"tensor": (2,), "pipeline": (2,), "recompute": "full"}),
    *({"generation": ("vllm",), "engine_sleep": True}, {"packing": True, "balance": True}),
)
COUNTED = ("samples", "prompt_tokens", "response_tokens", "trained_tokens", "optimizer_steps")


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Work of any algorithm, of even or uneven lengths, in any layout; not all of it can be planned."""
    steps, group = draw(st.integers(1, 2)), draw(st.sampled_from((1, 2, 4)))
    asked = {
        "algorithm": draw(st.sampled_from(sorted(declarations()))),
        "group": group,
        "rollouts": group * steps * draw(st.integers(1, 3)),
        "optimizer_steps": steps,
        "ppo_epochs": draw(st.integers(1, 3)),
        "micro_batch": draw(st.integers(1, 4)),
        "scaling": draw(st.sampled_from(("weak", "strong"))),
        "lengths": draw(st.sampled_from(LENGTHS)),
        "prompt_lengths": draw(st.sampled_from(LENGTHS)),
    }
    body = {"name": "any", **{name: value for name, value in asked.items() if value is not None}}
    for tokens, lengths in (("new_tokens", "lengths"), ("prompt_tokens", "prompt_lengths")):
        if lengths not in body:
            body[tokens] = 8
    try:
        workload = Workload.model_validate(body)
        return request(
            workload=workload,
            backends=(draw(st.sampled_from(("deepspeed", "megatron"))),),
            ranks=(draw(st.sampled_from((1, 2, 4))),),
            scalings=(asked["scaling"],),
            layout=LayoutChoices(**draw(st.sampled_from(LAYOUTS))),
            repeats=1,
        )
    except (ValidationError, UsageError):
        assume(False)
        raise


@given(asked=requests(), counted=st.sampled_from(COUNTED), more=st.sampled_from((-1, 1)))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_manifest_asks_for_is_what_its_record_counts(asked, counted, more, tmp_path_factory):
    try:
        plan = make_plan(asked, STACKS)
    except UsageError:
        assume(False)
    assume(plan.manifests)
    root = tmp_path_factory.mktemp("runs")
    assert len(work(plan, root, Instantly())[0].measured) == 1
    (manifest,) = plan.manifests
    wanted, drawn = asked.workload, manifest.work.lengths
    samples = wanted.rollouts * (asked.ranks[0] if asked.scalings == ("weak",) else 1)
    prompts = samples * [wanted.prompt_tokens] if drawn is None else list(drawn.prompt)
    responses = samples * [wanted.new_tokens] if drawn is None else list(drawn.response)
    assert len(prompts) == len(responses) == samples
    assert max(prompts) <= wanted.prompt_tokens and max(responses) <= wanted.new_tokens
    for first in range(0, samples, wanted.group):
        assert len(set(prompts[first : first + wanted.group])) == 1, "the samples of a group share their prompt"
    record = Bundle(root / manifest.run.id).record()
    assert record is not None and record.status == "ok" and record.counts is not None
    tokens = sum(prompts) + sum(responses)
    assert {name: getattr(record.counts, name) for name in COUNTED} == {
        "samples": samples,
        "prompt_tokens": sum(prompts),
        "response_tokens": sum(responses),
        "trained_tokens": tokens * wanted.ppo_epochs,
        "optimizer_steps": wanted.optimizer_steps * wanted.ppo_epochs,
    }
    assert record.throughput is not None, "of iterations of one second"
    assert record.throughput.samples_per_second.value == pytest.approx(samples)
    assert record.throughput.tokens_per_second.value == pytest.approx(tokens)
    assert _with_miscount(root / manifest.run.id, counted, more) == "failed", "not one less and not one more"


def _with_miscount(bundle: Path, name: str, more: int) -> str:
    """The status of a run whose ranks all tell so much more of this."""

    def edit(event: Event) -> None:
        if event["kind"] == "iteration":
            event["counts"][name] += more

    change(bundle, edit)
    return record_of(Bundle(bundle)).status
