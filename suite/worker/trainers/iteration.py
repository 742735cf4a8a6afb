"""What the hooks of all trainers share on a rank: the iteration that is under way, and clocks around what is called."""

import functools
import math
from collections import defaultdict
from typing import Any, Callable, DefaultDict, Dict, List, Optional, Tuple

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock

#: a phase, and whether more pieces of it follow
Piece = Tuple[str, bool]


class IterationState:
    """``tally`` counts its work, ``on_end`` is called at its end. ``iteration`` is its number, -1 before the first."""

    def __init__(self, tally: Any, on_end: Callable[[], None] = lambda: None) -> None:
        self.clock = NullClock()
        self.tally, self._on_end = tally, on_end
        self.iteration = -1
        #: whether samples are still made and scored, and not yet trained on
        self.collecting = False
        #: by name, what the stack itself says of the iteration
        self.logged: Dict[str, Any] = {}
        #: by name, numbers noted one by one, or tensors still being computed
        self.values: DefaultDict[str, List[Any]] = defaultdict(list)

    def begin(self) -> None:
        self.iteration += 1
        self.tally.clear()
        self.logged.clear()
        self.values.clear()
        self.collecting = True
        self.clock.begin(self.iteration)

    def end(self) -> None:
        self.clock.stop()
        self._on_end()

    def mean(self, name: str) -> float:
        """Of the values; NaN where there are none."""
        values = self.values[name]
        return sum(map(float, values)) / len(values) if values else math.nan

    def check_all_ran(self, stack: str, iterations: int) -> None:
        """Raise ConfigError unless so many were begun."""
        if self.iteration + 1 != iterations:
            raise ConfigError("{} ran {} iterations of {}".format(stack, self.iteration + 1, iterations))

    def phased(
        self, function: Callable[..., Any], phase: str, more: bool = False, detail: Optional[str] = None
    ) -> Callable[..., Any]:
        """The function, of which each call is a piece of ``phase``, and of ``detail`` in it (``NullClock.phase``)."""
        inner = function if detail is None else self.detailed(function, detail)
        return self.placed(inner, lambda *_, **__: (phase, more))

    def placed(self, function: Callable[..., Any], where: Callable[..., Optional[Piece]]) -> Callable[..., Any]:
        """The function, of which a call is the piece that ``where`` says of its arguments; None: of no phase."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            piece = where(*arguments, **options)
            if piece is None:
                return function(*arguments, **options)
            with self.clock.phase(*piece):
                return function(*arguments, **options)

        return timed

    def detailed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.clock.detail(name):
                return function(*arguments, **options)

        return timed

    def time_steps(self, accelerator: Any, stepper: Any, norm: Callable[[], Any] = lambda: None) -> None:
        """Clocks around Accelerate's backward, in which DeepSpeed's engine steps, and around ``stepper``'s steps, which
        are counted. ``norm``: of the last step's gradient, where it can be asked for."""
        accelerator.backward = self.detailed(accelerator.backward, "train/backward")
        stepper.step = self.detailed(stepper.step, "train/optimizer")

        def count(*_: Any, **__: Any) -> None:
            self.tally.optimizer_steps += 1
            found = norm()
            if found is not None:
                self.values["gradient_norm"].append(float(found))

        after(stepper, "step", count)


def before(owner: Any, name: str, do: Callable[..., Any]) -> None:
    """Have this object, or module, call ``do`` with the arguments of each call of what has this name, ahead of it."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        do(*arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, wrapped)


def after(owner: Any, name: str, do: Callable[..., Any]) -> None:
    """As ``before``, once the call is over: with what it gave, and then with its arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        given = function(*arguments, **options)
        do(given, *arguments, **options)
        return given

    setattr(owner, name, wrapped)


def finite(statistics: Dict[str, Any]) -> Dict[str, Optional[float]]:
    """Numbers as an event has them: null where there is none, or none that is finite."""
    return {
        name: float(value) if value is not None and math.isfinite(value) else None for name, value in statistics.items()
    }
