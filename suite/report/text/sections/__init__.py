"""The sections of the report: one module each, whose ``SECTION`` is shown where ``ORDER`` names it."""

from __future__ import annotations

from importlib import import_module

from suite.report.text.section import Section

ORDER = (
    "ranking",
    "side_by_side",
    "apart",
    "throughput",
    "phases",
    "without_scoring",
    "scaling",
    "memory",
    "energy",
    "failures",
    "imported",
    "generation",
    "asynchronous",
    "predicted",
    "memory_by_phase",
    "lengths",
    "network",
    "work",
    "stacks",
    "caveats",
    "measured_on",
    "conventions",
    "reproduce",
)

SECTIONS: tuple[Section, ...] = tuple(import_module(f"{__name__}.{name}").SECTION for name in ORDER)
