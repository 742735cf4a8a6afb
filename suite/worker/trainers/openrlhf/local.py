"""OpenRLHF's trainers are Ray actors; here they live in the process that leads, which calls the clock itself."""

from types import SimpleNamespace
from typing import Any, Tuple

import ray


class Ready(Exception):
    """Everything is built and the trainer is about to run."""


class Local:
    """In the place of an actor's class: ``remote`` makes an object of the class beneath it in this process."""

    def __init__(self, actor_class: Any, held: Tuple[str, ...] = ()) -> None:
        """``held``: methods that raise ``Ready`` where they are called remotely."""
        self._class = actor_class.__ray_metadata__.modified_class
        self._held = held
        self.made: Any = None

    def remote(self, *arguments: Any, **options: Any) -> "_Handle":
        self.made = self._class(*arguments, **options)
        return _Handle(self.made, self._held)


class _Handle:
    """What an actor's handle is asked for: methods with a ``remote``, whose answers lie in Ray's store."""

    def __init__(self, made: Any, held: Tuple[str, ...]) -> None:
        self._made, self._held = made, held

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any, **options: Any) -> Any:
            if name in self._held:
                raise Ready
            return ray.put(getattr(self._made, name)(*arguments, **options))

        return SimpleNamespace(remote=remote)
