"""Ablations: a method with one thing left out or exchanged, by name.

    method, graph = ablated(load_method("collab"), "no-cr", graph="team")

An ablation is applied over a preset and before settings of one's own, so that it differs from the full method in
exactly one thing, and both can be given the same settings. One that would change nothing is refused, and so is a
setting of what it changed: two arms of a comparison would be the same arm, or not what the record calls them.

Source: CollabUIAgents, table 3 (w/o CR, PO → RFT, w/o edge update, single-agent systems); the pair sources and the
anchor are ours. The untrained team is none of these, because nothing is trained: `collab eval` plays it, and epoch 0 of
every training measures it on the held-out seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collab.config import override
from collab.errors import ConfigError, UnknownName
from collab.marl.config import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """What is different."""

    description: str
    settings: tuple[str, ...] = ()
    """Overrides of the method."""
    graph: str | None = None
    """Graph that is played in place of the one that was asked for; None for that one."""

    @property
    def told(self) -> str:
        """What it stands for, as one would set it."""
        return ", ".join((*self.settings, *([f"graph {self.graph}"] if self.graph else [])))


ABLATIONS: dict[str, Ablation] = {
    "no-cr": Ablation(
        description="no credit re-assignment: DPO between whole trajectories, solved against unsolved",
        settings=("objective=trajectory-dpo", "pairs.anchors=0", "pairs.until_error=false"),
    ),
    "rft": Ablation(
        description="rejective fine-tuning in place of preferences: learn the rewarded replies, compare with nothing",
        settings=("objective=rft", "pairs.anchors=0"),
    ),
    "no-edge-update": Ablation(
        description="one graph in every epoch, the declared one or one draw of it, instead of edges drawn anew",
        settings=("edges=null",),
    ),
    "single-agent": Ablation(
        description="one agent that hears nobody, on the graph single; nobody disagrees, so worse sides are made up",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
        graph="single",
    ),
    "adversary-pairs": Ablation(
        description="worse sides from the adversary alone, as in the paper",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
    ),
    "contrast-pairs": Ablation(
        description="worse sides from the team's own disagreement alone",
        settings=("pairs.adversary=0", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "correction-pairs": Ablation(
        description="cells that erred learn what a rewarded one said, under their own input",
        settings=("pairs.adversary=0", "pairs.contrast=0", "pairs.correction=1"),
    ),
    "mixed-pairs": Ablation(
        description="worse sides from the adversary and from disagreement, half and half",
        settings=("pairs.adversary=1", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "all-steps": Ablation(
        description="episodes teach to their end, not up to their first error",
        settings=("pairs.until_error=false",),
    ),
    "anchor": Ablation(
        description="the loss holds on to the likelihood of chosen replies, with weight 5",
        settings=("dpo.anchor=5",),
    ),
    "no-anchor": Ablation(
        description="plain DPO: nothing holds on to the likelihood of chosen replies",
        settings=("dpo.anchor=0", "pairs.anchors=0"),
    ),
}
"""By name, in the order in which they are listed."""


UNTRAINED = "untrained-team"
"""What is measured beside them and is none, because nothing is trained."""


def check_settings(name: str, settings: Sequence[str]) -> None:
    """ConfigError where a setting says anew what an ablation is about, in part or as a whole."""
    ablation = ABLATIONS[name]
    own = [one.partition("=")[0] for one in ablation.settings] + (["run.graph"] if ablation.graph else [])
    for setting in settings:
        path = setting.partition("=")[0]
        if any(f"{one}.".startswith(f"{other}.") for key in own for one, other in ((path, key), (key, path))):
            raise ConfigError(
                f"--set {setting}: --ablation {name} stands for {ablation.told}; leave out one of the two"
            )


def ablated(method: Method, name: str, *, graph: str) -> tuple[Method, str]:
    """The method and the graph with that one difference.

    Args:
        graph: that would be played without it.

    Raises:
        UnknownName: no ablation has that name, or it is the untrained team.
        ConfigError: the method is like that already, or does not bear the difference.
    """
    if name == UNTRAINED:
        raise UnknownName(
            f"--ablation {name}: nothing is trained in it, so it is played: collab eval --agents NAME with the agents "
            "that training begins with, or --agents RUN@epoch0 of any training, whose epoch 0 is that team"
        )
    if name not in ABLATIONS:
        raise UnknownName.of("ablation", name, ABLATIONS)
    ablation = ABLATIONS[name]
    changed, played = override(method, ablation.settings), ablation.graph or graph
    if (changed, played) == (method, graph):
        raise ConfigError(
            f"--ablation {name}: changes nothing, the method has {ablation.told} already; choose another preset"
        )
    return changed, played
