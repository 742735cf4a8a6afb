"""What a record counts in: numbers that events may hold, and peaks of memory."""

from typing import Annotated

from pydantic import Field

from suite.spec.base import Frozen

#: As events have them: beyond these a number is a mistake, an exabyte or thirty years.
MOST_COUNT, LEAST_SECONDS, MOST_SECONDS = 1 << 60, 1e-9, 1e9
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]


class Peaks(Frozen):
    """Peaks of device (and resident) memory in bytes; null where there is nothing to ask."""

    peak_allocated_bytes: Bytes | None = Field(description="on CPU: resident less what was before the model")
    peak_reserved_bytes: Bytes | None = Field(description="by the caching allocator; null on CPU")
    peak_device_bytes: Bytes | None = Field(description="used on the whole device; null on CPU")
    peak_resident_bytes: Bytes | None = Field(description="resident set of the rank's process in host memory")
