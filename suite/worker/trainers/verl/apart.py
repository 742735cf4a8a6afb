"""Stacks of the engines' environment that verl would import where it finds them, hidden from verl's processes.

verl asks for them by itself and uses none of them here: a TRL whose layout it does not know ends it, the others take
seconds of every process's start. Imported by verl's own door (``VERL_USE_EXTERNAL_MODULES``).
"""

import sys

from suite.worker.trainers.verl import HIDDEN

for _name in HIDDEN:
    # an import of it fails as where it is not installed; a process that has one keeps it
    sys.modules.setdefault(_name, None)
