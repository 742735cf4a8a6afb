"""The manifest's rewards as an environment of SkyRL's gym. Imported in SkyRL's processes alone."""

from typing import Any, Dict, Optional

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from suite.worker.trainers.logged.inputs import Rewards, manifest_of_run

_rewards: Optional[Rewards] = None


def rewards() -> Rewards:
    """Of this process, in which all samples are scored."""
    global _rewards
    if _rewards is None:
        _rewards = Rewards(manifest_of_run())
    return _rewards


class NumberedEnvironment(BaseTextEnv):  # type: ignore[misc]
    """One sample: it ends with its response, and has the manifest's score."""

    def __init__(self, env_config: Any = None, extras: Optional[Dict[str, Any]] = None) -> None:
        super().__init__()
        row = extras or {}
        self._iteration, self._number = int(row["iteration"]), int(row["number"])

    def step(self, action: str) -> Any:
        score = rewards().next(self._iteration, self._number)
        return BaseTextEnvStepOutput(observations=[], reward=score, done=True, metadata={})
