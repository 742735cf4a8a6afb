"""The JSON Schema of study.json: ``python -m suite.tune.schema`` writes the file that is published with the package."""

from __future__ import annotations

import json

from suite.bundle.schemas import of_model
from suite.spec.schema_files import FOLDER
from suite.tune.study import STUDY_SCHEMA, Study

FILE = FOLDER / "study.json"


def made() -> str:
    """Its text."""
    title = "study.json: a search for each stack's best layout, with every trial and the winners"
    return json.dumps(of_model(Study, STUDY_SCHEMA, title), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(made(), encoding="utf-8")
