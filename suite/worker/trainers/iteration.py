"""What the hooks of all trainers share on a rank: the iteration that is under way, clocks around what is called, and
the count of what was done, compared with the manifest."""

import functools
import itertools
import math
from collections import defaultdict
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, DefaultDict, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from suite.worker.asked import check_counts, sample_lengths
from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.world import World

#: arguments of ``NullClock.phase``
Piece = Tuple[Any, ...]


class IterationState:
    """``tally`` counts its work, ``on_end`` is called at its end. ``iteration`` is its number, -1 before the first."""

    def __init__(self, tally: Any, on_end: Callable[[], None] = lambda: None) -> None:
        self.clock = NullClock()
        self.tally, self._on_end = tally, on_end
        self.iteration = -1
        #: whether one is under way; whether its samples are still made and scored; whether they are trained on
        self.is_running = self.collecting = self.training = False
        #: by name, what the stack itself says of the iteration
        self.logged: Dict[str, Any] = {}
        #: by name, numbers noted one by one, or tensors still being computed
        self.values: DefaultDict[str, List[Any]] = defaultdict(list)

    def begin(self) -> None:
        self.iteration += 1
        self.tally.clear()
        self.logged.clear()
        self.values.clear()
        self.is_running = self.collecting = True
        self.clock.begin(self.iteration)

    def begin_training(self, *_: Any, **__: Any) -> None:
        """Of this iteration, at the first of all calls."""
        if self.collecting:
            self.collecting, self.training = False, True
            self.clock.open("train")

    def end_training(self, *_: Any, **__: Any) -> None:
        """At the first of all calls."""
        if self.training:
            self.training = False
            self.clock.close()

    def end(self) -> None:
        """Of the iteration, and of its training where that goes on."""
        self.end_training()
        self.is_running = False
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

    def phased(self, function: Callable[..., Any], phase: str, more: bool = False, alone: bool = False) -> Any:
        """The function, of which each call is a piece of ``phase`` (``NullClock.phase``)."""
        return self.placed(function, lambda *_, **__: (phase, more, alone))

    def placed(self, function: Callable[..., Any], where: Callable[..., Optional[Piece]]) -> Callable[..., Any]:
        """The function, of which a call is the piece that ``where`` says of its arguments; None: of no phase."""

        def entered(*arguments: Any, **options: Any) -> ContextManager[None]:
            piece = where(*arguments, **options)
            return nullcontext() if piece is None else self.clock.phase(*piece)

        return _within(entered, function)

    def in_turn(self, function: Callable[..., Any], *pieces: Piece) -> Callable[..., Any]:
        """The function, whose calls before training are these pieces in turn; in training it is of no phase."""
        turns = itertools.cycle(pieces)
        return self.placed(function, lambda *_, **__: next(turns) if self.collecting else None)

    def detailed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        return _within(lambda *_, **__: self.clock.detail(name), function)

    def time_steps(self, accelerator: Any, optimizer: Any, engine: Any = None) -> None:
        """Clocks around Accelerate's backward and around steps, which are counted: those of ``engine`` where that is
        DeepSpeed's, which steps inside of backward and is asked for the gradient's norm, else of ``optimizer``."""
        norm = getattr(engine, "get_global_grad_norm", None)
        stepper = optimizer if norm is None else engine
        accelerator.backward = self.detailed(accelerator.backward, "train/backward")
        stepper.step = self.detailed(stepper.step, "train/optimizer")

        def count(*_: Any, **__: Any) -> None:
            self.tally.optimizer_steps += 1
            found = None if norm is None else norm()
            if found is not None:
                self.values["gradient_norm"].append(float(found))

        after(stepper, "step", count)


def _within(entered: Callable[..., ContextManager[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, each call of which is in what ``entered`` gives of its arguments."""

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        with entered(*arguments, **options):
            return function(*arguments, **options)

    return timed


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


_SUMMED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")


class Tally:
    """Counts of one iteration on this rank. A rank that is not its replica's ``leader`` adds nothing to the sums."""

    def __init__(self, manifest: Dict[str, Any], world: World, leader: bool = True) -> None:
        self._workload, self._work = manifest["workload"], manifest["work"]
        self._prompts, self._responses = sample_lengths(self._workload, self._work)
        self._device, self._leader = world.device, leader
        self.clear()

    def clear(self) -> None:
        self.samples = self.prompt_tokens = self.response_tokens = self.padded_tokens = 0
        self.trained_tokens = self.optimizer_steps = 0

    def add_samples(self, prompts: torch.Tensor, responses: torch.Tensor, padding: int) -> None:
        """Finished samples: prompts [b, P] and responses [b, R], in which ``padding`` is the id of padding.

        Raises ConfigError where a length is not the one that was forced.
        """
        wanted = (self._workload["prompt_tokens"], self._workload["new_tokens"])
        if (prompts.size(1), responses.size(1)) != wanted or prompts.size(0) != responses.size(0):
            told = "{} prompts of {} tokens got {} responses of {}; {} + {} tokens were forced"
            raise ConfigError(told.format(*prompts.shape, *responses.shape, *wanted))
        padded = [int((tensor == padding).sum()) for tensor in (prompts, responses)]
        self.samples += prompts.size(0)
        self.prompt_tokens += prompts.numel() - padded[0]
        self.response_tokens += responses.numel() - padded[1]
        self.padded_tokens += sum(padded)

    def add_sample(self, number: int, prompt: int, response: int) -> None:
        """A finished sample by its number and lengths. Raises ConfigError where they are not those that were forced."""
        wanted = (self._prompts[number], self._responses[number])
        if (prompt, response) != wanted:
            told = "sample {} has {} + {} tokens, where {} + {} were forced"
            raise ConfigError(told.format(number, prompt, response, *wanted))
        self.samples += 1
        self.prompt_tokens += prompt
        self.response_tokens += response

    def add_trained(self, *masks: torch.Tensor) -> None:
        """Tokens, and padding between them, that a forward and backward pass reads; the device is not waited for."""
        tokens = sum(mask.sum() for mask in masks)
        self.trained_tokens = self.trained_tokens + tokens
        self.padded_tokens = self.padded_tokens + sum(mask.numel() for mask in masks) - tokens

    def counts(self, trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        """The iteration's counts over all replicas; collective. Raises ConfigError unless they are the manifest's."""
        own = torch.tensor([int(getattr(self, name)) for name in _SUMMED], device=self._device)
        own *= int(self._leader)
        dist.all_reduce(own)
        return self._checked(dict(zip(_SUMMED, own.tolist())), trainable_parameters, total_parameters)

    def own_counts(self, trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        """As ``counts``, of a rank that counts for all."""
        own = {name: getattr(self, name) for name in _SUMMED}
        return self._checked(own, trainable_parameters, total_parameters)

    def _checked(self, counts: Dict[str, int], trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        counts.update(trainable_parameters=trainable_parameters, total_parameters=total_parameters)
        counts["optimizer_steps"] = self.optimizer_steps
        check_counts(counts, self._workload, self._work)
        return counts
