"""Views of records: Markdown with pictures, a headline table, JSON."""

from suite.report.headline import as_json
from suite.report.model import ReportModel, build
from suite.report.output import WrittenReport, write
from suite.report.parts import Entry

__all__ = ["Entry", "ReportModel", "WrittenReport", "as_json", "build", "write"]
