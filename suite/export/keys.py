"""The columns that every table begins with: which run a row is of, and what runs are grouped and chosen by."""

from __future__ import annotations

from typing import get_args

from suite.bundle.noise_model import Validity
from suite.bundle.record import Status
from suite.export.columns import Column, of_manifest, of_record, part

EXPORT_SCHEMA = "suite/export/1"
STATUSES: tuple[str, ...] = get_args(Status)
VALIDITIES: tuple[str, ...] = get_args(Validity.model_fields["status"].annotation)
_VERSION = "version of the columns and their meaning"
_ALGORITHM = "its name, with the options that are not its defaults"
_VALIDITY = (
    "`suspect`: something disturbed the run; `invalid`: its figures cannot be; null: nothing is known, as of a run "
    "without iterations that count and of an older bundle"
)
_DIGEST = "SHA-256 over the bundle's evidence; null: it holds what is no plain file"


def _key(name: str, meaning: str, values: tuple[str, ...] = ()) -> Column:
    """A text of the record's facts of the run."""
    return Column(name, "text", "", meaning, part("run", name), True, values)


KEYS: tuple[Column, ...] = (
    Column("schema", "text", "", _VERSION, lambda source: EXPORT_SCHEMA, True, (EXPORT_SCHEMA,)),
    Column("run", "text", "", "id of the run", part("run", "id"), True),
    Column("path", "text", "", "of the bundle, as it was found", lambda source: source.entry.path, True),
    _key("backend", "the stack under test"),
    _key("size", "name of the model size"),
    Column("ranks", "integer", "", "processes of the run", part("run", "ranks"), True),
    Column("layout", "text", "", "how ranks share the work, in short", of_manifest(lambda it: it.layout.label()), True),
    Column("algorithm", "text", "", _ALGORITHM, of_manifest(lambda it: it.workload.algorithm.text()), True),
    _key("workload", "its name"),
    _key("device", "what ranks compute on", ("cpu", "cuda")),
    _key("precision", "of the run"),
    Column("repeat", "integer", "", "which repeat of its row, from 1", part("run", "repeat"), True),
    Column("status", "text", "", "how the run ended", of_record(lambda record: record.status), True, STATUSES),
    Column("validity", "text", "", _VALIDITY, part("validity", "status"), values=VALIDITIES),
    _key("manifest_hash", "equal: repeats of one row"),
    _key("work_hash", "equal: did equal work"),
    Column("digest", "text", "", _DIGEST, lambda source: source.entry.digest),
)
