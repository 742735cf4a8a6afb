"""How long the planner takes over every layout of 66B on 1 to 1,024 devices, in a process of its own."""

import json
import subprocess
import sys

from benchmarks.verdict import Interval, Row, at_most, median

LIMIT_SECONDS, LIMIT_MB, LIMIT_MICROSECONDS, LEAST_CANDIDATES = 2.0, 500, 100, 100_000

_CODE = """
import json, resource, time
from suite.planner.ask import question
from suite.planner.found import of_space
from suite.planner.space import candidates
from suite.spec.catalogue import find_size, find_workload

counts = list(range(1, 1025))
asked = [question(find_size("66B"), find_workload("trlx-ds-chat"), "A100-80GB", name)
         for name in ("megatron", "deepspeed", "trlx-deepspeed")]
began = time.perf_counter()
considered = sum(one.plan(counts).considered for one in asked)
whole = time.perf_counter() - began
one = asked[0]
space = candidates(one, counts)
began = time.perf_counter()
of_space(one, space)
each = (time.perf_counter() - began) / len(space)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([considered, whole, 1e6 * each, peak]))
"""


def measure() -> tuple[int, float, float, float]:
    """Candidates, seconds of three whole plans, microseconds of one prediction, peak megabytes."""
    done = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True)
    considered, whole, each, peak = json.loads(done.stdout)
    return considered, whole, each, peak


def rows() -> list[Row]:
    runs = [measure() for _ in range(5)]
    considered, peaks = runs[0][0], [run[3] for run in runs]
    whole, each = (median([run[index] for run in runs]) for index in (1, 2))
    peak = Interval(max(peaks), min(peaks), max(peaks))
    return [
        Row(
            f"`suite plan` over {considered:,} layouts of 66B",
            f"{whole.text('.2f')} s (median of {len(runs)})",
            f"{LIMIT_SECONDS:g} s",
            at_most(whole, LIMIT_SECONDS),
        ),
        Row(
            "one prediction among them",
            f"{each.text('.1f')} microseconds",
            f"{LIMIT_MICROSECONDS} microseconds",
            at_most(each, LIMIT_MICROSECONDS),
        ),
        Row("peak resident memory of `suite plan`", f"{peak.value:.0f} MB", f"{LIMIT_MB} MB", at_most(peak, LIMIT_MB)),
    ]
