"""This process's rank among all, read from the environment before anything heavy is imported."""

from typing import Mapping, NamedTuple

#: What torchrun sets for each rank; a launcher that starts ranks itself sets the same.
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
NUMBERS = LAUNCH_VARIABLES[:4]


class ConfigError(ValueError):
    """The run is not, or cannot be, what its manifest or its launcher asks for."""


class RankIdentity(NamedTuple):
    """Rank ``rank`` of ``world_size`` in all, and ``local_rank`` of ``local_world_size`` on this node."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def read_rank(environment: Mapping[str, str]) -> RankIdentity:
    """The rank that torchrun's variables give; with none of them set, a single rank.

    Raises ConfigError when only some are set, one is not a number, or a rank lies outside its world.
    """
    missing = [name for name in LAUNCH_VARIABLES if name not in environment]
    if not any(name in environment for name in NUMBERS):
        return RankIdentity(0, 1, 0, 1)
    if missing:
        raise ConfigError("the launcher set a rank but not {}".format(", ".join(missing)))
    texts = [environment[name] for name in NUMBERS]
    identity = RankIdentity(*(int(text) if text.isdecimal() else -1 for text in texts))
    if not 0 <= identity.rank < identity.world_size or not 0 <= identity.local_rank < identity.local_world_size:
        raise ConfigError("{} are {}, which makes no sense".format(", ".join(NUMBERS), ", ".join(texts)))
    return identity
