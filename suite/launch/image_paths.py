"""Where the images of the suite hold what a run needs, whoever starts them."""

from __future__ import annotations

#: the stack's interpreter
PYTHON = "/opt/stack/bin/python"
#: the folder that makes suite.worker importable
PYTHON_PATH = "/opt/suite/src"
#: the folder of bundles, as the ranks see it
RUNS = "/work/runs"
