"""The record of an imported log: figures that another tool told, which nobody measured here."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from suite.bundle.imported.timers import Tool
from suite.bundle.parts import MOST_COUNT, MOST_SECONDS
from suite.spec.base import Frozen

IMPORT_SCHEMA: Final = "suite/import/1"
IMPORTED_SCHEMA: Final = "suite/imported/1"
#: Stands beside every figure of such a row.
MARK: Final = "imported, not measured here"
TOLD: Final = "told by the importer"
_SHA256 = r"^[0-9a-f]{64}$"
Source = Literal["the log", "told by the importer", "computed from the log"]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text


Bytes = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Rate = Annotated[float, Field(ge=0, le=MOST_COUNT)]
Tokens = Annotated[float, Field(gt=0, le=MOST_COUNT)]


class Told(Frozen):
    """What the log does not say, as the importer says it: nothing here was checked against anything."""

    model: Text
    devices: int = Field(ge=1, le=1 << 20, description="that the run had in all")
    device: Text | None = Field(default=None, description="what they are; null: not told")
    algorithm: Text | None = Field(default=None, description="null: not told")
    samples: int | None = Field(default=None, ge=1, le=MOST_COUNT, description="of one step; null: not told")
    prompt_tokens: Tokens | None = Field(default=None, description="of one sample, mean; null: not told")
    response_tokens: Tokens | None = Field(default=None, description="of one sample, mean; null: not told")
    tool_version: Text | None = Field(default=None, description="null: not told")
    source: Text | None = Field(default=None, description="where the log was published; null: not told")
    note: Text | None = Field(default=None, description="what else a reader must know; null: nothing")


class LogFacts(Frozen):
    """The log itself, which lies beside as ``source.log``."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=_SHA256)
    sha256_before: str | None = Field(
        default=None,
        pattern=_SHA256,
        description="before identity was scrubbed from it; null: it is as it was imported",
    )


class Import(Frozen):
    """import.json: what somebody imported, and how."""

    schema_: Literal["suite/import/1"] = Field(default=IMPORT_SCHEMA, alias="schema")
    suite_version: str = Field(description="that imported it")
    tool: Tool
    warmup: int = Field(ge=0, le=MOST_COUNT, description="steps left out at the start")
    told: Told
    log: LogFacts


class Steps(Frozen):
    """Steps of the log that tell their time. ``first`` and ``last`` by the log's own numbers."""

    found: int = Field(ge=1)
    warmup: int = Field(ge=0, description="left out at the start, as the importer said")
    counted: int = Field(ge=1)
    first: int = Field(ge=0, description="counted step")
    last: int = Field(ge=0, description="counted step")


class ImportedPhase(Frozen):
    """A phase by the tool's own timers, mean of the counted steps that tell it."""

    seconds: Seconds
    share: float | None = Field(
        ge=0, le=1, description="of the step; null: the timers overlap, or a counted step lacks this one"
    )


class ImportedCounts(Frozen):
    """Work of a step, means over the counted ones; null: neither the log nor the importer tells it."""

    samples: Tokens | None
    prompt_tokens: Tokens | None = Field(description="of all samples of a step")
    response_tokens: Tokens | None = Field(description="of all samples of a step")
    total_tokens: Tokens | None = Field(description="prompts and responses of all samples of a step")
    sources: dict[str, Source] = Field(description="where each of those that are known is from")


class ImportedThroughput(Frozen):
    """All work over all time of the counted steps. No interval: nothing is known of how these steps were chosen."""

    samples_per_second: Rate | None
    tokens_per_second: Rate | None = Field(description="prompts and responses")
    tokens_per_second_per_device: Rate | None


class ImportedMemory(Frozen):
    """The largest of the counted steps, as the tool logged it; null: not told."""

    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None


class ImportedRecord(Frozen):
    """record.json of an import. It is not ranked, not compared, and has no verdict."""

    schema_: Literal["suite/imported/1"] = Field(default=IMPORTED_SCHEMA, alias="schema")
    mark: Literal["imported, not measured here"] = MARK
    id: str
    tool: Tool
    form: Literal["console", "tracker"] = Field(description="which of the tool's logs it is")
    told: Told
    log: LogFacts
    steps: Steps
    step_seconds: float = Field(gt=0, le=MOST_SECONDS, description="mean of the counted steps")
    seconds: tuple[Annotated[float, Field(gt=0, le=MOST_SECONDS)], ...] = Field(
        description="of every step of the log, in order, warm-up first"
    )
    phases: dict[str, ImportedPhase] = Field(description="those that the log tells, and `other`")
    counts: ImportedCounts
    throughput: ImportedThroughput
    memory: ImportedMemory
    notes: tuple[str, ...] = Field(description="what a reader of the figures must know")


class ImportedRow(Frozen):
    """An import as it was found: its record derived now, its folder, and the digest over its evidence."""

    record: ImportedRecord
    path: str
    digest: str
