"""Policies as directories for other programs: weights, a card, and the agents file that plays them.

    team = find("runs/marl@best")             # or a fine-tuning run, a checkpoint, an adapter, "built-in:NAME"
    done = export(team, Path("exported"), merge=False, dtype=None)
    done.agents                               # for --agents: "exported/agents.yaml"

A model card names weights, their base, and their success. It is read far from the machine that wrote it, so it names
checkpoints by their last name and by digest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import collab
from collab.config import AgentDefinition
from collab.errors import ConfigError, UnknownName, UsageError
from collab.evaluation.metrics import FEW, FEW_TOLD, describe_sampling
from collab.library import BUILT_IN, LARGEST, Library, load_yaml, resolve_checkpoint
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import load_algorithm, read_training
from collab.loop.policy import Policy, build_first_policy, load_policy
from collab.loop.record import FILE, EpochRecord, Success, TrainingDir, find_training_around, read_records
from collab.loop.trained import PolicyName, parse_policy, resolve_epoch
from collab.models.checkpoint_card import hash_weights
from collab.models.vllm import choose_largest_rank
from collab.models.weights import get_loader, read_config
from collab.trainers.export import (
    ExportWeights,
    Precision,
    WeightSource,
    find_context_length,
    load_export,
    open_source,
    write_export,
)
from collab.trainers.recipe import SHOWN
from collab.trainers.run_dir import FinetuneDir, report_save_errors
from collab.utils.files import read_plain, sync_directory, sync_files
from collab.utils.text import format_amount

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about weights, for their card."""

    what: str
    """One sentence."""
    base: str | None
    """The checkpoint that they were made from, as it was named; None if that is not recorded."""
    licence: str | None
    """From the base's card, or else their own; None if neither names one."""
    lines: Mapping[str, str]
    """Label → text, in the order of the card."""


def describe_training(
    folder: TrainingDir, config: TrainingConfig, head: Mapping[str, Any], number: int, group: str
) -> Facts:
    """Return the facts of a policy after an epoch of a training.

    Args:
        head: of the training.
        group: of the policy, as `TrainingConfig.groups` names it.
    """
    method, run, slots = config.method, config.run, config.groups[group]
    # Facts stop at this epoch: what later ones learned is not in its weights.
    over = read_records(folder, number)
    base = build_first_policy(run, method).of(slots)
    who = f"all of {', '.join(slots)}" if len(slots) > 1 else slots[0]
    trained = f"after epoch {number} of a training by {config.algorithm}" if number else "before any training"
    return Facts(
        what=f"A policy of a team of language-model agents, {trained}. It plays {who} of the team "
        f"{', '.join(run.graph.slots)} in {run.environment_name}.",
        base=base,
        licence=read_licence(base),
        lines={
            "base": _format_base(base, head.get("base", {}).get(slots[0])),
            "method": f"{config.algorithm}, preset {config.called}: {method.policies} policies, "
            f"{load_algorithm(config.algorithm).describe(config)}, {_format_rates(config)}",
            "epochs": f"{number} of {method.epochs} planned",
            "data": _format_data(config, over, group),
            # Only this epoch's own measurement: the next best would be another policy's.
            "success": _format_success(over[-1].success if over and over[-1].epoch == number else None, config),
        },
    )


def describe_checkpoint(source: WeightSource) -> Facts:
    """Return the facts of a checkpoint or an adapter, from the files beside it."""
    # Only what was written beside the weights: nothing is guessed about a checkpoint from elsewhere.
    card = source.card
    base = source.base or (card.get("base") or {}).get("path")
    stage = card.get("stage")
    # Two stages have no recipe to show; every other one does.
    how = {None: "; how it was made is not recorded", "new": ", untrained: its weights are random"}
    lines = {"base": _format_base(base, (card.get("base") or {}).get("digest"))}
    if stage not in how:
        recipe = card.get("recipe") or {}
        sizes = [f"{name} {recipe[field]}" for field, name in SHOWN.items() if recipe.get(field) is not None]
        digest = (card.get("data") or {}).get("digest")
        lines |= {
            "method": f"{stage}, preset {card.get('preset', UNKNOWN)}, {card.get('steps', UNKNOWN)} steps; "
            + ", ".join(sizes),
            "data": f"rows with digest `{digest[:12]}`" if digest else "made by the stage itself",
        }
    made = how.get(stage, f", fine-tuned ({stage})")
    # The licence of the base goes before that of the directory: derived weights stay under it.
    return Facts(
        what=f"A language model for agents that operate phones and web pages{made}.",
        base=base,
        licence=(None if base is None else read_licence(base)) or read_licence(str(source.path)),
        lines={**lines, "success": "not measured by what made this directory"},
    )


def format_model_card(
    name: str, facts: Facts, *, digest: str, merged: bool, adapter: Path | None, agents: str, loader: str
) -> str:
    """Format the `README.md` of a directory with weights, in Markdown with the front matter that model hubs read.

    Args:
        name: of the directory.
        digest: of its weights.
        merged: whether an adapter was added to the weights.
        adapter: directory of the adapter that the weights are; None for a whole checkpoint.
        agents: value of `--agents` that plays it.
        loader: transformers' class that loads it, or an adapter's base.
    """
    front: dict[str, Any] = {
        "library_name": "transformers" if adapter is None else "peft",
        "pipeline_tag": "image-text-to-text" if "Image" in loader else "text-generation",
        "license": facts.licence or UNKNOWN,
        "tags": ["collab", "agents"],
    }
    # Model hubs link a card to its base by id; a local path would lead nowhere.
    if facts.base is not None and _is_hub_id(facts.base):
        front["base_model"] = facts.base
    lines = dict(facts.lines)
    kind = "a LoRA adapter for the base" if adapter is not None else "whole"
    lines["weights"] = f"{kind}{', a LoRA adapter added to the base' if merged else ''}; SHA-256 `{digest}`"
    # Printed even if unknown: a publisher of the weights has to know that.
    lines["licence of the base"] = facts.licence or f"{UNKNOWN}: find out before you pass this on"
    table = "\n".join(f"| {what} | {how} |" for what, how in lines.items())
    return (
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n# {name}\n\n{facts.what}\n\n"
        f"| | |\n|---|---|\n{table}\n\n{_format_usage(adapter, _strip_folder(agents), loader)}\n"
        f"Made by Collab {collab.__version__}.\n"
    )


def format_team_card(name: str, digests: Mapping[str, str], agents: str) -> str:
    """Format the `README.md` of a directory with a policy per agent."""
    rows = "\n".join(f"| [{slot}]({slot}/README.md) | `{digest[:12]}` |" for slot, digest in digests.items())
    return (
        f"# {name}\n\nA team of language-model agents; each has weights of its own.\n\n"
        f"| agent | digest of its weights |\n|---|---|\n{rows}\n\n"
        f"They play with Collab by `--agents {_strip_folder(agents)}`, from this directory.\n\nMade by Collab "
        f"{collab.__version__}.\n"
    )


def read_licence(path: str) -> str | None:
    """Return the licence in the card of a checkpoint; None without a card here, or if it names none.

    Args:
        path: directory, hub id or "built-in:NAME".
    """
    # The licence is read from the card and never guessed from a name.
    try:
        card = Path(resolve_checkpoint(path)) / "README.md"
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


def _format_base(base: str | None, digest: str | None) -> str:
    if base is None:
        return UNKNOWN if digest is None else f"digest `{digest[:12]}`"
    short = base if base.startswith(BUILT_IN) or _is_hub_id(base) else _name(Path(base))
    if not digest:
        return f"{short}, digest {UNKNOWN}"
    weights, _, adapter = digest.partition("+")
    over = f", with an adapter over it, digest `{adapter[:12]}`" if adapter else ""
    return f"{short}, digest `{weights[:12]}`{over}"


def _name(path: Path) -> str:
    """Return the name of a checkpoint for people; the result of a run gets the run's name."""
    return path.parent.name or path.name if path.name == "final" else path.name


def _format_rates(config: TrainingConfig) -> str:
    method = config.method
    falling = "" if method.learning_rate_decay == 1 else f", times {method.learning_rate_decay:g} from epoch to epoch"
    falling += f"; rollouts sampled at {describe_sampling(config.as_explored.sampling)}"
    return f"learning rate {method.recipe.learning_rate:g}{falling}"


def _format_data(config: TrainingConfig, records: list[EpochRecord], group: str) -> str:
    run = config.run
    learned = load_algorithm(config.algorithm).describe_examples(config, records, group)
    split = "no split" if run.split is None else f"split {run.split.name}"
    return f"{config.size} an epoch in {run.environment_name} ({split}, seed {run.seeds}), {learned}"


def _format_success(success: Success | None, config: TrainingConfig) -> str:
    if success is None:
        return "not measured"
    seeds = ", ".join(str(one.seeds) for one in config.held_out)
    few = f" ({FEW_TOLD})" if success.episodes < FEW else ""
    sampled = f"; sampled at {success.sampled}" if success.sampled else ""
    return (
        f"{success.value:.1%} of {format_amount(success.episodes, 'episode')} of the whole team "
        f"on held-out seeds ({seeds}), "
        f"by which the best epoch is chosen; 95 % interval {success.low:.1%} to {success.high:.1%}{few}{sampled}"
    )


def _is_hub_id(name: str) -> bool:
    """Return whether a name is OWNER/NAME of a model hub and no place on this machine."""
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and not name.startswith((".", "~")) and not Path(name).exists()


def _strip_folder(agents: str) -> str:
    """Strip the directory from names of agents files: cards contain no places of a machine."""
    parts = [part.rpartition("=") for part in agents.split(",")]
    if len(parts) == 1:
        return Path(agents).name
    common = {Path(path).parent for _, _, path in parts}
    depth = 1 if len(common) == 1 else 2
    return ",".join(f"{slot}={'/'.join(Path(path).parts[-depth:])}" for slot, _, path in parts)


def _format_usage(adapter: Path | None, agents: str, loader: str) -> str:
    if adapter is not None:
        load = (
            f"base = {loader}.from_pretrained(BASE)  # the base named above\n"
            'model = PeftModel.from_pretrained(base, ".")'
        )
        what, served = "from peft import PeftModel\n", _format_serve_command(adapter)
    else:
        load, what, served = f'model = {loader}.from_pretrained(".")', "", "$ vllm serve .\n"
    return (
        "From this directory:\n\n"
        f"```python\n{what}from transformers import {loader}, AutoTokenizer\n\n"
        f'{load}\ntokenizer = AutoTokenizer.from_pretrained(".")\n```\n\n'
        f"```console\n{served}$ collab rollout --agents {agents}\n```\n"
    )


def _format_serve_command(adapter: Path) -> str:
    """Format the command that starts vLLM for an adapter; empty if vLLM supports no rank as large."""
    try:
        rank = choose_largest_rank([adapter], None)
    except ConfigError:
        return ""
    return f"$ vllm serve BASE --enable-lora --max-lora-rank {rank} --lora-modules team=.\n"


AGENTS = "agents.yaml"
CARD = "README.md"
_ENGINE = ("max_batch", "cache_mb", "picture_tokens", "date", "chat_template_kwargs")
"""Options of a local model that an agents file keeps; the rest belongs to a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Weights, the agents that play them, and their facts."""

    source: WeightSource
    agents: Mapping[str, AgentDefinition]
    """Slot → how it plays; "" for any slot, if no team is known."""
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTeam:
    """Members that a name stands for."""

    members: Mapping[str, Member]
    """Name of the directory → member; "" for one policy, which lies in the exported directory itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Result of an export."""

    path: Path
    agents: str
    """Value of `--agents` that plays it."""
    digests: Mapping[str, str]
    """Directory within `path`, "." for itself → SHA-256 over its weights."""


def find(name: str, base: str | None = None) -> ExportedTeam:
    """Find the members that a name stands for; no weights are loaded.

    Args:
        name: `RUN@best`, `RUN@last`, `RUN@epoch3` of a training, a fine-tuning run, a checkpoint or an adapter
            directory, or "built-in:NAME".
        base: of an adapter; None for the one that it names.

    Raises:
        UsageError: a fine-tuning run is not done, a training has no best epoch or is named without an epoch.
        UnknownName: that epoch is not over, or no such checkpoint comes with the package.
        RunFormatError: the directory of a training cannot be read.
        ConfigError: there is no checkpoint, or a part of it is missing.
    """
    folder = Path(name).expanduser()
    # A directory with weights is taken as it is, also where its name looks like RUN@best.
    policy = None if folder.is_dir() and not (folder / FILE).is_file() else parse_policy(str(folder))
    if policy is not None:
        return _load_trained_team(policy, base)
    run = FinetuneDir(folder)
    # An unfinished run has no weights to export; the message names how to finish it.
    if run.file.is_file():
        if not run.final.is_dir():
            training = find_training_around(folder)
            resume = run.resume if training is None else training.resume
            raise UsageError(f"{name}: the fine-tuning run is not done; resume with: {resume}")
        name = str(run.final)
    source = open_source(name, base)
    return ExportedTeam(
        members={
            "": Member(source=source, agents={"": _describe_agent(name, source)}, facts=describe_checkpoint(source))
        }
    )


def export(team: ExportedTeam, out: Path, *, merge: bool, dtype: Precision | None) -> Exported:
    """Write a directory under another name and rename it: it is there whole or not at all.

    Args:
        out: new; directories above it are made.
        merge: whether adapters are added to the weights of their base; whole checkpoints stay as they are.
        dtype: of the written weights; None keeps it.

    Raises:
        UsageError: something is there already, or a dtype is asked of an adapter that stays one.
        ConfigError: weights cannot be read, or have no chat template.
        StoreFailure: it cannot be written; nothing is left behind.
    """
    # A link is refused too: the renaming below would replace it, or write where it leads.
    if out.exists() or out.is_symlink():
        raise UsageError(f"--out {out}: is there already; name a new directory")
    out = out.resolve()
    # Beside the target, so that the final rename stays on one file system and is atomic.
    partial = out.with_name(f".{out.name}.partial")
    try:
        with report_save_errors(out, "try again"):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        digests = {}
        # One member at a time is in memory; `report_save_errors` turns only the writing's errors into its own.
        for place, member in team.members.items():
            weights = load_export(member.source, merge=merge, dtype=dtype)
            with report_save_errors(out, "try again"):
                digests[place or "."] = _write(member, weights, partial / place, out / place)
        names = dict(
            both for place, member in team.members.items() for both in _name_agents_files(member, out / place).items()
        )
        agents = _format_agents_option(names)
        # The card names all members, so it comes when all are written; the sync makes the rename mean "whole".
        with report_save_errors(out, "try again"):
            if "" not in team.members:
                _write_text(partial / CARD, format_team_card(out.name, digests, agents))
            sync_files(partial)
            partial.rename(out)
            sync_directory(out.parent)
    finally:
        # After the rename there is nothing to remove; after an error, nothing stays behind.
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(path=out, agents=agents, digests=digests)


# ------------------------------------------------------------------------------------------------- what is found


def _load_trained_team(name: PolicyName, base: str | None) -> ExportedTeam:
    """Load the policies of a training; separately trained ones become separate members."""
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    number = resolve_epoch(name, folder, config, head)
    policy = load_policy(folder, config, number)
    if base is not None and not policy.adapters:
        raise UsageError(f"--base {base}: this team's policies are whole checkpoints; leave --base out")
    # Trained apart, each policy is a member of its own; shared, one directory plays all slots.
    apart = config.method.policies == "per_agent"
    members = {}
    for group, slots in config.groups.items():
        agents = {slot: config.as_declared.agents[slot] for slot in slots}
        members[group if apart else ""] = Member(
            source=_open_policy_source(policy, slots, base),
            agents={
                slot: _restrict_temperature(agent, config.run.graph.slots.index(slot)) for slot, agent in agents.items()
            }
            if apart
            else agents,
            facts=describe_training(folder, config, head, number, group),
        )
    return ExportedTeam(members=members)


def _open_policy_source(policy: Policy, slots: Sequence[str], base: str | None) -> WeightSource:
    adapter = policy.get_adapter(slots)
    return open_source(policy.of(slots)) if adapter is None else open_source(adapter, base or policy.of(slots))


def _restrict_temperature(agent: AgentDefinition, position: int) -> AgentDefinition:
    """Return the agent with the temperature of its own slot."""
    temperature = agent.sampling.temperature
    if not isinstance(temperature, list):
        return agent
    return agent.model_copy(
        update={"sampling": agent.sampling.model_copy(update={"temperature": temperature[position]})}
    )


def _describe_agent(name: str, source: WeightSource) -> AgentDefinition:
    """Describe how a checkpoint plays: fully for a built-in one, else only its context and options."""
    library = Library()
    if name.startswith(BUILT_IN) and name.removeprefix(BUILT_IN) in library.list_names("agents"):
        return library.load("agents", name.removeprefix(BUILT_IN), AgentDefinition)
    plain = AgentDefinition(kind="local")
    recipe = source.card.get("recipe") or {}
    trained = recipe.get("context")
    options = {name: recipe[name] for name in ("date", "chat_template_kwargs") if recipe.get(name)}
    context = min(filter(None, (plain.context_tokens, trained, find_context_length(source))))
    return plain.model_copy(update={"context_tokens": max(256, context), "options": options})


# ---------------------------------------------------------------------------------------------- what is written


def _write(member: Member, weights: ExportWeights, target: Path, final: Path) -> str:
    """Write one directory, which will lie at `final`; return its weights' digest."""
    if target.exists():  # the exported directory itself; made to see that it can be
        target.rmdir()
    write_export(member.source, weights, target)
    base = member.source.base if weights.model is None else None
    digest = hash_weights(target)
    for slot, path in _name_agents_files(member, final).items():
        agent = next(iter(member.agents.values())) if not slot else member.agents[slot]
        _write_text(target / path.name, _format_agents_file(agent, final, base))
    card = format_model_card(
        final.name,
        member.facts,
        digest=digest,
        merged=member.source.base is not None and base is None,
        adapter=None if base is None else target,
        agents=_format_agents_option(_name_agents_files(member, final)),
        loader=_find_loader(member.source),
    )
    _write_text(target / CARD, card)
    return digest


def _find_loader(source: WeightSource) -> str:
    """Name transformers' class that loads a checkpoint, or an adapter's base; one of a model hub is taken for text."""
    folder = Path(resolve_checkpoint(source.base or str(source.path)))
    known = (folder / "config.json").is_file()
    return get_loader(read_config(folder)).__name__ if known else "AutoModelForCausalLM"


def _name_agents_files(member: Member, folder: Path) -> dict[str, Path]:
    """Return slot → agents file: one for all slots that play alike, else one per slot."""
    alike = len({agent.model_dump_json() for agent in member.agents.values()}) == 1
    many = not alike and len(member.agents) > 1
    return {slot: folder / (f"agents-{slot}.yaml" if many else AGENTS) for slot in member.agents}


def _format_agents_option(names: Mapping[str, Path]) -> str:
    """Format the value of `--agents`: one name for all slots, or one per slot."""
    if len(set(names.values())) == 1:
        return str(next(iter(names.values())))
    return ",".join(f"{slot}={path}" for slot, path in names.items())


def _format_agents_file(agent: AgentDefinition, place: Path, base: str | None) -> str:
    """Format an agents file of kind local.

    Args:
        place: where the weights will lie.
        base: of an adapter, whose weights lie there; None for a whole checkpoint.
    """
    kept = {name: value for name, value in agent.options.items() if name in _ENGINE}
    where = {"path": str(place)} if base is None else {"path": _resolve_base(base), "adapter": str(place)}
    described = {
        "description": f"Exported by Collab to {place.name}; change options when the directory is moved.",
        "kind": "local",
        "options": {**where, **kept},
        **agent.model_dump(mode="json", include={"prompt", "history", "context_tokens", "summary", "modality"}),
        "sampling": agent.sampling.model_dump(mode="json"),
    }
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True, width=110)


def _resolve_base(base: str) -> str:
    """Return a base that is found from anywhere: an absolute path for a directory here, else its name."""
    folder = Path(base).expanduser()
    return str(folder.resolve()) if not base.startswith(BUILT_IN) and folder.is_dir() else base


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def list_directories(done: Exported) -> Iterable[tuple[str, str]]:
    """Return directory → short digest of its weights, for people."""
    return ((str(done.path if name == "." else done.path / name), one[:12]) for name, one in done.digests.items())
