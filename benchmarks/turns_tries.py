"""Two environments of one backend take turns, for real: how often the gate finds a loss, and calls one where none is.

    python -m benchmarks.turns_tries [--starts 12] [--tries 100] [--folder build/turns-check]

Measures A/A, and a loss: there the second one's iterations wait, busily, until they have lost 3 %. Both environments
are this one behind a program of their own, which differ in nothing else: the size of what a process is given moves its
memory, and so its speed (Mytkowicz et al., Producing wrong data, ASPLOS 2009). A try judges some of the starts, drawn
anew, as ``suite compare RUNS --gate 0.97 --strict`` does. Then what another row's turn does to the next iteration, and
to the ratio of the engines. The figures belong to the machine and the day, and the machine must have nothing else to
do.
"""

import argparse
import math
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from suite.report.compare import by_environment, compare_entries
from suite.report.comparing.gate import hold_to
from suite.report.facts.entry import Entry
from suite.report.formatting.numbers import interval
from suite.report.reading import read_entries
from suite.stats.intervals import Interval
from suite.stats.moderated import mean_of
from suite.stats.turns import dispersion, pair_of

GATE, SEED = 0.97, 1
#: Starts of a try, whose turns take less than five minutes together.
PER_TRY = 5
COMPARED = ("--backend", "deepspeed", "--size", "1M", "--iterations", "40")
#: Short iterations in turns of three: what another row leaves takes milliseconds, whatever an iteration takes.
SHORT = ("--backend", "deepspeed", "--backend", "megatron", "--new-tokens", "2", "--turn-length", "3")
PLACED = {
    "cached": ("--size", "1M", "--iterations", "900"),
    "vllm": ("--size", "1M-llama", "--iterations", "450", "--generation", "vllm"),
}
PLACED_STARTS = 3
#: Slows the iterations of whoever has it on its path: in their last timed phase, by a share of the time since their
#: first one began, which is after their turn has.
LOSS = """
import sys, time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class Slower(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "suite.worker.loop":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            loop, began = module.Loop, [0.0]
            generate, train = loop._generate, loop._train

            def first(self, *given):
                began[0] = time.perf_counter()
                return generate(self, *given)

            def lose(self, *given):
                found = train(self, *given)
                until = began[0] + (time.perf_counter() - began[0]) / {kept}
                while time.perf_counter() < until:
                    pass
                return found

            loop._generate, loop._train = first, lose

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Slower())
"""


def python_at(folder: Path, kept: float) -> Path:
    """An interpreter like this one, whose iterations run at this share of their rate."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(LOSS.replace("{kept}", str(kept)))
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexport PYTHONPATH="{folder}:$PYTHONPATH"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def measure(runs: Path, starts: int, *options: str) -> float:
    """Seconds that ``suite run`` took for so many starts of small models on one rank."""
    suite = Path(sys.executable).with_name("suite")
    command = [str(suite), "run", "--ranks", "1", "--start", "fork", *options]
    began = time.monotonic()
    subprocess.run([*command, "--repeats", str(starts), "--runs", str(runs)], check=True)
    return time.monotonic() - began


def sides_of(runs: Path) -> tuple[list[Entry], list[Entry]]:
    """Runs of the first and of the second environment."""
    first, second = by_environment(read_entries([runs]))
    return list(first.entries), list(second.entries)


def outcomes(sides: tuple[Sequence[Entry], Sequence[Entry]], tries: int) -> Counter[str]:
    """How the gate ended in each of so many tries."""
    starts = sorted({entry.record.turns.start for entry in sides[0] if entry.record.turns})
    draws, found = random.Random(SEED), Counter[str]()
    for _ in range(tries):
        chosen = set(draws.sample(starts, PER_TRY))
        before, after = (
            [one for one in side if one.record.turns and one.record.turns.start in chosen] for side in sides
        )
        _, gate = hold_to(compare_entries(before, after), GATE, strict=True, same_stack=True)
        found[gate.outcome] += 1
    return found


def ratio_of(before: Sequence[Entry], after: Sequence[Entry]) -> Interval:
    (row,) = compare_entries(before, after).rows
    return Interval(row.ratio, row.low, row.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=12)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path("build/turns-check"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, kept in {"A/A": 1.0, "a loss of 3 %": GATE}.items():
        place = folder / f"kept-{kept}"
        one, two = python_at(place / "one", 1.0), python_at(place / "two", kept)
        pythons = ("--python", f"before={one}", "--python", f"after={two}", "--same-stack")
        seconds = measure(place / "runs", options.starts, *COMPARED, *pythons)
        found = sides_of(place / "runs")
        told = ", ".join(f"{word} {count}" for word, count in outcomes(found, options.tries).most_common())
        print(
            f"{name}: ratio {interval(ratio_of(*found))} from {options.starts} starts in {seconds:.0f} s; "
            f"{options.tries} tries of {PER_TRY} starts ({PER_TRY * seconds / options.starts:.0f} s each): {told}",
            flush=True,
        )
    for name, more in PLACED.items():
        if name == "vllm" and not find_spec("vllm"):
            print("vllm: not installed (make vllm)")
            continue
        seconds = measure(folder / name, PLACED_STARTS, *SHORT, *more)
        print(f"{name}: {PLACED_STARTS} starts in {seconds:.0f} s; first iterations of turns over later ones:")
        for rates, ratio in by_place(folder / name).items():
            print(f"  {rates}: {ratio}", flush=True)


def by_place(runs: Path) -> dict[str, str]:
    """Rates of each engine, and of one over the other, in the iterations that follow another row's turn, over those in
    the iterations that follow one of the same row, as those of a run alone do."""
    starts: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for entry in read_entries([runs]).entries:
        turns, seconds = entry.record.turns, entry.record.iterations.seconds
        assert turns is not None, "turns were asked for"
        begins = [first for first in turns.begins if first > entry.record.steady_state.warmup]
        starts[turns.start][entry.manifest.backend.name] = [
            math.log(mean_of(seconds[first + 1 : next_one]) / seconds[first]) for first, next_one in pairwise(begins)
        ]
    sides = {name: [each[name] for each in starts.values()] for name in ("deepspeed", "megatron")}
    ratios = [
        [one - other for one, other in zip(*both, strict=True)] for both in zip(*reversed(sides.values()), strict=True)
    ]
    return {name: _of_turns(values) for name, values in {**sides, "megatron over deepspeed": ratios}.items()}


def _of_turns(starts: Sequence[Sequence[float]]) -> str:
    pair = pair_of(starts)
    assert pair is not None, "there are starts and turns enough"
    low, high = pair.difference(dispersion([pair])).interval()
    return f"{interval(Interval(math.exp(pair.mean), low, high))} in {pair.turns} turns"


if __name__ == "__main__":
    main()
