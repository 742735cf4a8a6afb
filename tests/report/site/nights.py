"""Results of many nights: the same rows measured again and again, each night in a folder of its own."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import tests.synthetic
from suite.bundle.derive import derive
from suite.bundle.store import Bundle, written
from tests.synthetic import BEGAN, HOUR, facts_of, make_bundle, synthetic_manifest

DAY = 24 * HOUR


def night(
    root: Path, number: int, seconds=1.0, repeats=3, commit="", manifest=None, facts=None, failure=None, **asked: Any
) -> list[Path]:
    """The runs of one night below ``root/night-N``: rates spread by 1 % from night to night and from run to run."""
    paths = []
    with patch.object(tests.synthetic, "BEGAN", BEGAN + DAY * number):
        for repeat in range(1, repeats + 1):
            made = manifest or synthetic_manifest(repeat=repeat, **asked)
            noise = Random(f"{number} {repeat} {made.run.id} {facts}")
            mean = seconds * (1 + Random(f"{number} {made.hash}").gauss(0, 0.01)) * (1 + noise.gauss(0, 0.01))
            count = made.measure.warmup + made.measure.iterations
            path = make_bundle(
                root / f"night-{number:03}",
                made,
                [mean * (1 + noise.gauss(0, 0.01)) for _ in range(count)],
                facts=facts or facts_of(made),
                **({"status": "failed", "completed": 1, "failure": failure} if failure else {}),
            )
            bundle = Bundle(path)
            bundle.write_environment({"suite_version": "1.0", "git_commit": commit or "a" * 40})
            (path / "record.json").write_text(written(derive(bundle)))
            paths.append(path)
    return paths


def nights(root: Path, seconds: Sequence[float], commits: Sequence[str] = (), **asked: Any) -> list[Path]:
    """One night after the other, with its mean seconds of an iteration and its commit."""
    paths = []
    for number, mean in enumerate(seconds):
        paths += night(root, number, mean, commit=commits[number] if commits else "", **asked)
    return paths
