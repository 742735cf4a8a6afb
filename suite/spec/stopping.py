"""How narrow an interval is asked for, and how many runs it may take: the rule by which a row gets more runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen

#: With fewer a lucky spread of the first runs ends a row too soon: the rule's promise is kept from here on.
FEWEST_RUNS = 3


class Stopping(Frozen):
    """When a row has been run often enough. Shares of 1: 0.03 is 3 %."""

    precision: float | None = Field(
        default=None, gt=0, le=1, description="half-width of the 95 % interval of each row's rate, at most"
    )
    difference: float | None = Field(
        default=None, gt=0, le=1, description="rows of equal work are told apart, or are equivalent within this margin"
    )
    least: int = Field(ge=FEWEST_RUNS, le=1000, description="runs of every row before the first look")
    most: int = Field(ge=FEWEST_RUNS, le=1000, description="runs of a row, at most")
    iterations: Literal["fixed", "chosen"] = Field(
        description="chosen: those of the runs after the least ones follow from spread and start-up of these"
    )

    with_suspect: bool = Field(default=False, description="runs that something disturbed count too")

    @model_validator(mode="after")
    def _asks_for_something(self) -> "Stopping":
        if self.precision is None and self.difference is None:
            raise ValueError("a stopping rule needs a precision or a difference")
        if self.most < self.least:
            raise ValueError(f"--most-repeats {self.most} is fewer than --repeats {self.least}")
        return self

    def text(self) -> str:
        """What is asked for, in words."""
        asked = []
        if self.precision is not None:
            asked.append(f"each rate, or ratio of rows in turns, within {100 * self.precision:g} % (95 %)")
        if self.difference is not None:
            asked.append(f"rows told apart, or equivalent within {100 * self.difference:g} %")
        if self.with_suspect:
            asked.append("suspect runs count")
        return "; ".join(asked)
