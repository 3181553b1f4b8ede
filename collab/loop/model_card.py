"""Model cards: what exported weights are, what they were made from, and how often they solved their tasks.

A card is read far from the machine that wrote it, so it names checkpoints by their last name and by digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import collab
from collab.errors import ConfigError, UnknownName
from collab.evaluation import FEW, FEW_TOLD
from collab.learn.export import Source
from collab.library import BUILT_IN, LARGEST, checkpoint, load_yaml
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import algorithm_named
from collab.loop.layout import TrainingDir
from collab.loop.policy import first_policy
from collab.loop.record import EpochRecord, Success, records_until
from collab.models.vllm import largest_rank
from collab.plain import read_plain
from collab.wording import amount

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of weights."""

    what: str
    """One sentence."""
    base: str | None
    """The checkpoint that they were made from, as it was named; None where that is not recorded."""
    licence: str | None
    """What the base's card, or else their own, says; None where neither does."""
    lines: Mapping[str, str]
    """What → how, in the order of the card."""


def training_facts(
    folder: TrainingDir, config: TrainingConfig, head: Mapping[str, Any], number: int, group: str
) -> Facts:
    """Of a policy after an epoch of a training.

    Args:
        head: of the training.
        group: of the policy, as `TrainingConfig.groups` names it.
    """
    method, run, slots = config.method, config.run, config.groups[group]
    over = records_until(folder, number)
    base = first_policy(run, method).of(slots)
    who = f"all of {', '.join(slots)}" if len(slots) > 1 else slots[0]
    trained = f"after epoch {number} of a training by {config.algorithm}" if number else "before any training"
    return Facts(
        what=f"A policy of a team of language-model agents, {trained}. It plays {who} of the team "
        f"{', '.join(run.graph.slots)} in {run.environment_name}.",
        base=base,
        licence=licence_of(base),
        lines={
            "base": _told_base(base, head.get("base", {}).get(slots[0])),
            "method": f"{config.algorithm}, preset {config.called}: {method.policies} policies, "
            f"{algorithm_named(config.algorithm).describe(config)}, {_told_rates(method)}",
            "epochs": f"{number} of {method.epochs} planned",
            "data": _told_data(config, over, group),
            "success": _told_success(over[-1].success if over and over[-1].epoch == number else None, config),
        },
    )


def checkpoint_facts(source: Source) -> Facts:
    """Of a checkpoint or an adapter, from what was written beside it."""
    card = source.card
    base = source.base or (card.get("base") or {}).get("path")
    stage = card.get("stage")
    how = {None: "; how it was made is not recorded", "new": ", untrained: its weights are random"}
    lines = {"base": _told_base(base, (card.get("base") or {}).get("digest"))}
    if stage not in how:
        recipe = card.get("recipe") or {}
        rates = (("learning_rate", "learning rate"), ("final_norm_learning_rate", "learning rate of the last norm"))
        told = (("epochs", "epochs"), *rates, ("beta", "β"), ("context", "context"))
        sizes = [f"{name} {recipe[field]}" for field, name in told if recipe.get(field) is not None]
        digest = (card.get("data") or {}).get("digest")
        lines |= {
            "method": f"{stage}, preset {card.get('preset', UNKNOWN)}, {card.get('steps', UNKNOWN)} steps; "
            + ", ".join(sizes),
            "data": f"rows with digest `{digest[:12]}`" if digest else "made by the stage itself",
        }
    made = how.get(stage, f", fine-tuned ({stage})")
    return Facts(
        what=f"A language model for agents that operate phones and web pages{made}.",
        base=base,
        licence=(None if base is None else licence_of(base)) or licence_of(str(source.path)),
        lines={**lines, "success": "not measured by what made this directory"},
    )


def model_card(name: str, facts: Facts, *, digest: str, merged: bool, adapter: Path | None, agents: str) -> str:
    """`README.md` of a directory with weights, in Markdown with the front matter that model hubs read.

    Args:
        name: of the directory.
        digest: of its weights.
        merged: whether an adapter was added to the weights.
        adapter: directory of the adapter that the weights are; None for a whole checkpoint.
        agents: what `--agents` takes to play it.
    """
    front: dict[str, Any] = {
        "library_name": "transformers" if adapter is None else "peft",
        "pipeline_tag": "text-generation",
        "license": facts.licence or UNKNOWN,
        "tags": ["collab", "agents"],
    }
    if facts.base is not None and _is_hub_id(facts.base):
        front["base_model"] = facts.base
    lines = dict(facts.lines)
    kind = "a LoRA adapter for the base" if adapter is not None else "whole"
    lines["weights"] = f"{kind}{', a LoRA adapter added to the base' if merged else ''}; SHA-256 `{digest}`"
    lines["licence of the base"] = facts.licence or f"{UNKNOWN}: find out before you pass this on"
    table = "\n".join(f"| {what} | {how} |" for what, how in lines.items())
    return (
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n# {name}\n\n{facts.what}\n\n"
        f"| | |\n|---|---|\n{table}\n\n{_usage(adapter, _here(agents))}\n"
        f"Made by Collab {collab.__version__}.\n"
    )


def team_card(name: str, digests: Mapping[str, str], agents: str) -> str:
    """`README.md` of a directory with a policy per agent."""
    rows = "\n".join(f"| [{slot}]({slot}/README.md) | `{digest[:12]}` |" for slot, digest in digests.items())
    return (
        f"# {name}\n\nA team of language-model agents; each has weights of its own.\n\n"
        f"| agent | digest of its weights |\n|---|---|\n{rows}\n\n"
        f"They play with Collab by `--agents {_here(agents)}`, from this directory.\n\nMade by Collab "
        f"{collab.__version__}.\n"
    )


def licence_of(path: str) -> str | None:
    """What the card of a checkpoint says of its licence; None where there is no card here, or it says nothing.

    Args:
        path: directory, hub id or "built-in:NAME".
    """
    try:
        card = Path(checkpoint(path)) / "README.md"
    except UnknownName:
        return None
    try:
        text = read_plain(card, limit=LARGEST, follow=True).decode("utf-8", "replace")
        _, opened, rest = text.partition("---\n")
        front = load_yaml(rest.partition("\n---")[0])[0] if opened else None
    except (OSError, yaml.YAMLError):
        return None
    found = front.get("license") if isinstance(front, dict) else None
    return None if found in (None, UNKNOWN) else str(found)


# ------------------------------------------------------------------------------------------------------- helpers


def _told_base(base: str | None, digest: str | None) -> str:
    if base is None:
        return UNKNOWN if digest is None else f"digest `{digest[:12]}`"
    short = base if base.startswith(BUILT_IN) or _is_hub_id(base) else _name(Path(base))
    if not digest:
        return f"{short}, digest {UNKNOWN}"
    weights, _, adapter = digest.partition("+")
    over = f", with an adapter over it, digest `{adapter[:12]}`" if adapter else ""
    return f"{short}, digest `{weights[:12]}`{over}"


def _name(path: Path) -> str:
    """The name by which somebody knows a checkpoint: of a run's result that of the run."""
    return path.parent.name or path.name if path.name == "final" else path.name


def _told_rates(method: Method) -> str:
    last = method.recipe.final_norm_learning_rate
    falling = "" if method.rate_decay == 1 else f", times {method.rate_decay:g} from epoch to epoch"
    if method.grows_hotter:
        falling += "; later rollouts as hot as the first"
    if method.heat != 1:
        falling += f"; temperatures of rollouts times {method.heat:g}"
    norm = "" if last is None else f", of the last norm {last:g}"
    return f"learning rate {method.recipe.learning_rate:g}{norm}{falling}"


def _told_data(config: TrainingConfig, records: list[EpochRecord], group: str) -> str:
    run = config.run
    learned = algorithm_named(config.algorithm).describe_examples(config, records, group)
    split = "no split" if run.split is None else f"split {run.split.name}"
    return f"{config.size} an epoch in {run.environment_name} ({split}, seed {run.seeds}), {learned}"


def _told_success(success: Success | None, config: TrainingConfig) -> str:
    if success is None:
        return "not measured"
    seeds = ", ".join(str(one.seeds) for one in config.held_out)
    few = f" ({FEW_TOLD})" if success.episodes < FEW else ""
    sampled = f"; sampled at {success.sampled}" if success.sampled else ""
    return (
        f"{success.value:.1%} of {amount(success.episodes, 'episode')} of the whole team on held-out seeds ({seeds}), "
        f"by which the best epoch is chosen; 95 % interval {success.low:.1%} to {success.high:.1%}{few}{sampled}"
    )


def _is_hub_id(name: str) -> bool:
    """Whether a name is OWNER/NAME of a model hub and no place on this machine."""
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and not name.startswith((".", "~")) and not Path(name).exists()


def _here(agents: str) -> str:
    """The same names without the directory that they lie in: cards tell no places of a machine."""
    parts = [part.rpartition("=") for part in agents.split(",")]
    if len(parts) == 1:
        return Path(agents).name
    common = {Path(path).parent for _, _, path in parts}
    depth = 1 if len(common) == 1 else 2
    return ",".join(f"{slot}={'/'.join(Path(path).parts[-depth:])}" for slot, _, path in parts)


def _usage(adapter: Path | None, agents: str) -> str:
    if adapter is not None:
        load = (
            "base = AutoModelForCausalLM.from_pretrained(BASE)  # the base named above\n"
            'model = PeftModel.from_pretrained(base, ".")'
        )
        what, served = "from peft import PeftModel\n", _served(adapter)
    else:
        load, what, served = 'model = AutoModelForCausalLM.from_pretrained(".")', "", "$ vllm serve .\n"
    return (
        "From this directory:\n\n"
        f"```python\n{what}from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'{load}\ntokenizer = AutoTokenizer.from_pretrained(".")\n```\n\n'
        f"```console\n{served}$ collab rollout --agents {agents}\n```\n"
    )


def _served(adapter: Path) -> str:
    """The line that starts vLLM for an adapter, with a rank that bears it; empty where vLLM has none that does."""
    try:
        rank = largest_rank([adapter], None)
    except ConfigError:
        return ""
    return f"$ vllm serve BASE --enable-lora --max-lora-rank {rank} --lora-modules team=.\n"
