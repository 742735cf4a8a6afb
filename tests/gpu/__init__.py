"""What only a GPU can prove, and how it is judged (`make test-gpu`).

The checks that need a CUDA device are marked ``gpu`` (``test_device.py``, ``test_engines.py``). What they measure is
produced by ``rank.py`` in the stack's interpreter and judged by ``judge.py``. Both are exercised without a device too:
``test_rank.py`` gives the judge figures that are right and wrong, and runs the programs on a CPU, with the device's own
readings replaced by the host's.
"""
