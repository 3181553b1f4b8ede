"""The training that a team was taken from: its pairs may be rehearsed while the team learns something else.

origin = origin_of("runs/marl@last", method)  # None for agents files
"""

from __future__ import annotations

from collab.errors import ConfigError
from collab.marl.config import Method, Origin, read_training
from collab.marl.layout import MarlFolder
from collab.marl.policy import epoch_of, parse_policy


def origin_of(agents: str, method: Method) -> Origin | None:
    """Where the team comes from that `--agents` names; None where it names files.

    Raises:
        UsageError, RunFormatError: as `collab.marl.policy.agents_of`.
        ConfigError: its pairs are to be mixed in, and are no such pairs as this training learns from.
    """
    name = parse_policy(agents)
    if name is None:
        return None
    folder = MarlFolder(name.run)
    head, config = read_training(folder)
    theirs, own = (f"objective {one.objective}, policies {one.policies}" for one in (config.method, method))
    if method.older and theirs != own:
        raise ConfigError(
            f"older: {method.older:g} mixes pairs of {name.run} in, which has {theirs}, and this training {own}; "
            "set older=0, or train as it was trained"
        )
    return Origin(run=str(name.run.resolve()), epoch=epoch_of(name, folder, config, head))
