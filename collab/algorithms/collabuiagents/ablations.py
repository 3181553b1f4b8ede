"""Ablations of CollabUIAgents by name: each changes one thing of a preset.

Source: CollabUIAgents, table 3 (w/o CR, PO → RFT, w/o edge update, single-agent systems); the pair sources and the
anchor are ours. The untrained team is none of these, because nothing is trained: `collab eval` plays it, and epoch 0 of
every training measures it on the held-out seeds.
"""

from __future__ import annotations

from collab.loop.config import Ablation

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
