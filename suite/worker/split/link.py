"""What crosses between the two sides: short words through a store, tensors through a process group."""

import json
import time
from datetime import timedelta
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist

from suite.worker.events import Progress, beat_seconds

_LEADER = 0


class Link:
    """One rank's end. Tensors go from or to the first training rank and all generation ranks; words reach every rank. A
    tensor is sent only when a word has told that both ends are there, so that no collective waits for the other side.
    """

    def __init__(
        self,
        store: Any,
        group: Any,
        generation_ranks: int,
        names: Tuple[str, str],
        silence_seconds: float,
        progress: Progress,
    ) -> None:
        """``group``: None on training ranks that hand nothing over. ``names``: of this side and of the other."""
        self._store, self._group, self.generation_ranks, self._progress = store, group, generation_ranks, progress
        self.carries_tensors = group is not None
        self._own, self._other = names
        self._silence_seconds = silence_seconds
        self._every = beat_seconds(silence_seconds)
        self._pulsed_at = time.monotonic()

    def watch(self, *models: torch.nn.Module) -> None:
        """Forward calls of these models tell the other side, while it waits, that this one works."""
        for model in models:
            model.register_forward_hook(lambda *_: self.pulse())

    def publish(self, word: str, **facts: Any) -> None:
        """Say a word that was not said before, with what belongs to it."""
        self._store.set(word, json.dumps(facts))

    def wait(self, word: str) -> Dict[str, Any]:
        """Wait for a word of the other side and return its facts. Raises RuntimeError when that side shows no sign of
        work for as long as a run may be silent."""
        seen, since = self._pulse(), time.monotonic()
        while not self._is_there(word):
            now = self._pulse()
            if now != seen:
                seen, since = now, time.monotonic()
                self._progress.beat()
            elif time.monotonic() - since > self._silence_seconds:
                told = "the {} side timed out after {:g} s without a sign of the {} side, which was to tell {!r}"
                raise RuntimeError(told.format(self._own, self._silence_seconds, self._other, word))
        return json.loads(self._store.get(word))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """The first training rank's tensor into those of the generation ranks, in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = _LEADER, 0
        self._group.broadcast([tensor], options).wait()

    def send(self, tensor: torch.Tensor) -> None:
        self._group.send([tensor.contiguous()], _LEADER, 0).wait()

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        """On the first training rank: what a generation rank (counted on its side) sends, in place."""
        self._group.recv([tensor], rank + 1, 0).wait()

    def _is_there(self, word: str) -> bool:
        """Whether a word comes within the time between two signs of life. Raises RuntimeError where the store is gone,
        which is in the process of rank 0 or of the launcher."""
        try:
            self._store.wait([word], timedelta(seconds=self._every))
        except RuntimeError:  # it did not come, or there is nobody to ask any more
            try:
                return bool(self._store.check([word]))
            except RuntimeError as error:
                raise RuntimeError("Connection closed by peer: nobody keeps what the sides tell any more") from error
        return True

    def _pulse(self) -> int:
        return int(self._store.add("pulse/" + self._other, 0))

    def beat(self) -> None:
        """As ``Progress.beat``, of work that beats by itself and that the other side is to know of too."""
        self._progress.beat()
        self.pulse()

    def pulse(self) -> None:
        """Tell the other side, now and then, that this one works."""
        if time.monotonic() - self._pulsed_at >= self._every:
            self._store.add("pulse/" + self._own, 1)
            self._pulsed_at = time.monotonic()
