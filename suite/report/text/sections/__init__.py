"""The sections of the report: one module each, whose ``SECTION`` is shown where ``ORDER`` names it."""

from __future__ import annotations

from importlib import import_module

from suite.report.text.section import Section

ORDER = (
    "ranking",
    "side_by_side",
    "apart",
    "caveats",
    "throughput",
    "predicted",
    "phases",
    "without_scoring",
    "generation",
    "asynchronous",
    "lengths",
    "memory",
    "energy",
    "scaling",
    "network",
    "imported",
    "failures",
    "measured_on",
    "work",
    "conventions",
    "reproduce",
)

SECTIONS: tuple[Section, ...] = tuple(import_module(f"{__name__}.{name}").SECTION for name in ORDER)
