"""Runs of whole reports: of every kind of work, of every kind of trouble, and with names that mean harm."""

from dataclasses import replace
from typing import Any

import msgspec

from suite.bundle.parts import Overlap, OverlapRole, Peaks
from suite.report.facts.entry import Entry
from suite.spec.layout import Layout
from tests.report import entries as made

EVIL = "x|y](https://evil.example)<script>alert(1)</script>`~~*_[a](b)\n# h\u202e"
NO_REFERENCE = {name: share for name, share in made.SHARES.items() if name != "reference"}
NO_SCORE = {"generate": 0.5, "reward": 0.005, "train": 0.45, "other": 0.045}
WHOLE = {"sync": 0.05, "generate": 0.4, "score": 0.1, "reward": 0.01, "train": 0.4, "other": 0.04}
PERIOD = {"sync": 0.06, "generate": 0.1, "score": 0.15, "train": 0.65, "other": 0.04}
#: What an engine of its own takes and tells.
VLLM: dict[str, Any] = {"shares": made.ENGINE_SHARES, "rollout": {"idle_slot_share": 0.46, **made.MISMATCH}}
TRLX: dict[str, Any] = {
    "backend": "trlx-deepspeed",
    "kind": "trainer",
    "facts": made.TRAINER_FACTS,
    "details": made.TRAINER_DETAILS,
}
TRL_FACTS: dict[str, Any] = {
    **made.CPU_FACTS,
    "lacking_phases": {"score": "log-probs are those of generation, no pass is made"},
    "work_differences": ["prompts are padded to the left", "the optimizer is torch's AdamW, with foreach"],
}
LED_FACTS: dict[str, Any] = {**made.CPU_FACTS, "work_differences": ["rewards are computed by the agent", f"of {EVIL}"]}


def on_two(**more: Any) -> Layout:
    return Layout(devices_per_node=2, **{"data": 2, **more})


def overlapped(iteration: float, ranks: int) -> Overlap:
    """What the sides of a split run tell, one rank of which generates."""
    peaks = {
        **dict.fromkeys(Peaks.__struct_fields__),
        "peak_allocated_bytes": 300 << 20,
        "peak_resident_bytes": 600 << 20,
    }

    def side(count: int, busy: float, waiting: float, **phases: float) -> dict[str, Any]:
        seconds = {name: share * iteration for name, share in phases.items()}
        told = {"ranks": count, "phases": seconds, "memory": peaks}
        return {**told, "busy_seconds": busy * iteration, "waiting_seconds": waiting * iteration}

    training = side(ranks - 1, 0.8, 0.15, generate=0.15, score=0.2, train=0.6)
    sides = {"training": training, "generation": side(1, 0.9, 0.1, generate=0.9)}
    told = {"exposed_generate_seconds": 0.15 * iteration, "generation_busy_seconds": 0.9 * iteration}
    return msgspec.convert({**told, "sides": sides}, Overlap)


def steady(iteration: float, ranks: int, busy: float = 0.8) -> Overlap:
    """What an asynchronous trainer tells, one rank of which generates: a tenth of its samples are of the newest
    weights."""

    def role(count: int, share: float) -> OverlapRole:
        seconds = share * iteration * count
        return OverlapRole(ranks=count, busy_seconds=seconds, busy_share=share, idle_share=1 - share)

    told = {"roles": {"generation": role(1, busy), "training": role(ranks - 1, 0.9)}, "staleness": {"0": 0.1, "1": 0.9}}
    return msgspec.structs.replace(overlapped(iteration, ranks), **told)


def mixed() -> list[Entry]:
    """Engines and a trainer, two workloads, two tracks, weak and strong."""
    strong = made.workload(scaling="strong")
    return [
        *made.repeats(5),
        *made.repeats(5, backend="megatron", rate=25),
        *made.repeats(5, backend="megatron", rate=24, work=made.workload("long", prompt_tokens=32)),
        *made.repeats(5, backend="megatron", rate=26, track="tuned"),
        *made.repeats(3, rate=16, **TRLX),
        *made.repeats(2, backend="trlx-nemo", rate=18, kind="trainer"),
        *made.repeats(3, rate=21, work=strong),
        *made.repeats(3, rate=45, ranks=2, work=strong),
    ]


def troubled() -> list[Entry]:
    """Runs that were unsteady, failed in part, or in all."""
    return [
        made.entry(repeat=1),
        made.entry(repeat=2, verdict="drifting"),
        made.failed(repeat=3, evidence=("RuntimeError: [enforce fail at alloc_cpu.cpp:118] out of memory", "and more")),
        *(made.failed("hang", backend="megatron", repeat=repeat) for repeat in (1, 2)),
        made.failed("interrupted", backend="megatron", size="8M", evidence=()),
    ]


def hostile(evil: str = EVIL) -> list[Entry]:
    """Strings that try to break out of every place that shows them."""
    facts: dict[str, Any] = {**made.CPU_FACTS, "host": evil, "kernel": evil, "notes": [evil], "packages": {evil: evil}}
    facts |= {"cpu": {"model": evil, "cores": 2, "threads": 2}, "work_differences": [evil, 7]}
    named = {"backend": evil, "size": evil[:60]}
    asked: dict[str, Any] = {**named, "work": made.workload(evil[:60]), "facts": facts, "details": {evil: 0.1}}
    runs = [
        made.entry(**asked, notes=[evil]),
        made.entry(**asked, rate=30, ranks=2, verdict="drifting"),
        made.failed("config", evidence=(evil,), **named),
    ]
    return [replace(one, path=f"runs/`{evil}`/'$(id)'") for one in runs]


def networked() -> list[Entry]:
    """Two nodes of eight GPUs, one of them reached by TCP in one run; a CPU beside them."""
    rates = {"within_node": 380e9, "across_nodes": 45e9, "all_ranks": 300e9}
    adapter = {"name": EVIL, "port": "1", "state": "ACTIVE", "bits_per_second": 400e9, "link_layer": EVIL}
    gpu = {**made.GPU_FACTS, "topology": {"adapters": [adapter] * 8}, "variables": {"NCCL_DEBUG": EVIL}}
    good, slow = ({**gpu, "network": made.network({**rates, "across_nodes": rate})} for rate in (45e9, 2.5e9))
    cpu = {**made.CPU_FACTS, "network": made.network({"within_node": 1.5e9})}
    return [
        *made.repeats(2, size="1.3B", ranks=16, device="cuda", facts=good),
        made.entry(size="1.3B", ranks=16, device="cuda", facts=slow, backend="megatron"),
        made.entry(ranks=2, facts=cpu),
    ]


def families() -> list[Entry]:
    """PPO on GPT-2 beside GRPO on Llama of uneven lengths: padded, packed, by vLLM, split."""
    asked: dict[str, Any] = {"size": "1M-llama", "ranks": 2, "work": made.grpo()}
    own: dict[str, Any] = {"shares": NO_REFERENCE, "rollout": {"idle_slot_share": 0.46, "idle_slot_seconds": 0.31}}

    split = Layout(devices_per_node=2, data=1, placement="split", generation_ranks=1)
    asleep = on_two(zero_stage=2, generation="vllm", engine_sleep=True)
    packed = on_two(zero_stage=2, generation="vllm", packing=True)
    apart = {"sync": 0.03, "generate": 0.15, "score": 0.2, "reward": 0.005, "train": 0.6, "other": 0.015}
    told = {**VLLM, "shares": apart, "staleness": 1, "overlap": overlapped(32 / 26, ranks=2)}
    return [
        *made.matrix(sizes=("1M",), ranks=(1, 2), runs=5),
        *made.repeats(5, rate=14.0, layout=on_two(zero_stage=2), **own, **asked),
        *made.repeats(5, rate=17.0, backend="megatron", **own, **asked),
        *made.repeats(5, rate=19.0, layout=asleep, **VLLM, **asked),
        *made.repeats(5, rate=21.0, layout=packed, **VLLM, **asked),
        *made.repeats(5, rate=26.0, layout=split, **told, **asked),
    ]


def trainers() -> list[Entry]:
    """GRPO by trainers, one of them asynchronous, beside two engines, and RLOO by one more."""
    asked: dict[str, Any] = {"ranks": 2, "work": made.workload("cpu-grpo", algorithm="grpo", group=4)}
    rloo: dict[str, Any] = {"ranks": 2, "work": made.workload("cpu-rloo", algorithm="rloo", group=4)}
    trl: dict[str, Any] = {"kind": "trainer", "backend": "trl-grpo", "facts": TRL_FACTS}
    led: dict[str, Any] = {"kind": "trainer", "facts": LED_FACTS, **asked}
    openrlhf = {"backend": "openrlhf", **led}
    apart = {"data": 1, "zero_stage": 2, "placement": "split", "generation_ranks": 1, "generation": "vllm"}

    ahead = {"staleness": 1, "overlap": steady(16 / 7.0, 2), "layout": on_two(staleness=1, **apart)}
    vllm = on_two(generation="vllm")
    return [
        *made.repeats(5, rate=14.0, shares=NO_REFERENCE, **asked),
        *made.repeats(5, rate=17.0, shares=NO_REFERENCE, backend="megatron", **asked),
        *made.repeats(5, rate=11.0, shares=NO_SCORE, layout=on_two(), **trl, **asked),
        *made.repeats(5, rate=13.0, shares={"sync": 0.04, **NO_SCORE}, layout=vllm, **trl, **asked),
        *made.repeats(5, rate=6.0, shares=WHOLE, backend="verl", layout=vllm, **led),
        *made.repeats(5, rate=5.0, shares=WHOLE, layout=on_two(**apart), counts={"optimizer_steps": 2}, **openrlhf),
        *made.repeats(5, rate=7.0, shares=PERIOD, **ahead, **openrlhf),
        *made.repeats(3, rate=9.0, shares=NO_SCORE, **{**trl, "backend": "trl-rloo"}, **rloo),
        *made.repeats(3, rate=12.0, shares=NO_REFERENCE, **rloo),
    ]


REPORTS = {
    "trainers": trainers,
    "families": families,
    "matrix": made.matrix,
    "single": lambda: [made.entry()],
    "mixed": mixed,
    "troubled": troubled,
    "hostile": hostile,
    "gpu": lambda: made.matrix(sizes=("1.3B", "66B"), ranks=(8, 64), device="cuda", runs=1),
    "network": networked,
    "all-failed": lambda: [made.failed(size=size, backend=one) for size in ("1M", "8M") for one in ("ds", "megatron")],
    "nothing": list,
}
