"""Moving aside what is to be done again, and writing records that a driver died before."""

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from pathlib import Path

from suite.bundle.drafts import clear_drafts
from suite.bundle.files import writing
from suite.bundle.store import ATTIC, Bundle, DamagedBundle, HeldByAnother
from suite.bundle.walk import RECORD
from suite.conduct.planning.prediction import with_prediction
from suite.conduct.planning.request import RunState
from suite.conduct.running.state import judged
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest


def set_aside(root: Path, manifest: Manifest, is_to_do: Callable[[RunState], bool]) -> tuple[RunState, Path | None]:
    """Keep a bundle that is to be done again under ``attic/``; nothing is ever overwritten. How it was found, and where
    it is kept now; null where it was left.

    Whether it is to be done again is decided under the run's lock: until then another driver may have moved it, begun
    it or finished it. Raises UsageError when it cannot be moved.
    """
    path = root / manifest.run.id
    bundle = Bundle(path)
    try:
        with _held(bundle):
            state = judged(bundle, manifest, is_over=True)
            if not os.path.lexists(path):
                return "to run", None
            return state, _to_attic(root, bundle) if is_to_do(state) else None
    except UsageError as error:
        if not os.path.lexists(path):
            return "to run", None
        # it was moved away, and begun again since
        if isinstance(error, HeldByAnother) or isinstance(error.__cause__, FileNotFoundError):
            return "running", None
        raise


def write_missing_record(root: Path, manifest: Manifest) -> None:
    """That of a run that is over, whose driver died at the very end or found no room there; where it can be written."""
    bundle = Bundle(root / manifest.run.id)
    if os.path.lexists(bundle.path / RECORD):
        return
    from suite.bundle.derive import record_of

    with suppress(UsageError, DamagedBundle), bundle.hold():
        clear_drafts(bundle.path, (RECORD,))
        if not os.path.lexists(bundle.path / RECORD):
            bundle.write_record(with_prediction(record_of(bundle, is_over=True), manifest))


def put_back(root: Path, run_id: str, kept: Path) -> None:
    """Take back what ``set_aside`` did, unless the run was begun again meanwhile. Raises UsageError."""
    with writing(root / run_id):
        if not os.path.lexists(root / run_id):
            kept.rename(root / run_id)


def _held(bundle: Bundle) -> AbstractContextManager[None]:
    """A file in the place of a bundle has no lock, and nobody runs it. One that is gone is held in vain, and not left
    unlocked: another driver may begin it at any moment."""
    try:
        is_file = not stat.S_ISDIR(bundle.path.stat().st_mode)
    except OSError:
        is_file = bundle.path.is_symlink()
    return nullcontext() if is_file else bundle.hold()


def _to_attic(root: Path, bundle: Bundle) -> Path:
    """With its record, which a driver that died did not write."""
    from suite.bundle.derive import record_of

    with suppress(DamagedBundle):
        bundle.write_record(record_of(bundle, is_over=True))
    attic = root / ATTIC
    with writing(attic):
        attic.mkdir(exist_ok=True)
        places = (attic / f"{bundle.id}.{number}" for number in count(1))
        return bundle.path.rename(next(place for place in places if not place.exists()))
