"""``python -m tests.faults.soak``: does a driver stay as it was run after run, and what do huge bundles take?

While a plan of many runs is worked through, the driver (with the process that it forks ranks from) is looked at after
each: resident memory, open descriptors, the time of the run and what of it the driver computed itself, what it has left
on disk and in the folder for temporary files. Each must be flat over the plan, by the slope of a straight line through
means of blocks of runs and its 95 % interval: one run resembles the one before it, a block's mean hardly.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, linear_regression

import psutil

from benchmarks.report_speed import measure
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.conduct.running.provenance import git_commit
from suite.launch.probe import host_facts
from suite.spec.layout import Layout
from suite.stats.quantiles import student_quantile
from tests.containers import scripted_suite
from tests.faults.page import PAGE, put
from tests.faults.run import LAUNCHERS, Launcher, set_apart
from tests.faults.scene import ROOT, Scene, scripted_command, suite_command
from tests.synthetic import make_bundle, synthetic_manifest

BEGIN, END = "<!-- written by make soak -->", "<!-- end of what make soak writes -->"
RESULTS = ROOT / "build" / "faults" / "soak.json"
#: so many means are what the line goes through; the first is left out, in which caches fill
BLOCKS = 21
#: fewer runs say nothing of growth
FEWEST_RUNS = 12
#: of the mean, that a figure may grow by over a whole plan
MOST_GROWTH = 0.05
LOOK_SECONDS = 0.02
WORK = ("--backend", "deepspeed", "--size", "1M", "--workload", "cpu", "--device", "cpu", "--force")
REPEATS = ("--ranks", "1", "--warmup", "1", "--iterations", "3", "--repeats")
SCRIPT = {"seconds": 0.005, "sleep": True}
#: a plan with stand-ins ends after these at the latest
MOST_SECONDS = 3 * 3600.0
RANKS = (64, 256, 1024)
THIS_HOST = Launcher(())


@dataclass(frozen=True)
class Figure:
    """One thing over a plan: its mean, its growth over all runs by the line, and what that says."""

    what: str
    mean: float
    growth: float
    low: float
    high: float
    verdict: str


def flatness(what: str, values: Sequence[float]) -> Figure:
    """Growth over all runs by least squares through the means of the blocks but the first, with Student's interval."""
    size = max(1, len(values) // BLOCKS)
    blocks = [fmean(values[start : start + size]) for start in range(0, len(values) - size + 1, size)][1:]
    places, mean, freedom = range(len(blocks)), fmean(values), len(blocks) - 2
    line = linear_regression(places, blocks)
    rest = sum((block - line.intercept - line.slope * place) ** 2 for place, block in enumerate(blocks))
    spread = sum((place - fmean(places)) ** 2 for place in places)
    half = student_quantile(freedom) * (rest / freedom / spread) ** 0.5
    growth, low, high = (slope * places[-1] for slope in (line.slope, line.slope - half, line.slope + half))
    allowed = MOST_GROWTH * mean
    verdict = "flat" if high <= allowed else ("grows" if low > allowed else "cannot tell")
    return Figure(what, mean, growth, low, high, verdict)


def watched(here: Scene, command: Sequence[str]) -> tuple[int, list[dict[str, float]]]:
    """Exit code of a driver, and a look at it after each of its runs: figures by what they are of."""
    driver = here.start(command)
    process, looks, last, computed = psutil.Process(driver.pid), [], time.monotonic(), 0.0
    seen: set[str] = set()
    while driver.poll() is None:
        time.sleep(LOOK_SECONDS)
        for record in set(_records(here.runs)) - seen:
            seen.add(record)
            with suppress(psutil.Error, OSError):
                family = [process, *(child for child in process.children(recursive=True) if _is_zygote(child))]
                now, processor = time.monotonic(), sum(sum(each.cpu_times()[:2]) for each in family)
                looks.append(
                    {
                        "resident memory, MiB": sum(each.memory_info().rss for each in family) / 2**20,
                        "open descriptors": sum(each.num_fds() for each in family),
                        "seconds of a run": now - last,
                        "processor seconds of the driver, a run": processor - computed,
                        "KiB of a bundle": _size(here.runs / record) / 1024,
                        "temporary files": len(list(here.tmp.iterdir())),
                    }
                )
                last, computed = now, processor
    return driver.returncode, looks


def _records(runs: Path) -> list[str]:
    """Ids of the runs that have their record."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(runs) if os.path.exists(os.path.join(entry.path, "record.json"))]
    return []


def _is_zygote(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "suite.worker.zygote" in process.cmdline()
    return False


def soaked(
    title: str, command: Sequence[str], limit_seconds: float = MOST_SECONDS, launcher: Launcher = THIS_HOST
) -> dict:
    """A plan's figures. ``command`` lacks the results folder."""
    launcher.restore()  # a soak that was killed has left its last run there
    began = time.monotonic()
    environment = {"SUITE_SCRIPT": json.dumps(SCRIPT), **launcher.environment}
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as place,
        closing(Scene(Path(place) / "plan", environment)) as here,
    ):
        here.looks |= launcher.looks
        code, looks = watched(here, [*command, "--budget", f"{limit_seconds:.0f}s", "--runs", str(here.runs)])
        left = here.left()
        said = here.output()[-400:]
    if code != 0 or len(looks) < FEWEST_RUNS:
        raise RuntimeError(f"{title}: exit code {code} after {len(looks)} runs: {said}")
    settled = looks[1:]  # the first run has the driver's start in it
    return {
        "title": title,
        "runs": len(looks),
        "minutes": (time.monotonic() - began) / 60,
        "figures": [asdict(flatness(what, [look[what] for look in settled])) for what in looks[0]],
        "left": {kind: found for kind, found in left.items() if found},
    }


def stand_in(options: argparse.Namespace) -> dict:
    """A plan of so many runs on this machine, whose rank is a stand-in."""
    command = scripted_command("run", *WORK, *REPEATS, str(options.runs))
    return soaked(f"{options.runs:,} runs with the stand-in worker", command)


def docker(options: argparse.Namespace) -> dict:
    """As ``stand_in``, each run in a container of its own."""
    command = scripted_suite("run", *WORK, *REPEATS, str(options.runs), script=SCRIPT)
    title = f"{options.runs:,} runs in containers of Docker, with the stand-in worker"
    with LAUNCHERS["docker"]() as launcher:
        return soaked(title, command, launcher=launcher)


def real(options: argparse.Namespace) -> dict:
    """Runs of one real rank for so long."""
    command = suite_command("run", *WORK, *REPEATS, "1000", "--start", "fork")
    title = f"Repeats with a real DeepSpeed rank for {options.minutes:g} minutes"
    return soaked(title, command, 60 * options.minutes)


def huge(options: argparse.Namespace) -> dict:
    """Verify and report of one bundle of so many ranks: seconds and peak memory of each."""
    rows = []
    for ranks in RANKS:
        layout = Layout(nodes=ranks // 8, devices_per_node=8, data=ranks)
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            root, folder = f"{place}/runs", Path(place)
            bundle = Bundle(make_bundle(Path(root), synthetic_manifest(layout=layout, iterations=10)))
            bundle.write_record(derive(bundle))
            size = _size(bundle.path)
            verify = measure(("verify", root), folder / "cache")
            report = measure(("report", root, "-o", f"{place}/report.md"), folder / "cache-report")
        rows.append({"ranks": ranks, "mib": size / 2**20, "verify": verify._asdict(), "report": report._asdict()})
    return {"rows": rows}


def _size(bundle: Path) -> int:
    return sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())


PLANS = {"stand-in": stand_in, "real": real, "docker": docker}
PARTS = {**PLANS, "bundles": huge}


def text(found: dict, host: dict) -> str:
    """The section of the page, of the parts that were measured."""
    cpu = host["cpu"]
    lines: list[str] = ["", f"{cpu['model']}, {cpu['cores'] or cpu['threads']} cores."]
    for name in PLANS:
        if name not in found:
            continue
        plan = found[name]
        left = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in plan["left"].items()) or "nothing"
        lines += [
            "",
            f"**{plan['title']}**: {plan['runs']:,} runs of one driver in {plan['minutes']:.1f} minutes, "
            f"{_when(plan)}. Left behind: {left}.",
            "",
            "| of the driver | mean | growth over all runs [95 %] | |",
            "|---|---:|---:|---|",
        ]
        lines += [
            f"| {one['what']} | {one['mean']:.3g} | {one['growth']:+.2g} [{one['low']:+.2g}, {one['high']:+.2g}] | "
            f"{one['verdict']} |"
            for one in plan["figures"]
        ]
    if "bundles" in found:
        lines += [
            "",
            f"**One huge bundle**, each command once in a process of its own, {_when(found['bundles'])}:",
            "",
            "| ranks | MiB of events | verify | report |",
            "|---:|---:|---:|---:|",
        ]
        for row in found["bundles"]["rows"]:
            cells = [
                f"{row[name]['processor']:.1f} s, {row[name]['megabytes']:.0f} MB" for name in ("verify", "report")
            ]
            lines.append(f"| {row['ranks']:,} | {row['mib']:.1f} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _when(part: dict) -> str:
    return f"{part['day']}, commit {part['commit']}, load {part['load']:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where nothing that was measured now grows and nothing is left."""
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=60, help="of repeats with real ranks")
    parser.add_argument("--runs", type=int, default=1000, help="of the plans with the stand-in worker")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="what is measured; others are kept")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    set_apart("tests.faults.soak")
    commit = subprocess.run(("git", "rev-parse", "--short=12", "HEAD"), cwd=ROOT, capture_output=True, text=True)
    does_grow = False
    for name in options.parts:
        made = PARTS[name](options)
        made |= {"day": time.strftime("%Y-%m-%d", time.gmtime()), "load": os.getloadavg()[2]}
        made["commit"] = commit.stdout.strip() or git_commit()
        print(json.dumps({name: made}), flush=True)
        does_grow |= bool(made.get("left")) or any(one["verdict"] == "grows" for one in made.get("figures", ()))
        # read now: another part may have been measured beside this one
        found = json.loads(options.results.read_text()) if options.results.exists() else {}
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps({**found, name: made}, indent=2) + "\n")
        put(options.page, BEGIN, END, text({**found, name: made}, host_facts()))
        print(f"wrote {options.page}")
    return int(does_grow)


if __name__ == "__main__":
    sys.exit(main())
