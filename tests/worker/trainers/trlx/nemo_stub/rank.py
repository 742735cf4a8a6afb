"""One rank of a run on the stand-ins: ``python rank.py MANIFEST --bundle FOLDER``."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.abspath(os.path.join(HERE, *[".."] * 5))]

from suite.worker import __main__ as worker  # noqa: E402
from suite.worker.trainers.trlx import nemo as trlx_nemo  # noqa: E402

# the stand-in is no checkout of trlx, which the worker would refuse
trlx_nemo.use_trlx = lambda: HERE

if __name__ == "__main__":
    worker.leave_process(worker.main())
