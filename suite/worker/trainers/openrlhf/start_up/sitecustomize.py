"""In every process of a run on a CPU that finds this folder on its PYTHONPATH: Ray's workers and vLLM's engines."""

from suite.worker.trainers.openrlhf.cpu import install

install()
