"""The columns that every table begins with: which run a row is of, and what runs are grouped and chosen by."""

from __future__ import annotations

from typing import get_args

from suite.bundle.noise_model import Validity
from suite.bundle.record import Status
from suite.export.columns import Column
from suite.export.readers import of_record, part

EXPORT_SCHEMA = "suite/export/1"
STATUSES: tuple[str, ...] = get_args(Status)
VALIDITIES: tuple[str, ...] = get_args(Validity.model_fields["status"].annotation)


def _key(name: str, meaning: str, values: tuple[str, ...] = ()) -> Column:
    """A text of the record's facts of the run."""
    return Column(name, "text", "", meaning, part("run", name), required=True, values=values, is_key=True)


KEYS: tuple[Column, ...] = (
    Column(
        "schema",
        "text",
        "",
        "version of the columns and their meaning",
        lambda source: EXPORT_SCHEMA,
        required=True,
        values=(EXPORT_SCHEMA,),
    ),
    Column("run", "text", "", "id of the run", part("run", "id"), required=True, is_key=True),
    Column(
        "path",
        "text",
        "",
        "of the bundle, as it was found",
        lambda source: source.entry.path,
        required=True,
        is_key=True,
    ),
    _key("backend", "the stack under test"),
    _key("size", "name of the model size"),
    Column("ranks", "integer", "", "processes of the run", part("run", "ranks"), required=True, is_key=True),
    Column(
        "layout",
        "text",
        "",
        "how ranks share the work, in short",
        lambda source: source.entry.manifest.layout.label(),
        required=True,
        is_key=True,
    ),
    Column(
        "algorithm",
        "text",
        "",
        "its name, with the options that are not its defaults",
        lambda source: source.entry.manifest.workload.algorithm.text(),
        required=True,
        is_key=True,
    ),
    _key("workload", "its name"),
    _key("device", "what ranks compute on", ("cpu", "cuda")),
    _key("precision", "of the run"),
    Column(
        "repeat", "integer", "", "which repeat of its row, from 1", part("run", "repeat"), required=True, is_key=True
    ),
    Column(
        "status",
        "text",
        "",
        "how the run ended",
        of_record(lambda record: record.status),
        required=True,
        values=STATUSES,
        is_key=True,
    ),
    Column(
        "validity",
        "text",
        "",
        "`suspect`: something disturbed the run; `invalid`: its figures cannot be; null: nothing is known, as of a run "
        "without iterations that count and of an older bundle",
        part("validity", "status"),
        values=VALIDITIES,
        is_key=True,
    ),
    Column("manifest_hash", "text", "", "equal: repeats of one row", part("run", "manifest_hash"), required=True),
    Column("work_hash", "text", "", "equal: did equal work", part("run", "work_hash"), required=True),
    Column(
        "digest",
        "text",
        "",
        "SHA-256 over the bundle's evidence; null: it holds what is no plain file",
        lambda source: source.entry.digest,
    ),
)
