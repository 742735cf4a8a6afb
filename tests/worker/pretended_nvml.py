"""NVIDIA's library as its Python binding has it, with answers that a test gives."""

from functools import partial
from typing import Any


class NVMLError(Exception):
    """The binding's own."""


UNSUPPORTED = NVMLError("not supported")


class PretendedNvml:
    """``nvmlDeviceGetX`` gives the answer X: a function is called, an exception raised; None: there is no such call."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, **answers: Any) -> None:
        for name, answer in answers.items():
            if answer is not None:
                setattr(self, f"nvmlDeviceGet{name}", partial(self._ask, answer))

    def _ask(self, answer: Any, *arguments: Any) -> Any:
        told = answer(*arguments) if callable(answer) else answer
        if isinstance(told, Exception):
            raise told
        return told
